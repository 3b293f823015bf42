"""Recordings + picks -> Score: the one way to a score, for fresh predictions and for the referee alike."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from tilearena import dataset
from tilearena.dataset import Header, Recording
from tilearena.errors import RecordingError
from tilearena.manifest import Fingerprints
from tilearena.root import find_path, read_in_place, recorded_devices
from tilearena.score import Key, Score, score
from tilearena.space import Space
from tilearena.spec import Workload, load_space, load_workload, space_names, workload_names
from tilearena.splits import Fold, groups_for, plan, selected, train_spec_for
from tilearena.table import Floats, Ints
from tilearena.vendor import CUBLASLT


@dataclass(frozen=True)
class Sources:
    """The recordings of one result: what is tested, what trains, and the repeat if any.

    Most splits train in the tested recording. ``others`` train too: those of further devices, for the split ``device``.
    """

    test: Recording
    train: Recording
    repeat: Recording | None
    others: tuple[Recording, ...] = ()

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

        train_spec = train_spec_for(key.split, key.spec, key.train_spec)
        test = read_in_place(root, at(key.spec))
        others: tuple[Recording, ...] = ()
        if key.split == "device":
            train, *rest = _other_devices(root, key, test.header)
            others = tuple(rest)
        else:
            train = test if train_spec == key.spec else read_in_place(root, at(train_spec))
        path = at(key.spec, repeat=True)
        repeat = read_in_place(root, path, repeat=True) if path.exists() else None
        if repeat is not None:
            require_same_kernels(path, test.header, repeat.header)
        return cls(test, train, repeat, others)

    def __iter__(self) -> Iterator[Recording]:
        """All of them; one that both trains and is tested comes twice."""
        yield from (self.test, self.train, *self.others, *([self.repeat] if self.repeat else []))

    def folds(self, key: Key, seed: int) -> list[Fold]:
        """The fits of ``key``'s split, see `tilearena.splits.plan`; their rows are of the whole tested table."""
        train = replace(self.train.table, others=tuple(other.table for other in self.others))
        return plan(key.split, key.spec, self.test.table, train, train_spec=key.train_spec, seed=seed)

    def tested(self, key: Key) -> Ints:
        """Rows of the tested table that ``key``'s split selects: the picks of all others are -1."""
        return selected(key.split, key.spec, self.test.table.problems)

    def require(self, workload: Workload | None = None, space: Space | None = None) -> None:
        """Refuse recordings of something else than their names mean now.

        The names mean what is given, or else what ships under them; a name that does not ship may mean anything.

        Raises:
            RecordingError: the content of a workload or of the space is not what was recorded.
        """
        headers = [recording.header for recording in self]
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
        for recording in self:
            if recording.header.origin != "measured":
                raise RecordingError(not_ranked(recording.header))

    @property
    def fingerprints(self) -> Fingerprints:
        """What a result computed from these must claim."""
        return Fingerprints.of(self.test, self.train, self.repeat, self.others)


def _other_devices(root: Path, key: Key, tested: Header) -> list[Recording]:
    """The recordings of other devices of the tested one's product, the nearest number of SMs first, the larger of two.

    A partition of SMs is a device of its own; a single card with a slug of its own (``nvidia-h200.173025``) is none.

    Raises:
        RecordingError: there is none, or one is damaged.
    """
    found = []
    for slug in recorded_devices(root):
        path = find_path(root, slug, key.spec, key.space, key.dtype, key.protocol, key.op)
        if "." in slug or slug == key.device.split(".")[0] or not path.is_file():
            continue
        header = dataset.read_header(path)[0]
        if header.device.product == tested.device.product:
            found.append((header.device.sm_count, slug, path))
    if not found:
        raise RecordingError(
            f"split 'device' trains on {key.spec} ({key.dtype}, {key.protocol}) of other devices of the product "
            f"{tested.device.product}, and none is recorded below {root}; measure a partition of its SMs (--sms)"
        )
    found.sort(key=lambda one: (abs(one[0] - tested.device.sm_count), -one[0], one[1]))
    return [read_in_place(root, path) for _, _, path in found]


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


@cache
def _shipped_workload(name: str) -> Workload | None:
    return load_workload(name) if name in workload_names() else None


@cache
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
    """The score of ``picks`` [P, R] by the recordings of ``key``; the others as in `tilearena.score.score`.

    ``picks`` and ``constant_picks`` have a row for each problem of the tested recording; only the split's count.
    """
    rows = sources.tested(key)
    table = sources.test.table.take(rows)
    vendor_ns = cublaslt_ns(sources.test)
    return score(
        table,
        picks[rows],
        key=key,
        groups=groups_for(key.spec, table.problems),
        repeat=sources.repeat.table if sources.repeat else None,
        noise_floor=sources.test.header.noise_floor,
        predict_us=predict_us,
        constant_picks=constant_picks[rows],
        vendor_ns=None if vendor_ns is None else vendor_ns[rows],
        reason=reason,
        seed=seed,
        intervals=intervals,
    )
