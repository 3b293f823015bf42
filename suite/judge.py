"""Recordings + picks -> Score: the one way to a score, for fresh predictions and for the referee alike."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tilearena.dataset import Floats, Header, Ints, Recording
from tilearena.errors import RecordingError
from tilearena.manifest import Fingerprints
from tilearena.root import find_path, read_in_place
from tilearena.score import Key, Score, score
from tilearena.space import Space
from tilearena.spec import Workload, load_space, load_workload, space_names, workload_names
from tilearena.splits import groups_for, train_spec_for
from tilearena.vendor import CUBLASLT


@dataclass(frozen=True)
class Sources:
    """The recordings of one result: what is tested, what trains (the same for ``random``), and the repeat if any."""

    test: Recording
    train: Recording
    repeat: Recording | None

    @classmethod
    def open(cls, root: Path, key: Key) -> "Sources":
        """Read them below ``root``.

        Raises:
            RecordingError: one is missing, damaged, or of something else than its path says, or the repeat is of other
                kernels than the recording.
            SpecError: the split does not suit the spec.
        """

        def at(spec: str, repeat: bool = False) -> Path:
            return find_path(root, key.device, spec, key.space, key.dtype, key.protocol, key.op, repeat)

        test = read_in_place(root, at(key.spec))
        train_spec = train_spec_for(key.split, key.spec)
        train = test if train_spec == key.spec else read_in_place(root, at(train_spec))
        path = at(key.spec, repeat=True)
        repeat = read_in_place(root, path, repeat=True) if path.exists() else None
        if repeat is not None:
            require_same_kernels(path, test.header, repeat.header)
        return cls(test, train, repeat)

    def require(self, workload: Workload | None = None, space: Space | None = None) -> None:
        """Refuse recordings of something else than their names mean now.

        The names mean what is given, or else what ships under them; a name that does not ship may mean anything.

        Raises:
            RecordingError: the content of a workload or of the space is not what was recorded.
        """
        headers = [recording.header for recording in (self.test, self.train, self.repeat) if recording]
        workloads = {self.test.header.spec: workload or _shipped_workload(self.test.header.spec)}
        space = space or _shipped_space(self.test.header.space)
        for header in headers:
            if header.spec not in workloads:
                workloads[header.spec] = _shipped_workload(header.spec)
            _require_same(header, "workload", workloads[header.spec])
            _require_same(header, "space", space)

    def require_measured(self) -> None:
        """Refuse imported recordings: they are scored, but never ranked.

        Raises:
            RecordingError: one is imported.
        """
        for recording in (self.test, self.train, self.repeat):
            if recording and recording.header.origin != "measured":
                raise RecordingError(not_ranked(recording.header))

    @property
    def fingerprints(self) -> Fingerprints:
        """What a result computed from these must claim."""
        return Fingerprints.of(self.test, self.train, self.repeat)


def not_ranked(header: Header) -> str:
    """Why nothing is submitted that was scored on this imported recording."""
    return (
        f"the recording of {header.spec} on {header.device.slug} ({header.dtype}, {header.protocol.name}) is imported "
        f"({header.origin}); `tilearena score` takes it, but only what tilearena measured is ranked"
    )


def require_shipped(header: Header) -> None:
    """Refuse a recording of another workload or space than what ships under the names that it gives."""
    _require_same(header, "workload", _shipped_workload(header.spec))
    _require_same(header, "space", _shipped_space(header.space))


def require_same_kernels(path: Path, header: Header, repeat: Header) -> None:
    """Other candidates would take other turns, and another compiler makes other kernels: no ceiling of the same."""
    mine, other = _kernels(header), _kernels(repeat)
    for what in mine:
        if names := sorted({name for name, _ in mine[what] ^ other[what]}):
            raise RecordingError(
                f"{path}: the repeat has other {what} than the recording ({', '.join(names)}): record it again with "
                "the same options and tools"
            )


def _kernels(header: Header) -> dict[str, set[tuple[str, str]]]:
    return {
        "candidates": {(c.id, f"{i} {c.model_dump_json()}") for i, c in enumerate(header.candidates)},
        "versions": {(tool, version) for tool, version in header.versions.items() if tool != "tilearena"},
    }


def _shipped_workload(name: str) -> Workload | None:
    return load_workload(name) if name in workload_names() else None


def _shipped_space(name: str) -> Space | None:
    return load_space(name) if name in space_names() else None


def _require_same(header: Header, kind: Literal["workload", "space"], meant: Workload | Space | None) -> None:
    if kind == "workload" and meant is not None and header.origin != "measured":
        raise RecordingError(
            f"the recording of {header.spec} ({header.device.slug}, {header.dtype}, {header.protocol.name}) is "
            f"imported ({header.origin}), but {header.spec} is a workload that is measured; import it under another "
            "name"
        )
    recorded = header.spec_fingerprint if kind == "workload" else header.space_fingerprint
    if meant is not None and meant.fingerprint != recorded:
        raise RecordingError(
            f"the recording of {header.spec} ({header.device.slug}, {header.dtype}, {header.protocol.name}) is of "
            f"another {kind} {meant.name!r} (fingerprint {recorded}) than is meant ({meant.fingerprint}); "
            "record it again, or use the version that was recorded"
        )


def cublaslt_ns(recording: Recording) -> Floats | None:
    """Median time of cuBLASLt on every problem [P] in ns, inf where it failed; None where it was not recorded."""
    for i, candidate in enumerate(recording.header.candidates):
        if (candidate.origin, candidate.id) == ("vendor", CUBLASLT):
            return recording.column_ns(i)
    return None


def judge(
    sources: Sources,
    key: Key,
    picks: Ints,
    constant_picks: Ints,
    *,
    predict_us: float | None,
    reason: str,
    seed: int,
    intervals: bool = True,
) -> Score:
    """The score of ``picks`` [P, R] by the recordings of ``key``; the others as in `tilearena.score.score`."""
    table = sources.test.table
    return score(
        table,
        picks,
        key=key,
        groups=groups_for(key.spec, table.problems),
        repeat=sources.repeat.table if sources.repeat else None,
        noise_floor=sources.test.header.noise_floor,
        predict_us=predict_us,
        constant_picks=constant_picks,
        vendor_ns=cublaslt_ns(sources.test),
        reason=reason,
        seed=seed,
        intervals=intervals,
    )
