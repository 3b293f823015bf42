"""A file of another tool -> recordings that say where they come from. They are scored, but never ranked."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tilearena import __version__, dataset
from tilearena.dataset import Candidate, Header
from tilearena.errors import RecordingError
from tilearena.exchange import labels_csv, profiler_csv
from tilearena.exchange.foreign_csv import Faults, opened
from tilearena.exchange.foreign_rows import Content
from tilearena.feasible import support
from tilearena.records import DTYPES, PROTOCOLS, Device, Dtype, Origin, Protocol, ProtocolName, fingerprint
from tilearena.root import find_path, path_for
from tilearena.space import Space
from tilearena.spec import workload_names

#: Names of imported workloads; as of those that ship, so that none is taken for a path.
NAME = r"[a-z0-9][a-z0-9_-]{0,63}"


@dataclass(frozen=True)
class Target:
    """What the user says that a file is of, and where its recordings go.

    ``space`` gives the templates of labels; of kernels it tells the default.
    """

    root: Path
    spec: str
    space: Space
    device: Device
    protocol: ProtocolName
    imported_at: datetime


@dataclass(frozen=True)
class Imported:
    """What a file gave: path, header and number of problems of each recording; and its rows of other devices."""

    recordings: tuple[tuple[Path, Header, int], ...]
    n_others: int


def import_file(file: Path, target: Target, faults: Faults) -> Imported:
    """Write one recording for each data type in ``file``; its rows that cannot be taken go to ``faults``.

    Raises:
        RecordingError: it gives no recording, the workload's name is taken, or a recording is there already.
        SpecError: the space does not serve a data type in it.
    """
    _require_free(target.spec)
    with opened(file) as table:
        if "Operation" in table.columns:
            origin: Origin = "cutlass_profiler"
            contents, n_others = profiler_csv.contents(table, target.space, faults), 0
        elif "best" in table.columns:
            origin = "labels"
            contents, n_others = labels_csv.contents(table, target.space, target.device, faults)
        else:
            raise RecordingError(
                f"{file} line 1 is the header neither of cutlass_profiler, which has the column Operation, nor of "
                f"labels, which is {','.join(labels_csv.COLUMNS)}"
            )
    if not contents:
        raise RecordingError(f"{file}: no row of it can be imported")
    headers = [_header(target, origin, content) for content in contents]
    paths = [path_for(target.root, header) for header in headers]
    for path in paths:
        if path.exists():
            raise RecordingError(f"{path} is there already; give another --spec, or remove it")
    written = _write(paths, headers, contents)
    counts = [len(content.problems) for content in contents]
    return Imported(tuple(zip(paths, written, counts, strict=True)), n_others)


def _write(paths: Sequence[Path], headers: Sequence[Header], contents: Sequence[Content]) -> list[Header]:
    """All of them or, if something ends it, none, so that the command can be given again."""
    written: list[Header] = []
    try:
        for path, header, content in zip(paths, headers, contents, strict=True):
            written.append(dataset.write(path, header, content.rows))
    except BaseException:
        for path in paths[: len(written)]:
            path.unlink()
        raise
    return written


def imported_headers(root: Path, device: str, spec: str, space: str) -> dict[tuple[Dtype, ProtocolName], Header | None]:
    """Headers of the recordings that were imported under these names, by data type and protocol.

    None of one that is damaged, for whoever reads it to say.

    Raises:
        RecordingError: a name that cannot be part of a path, or all recordings there are damaged.
    """
    if not re.fullmatch(NAME, spec) or spec in workload_names() or not re.fullmatch(NAME, space):
        return {}
    paths = {(d, p): find_path(root, device, spec, space, d, p) for p in PROTOCOLS for d in DTYPES}
    headers: dict[tuple[Dtype, ProtocolName], Header | None] = {}
    damage: RecordingError | None = None
    for key, path in paths.items():
        if path.is_file():
            try:
                headers[key] = dataset.read_header(path)[0]
            except RecordingError as error:  # another one may be sound
                headers[key], damage = None, damage or error
    if damage and not any(headers.values()):
        raise damage
    if all(header is None or header.origin == "measured" for header in headers.values()):
        return {}
    return {key: header for key, header in headers.items() if header is None or header.origin != "measured"}


def _require_free(spec: str) -> None:
    if not re.fullmatch(NAME, spec):
        raise RecordingError(f"--spec {ascii(spec)[:80]} names no workload; use up to 64 of a-z, 0-9, '_' and '-'")
    if spec in workload_names():
        raise RecordingError(
            f"--spec {spec} is a workload that ships with tilearena; give imported problems another name"
        )


def _header(target: Target, origin: Origin, content: Content) -> Header:
    device, dtype, bit_op = target.device, content.dtype, content.bit_op
    how = support(dtype, bit_op, device.arch)
    if how == "unsupported":
        kind = f"{dtype} {bit_op}" if bit_op else dtype
        raise RecordingError(
            f"{kind} does not exist on sm_{device.arch}, so nothing of it on {device.slug} is imported"
        )
    return Header(
        origin=origin,
        op="gemm",
        spec=target.spec,
        spec_fingerprint=fingerprint([problem.model_dump(mode="json") for problem in content.problems]),
        space=content.space,
        space_fingerprint=content.space_fingerprint,
        dtype=dtype,
        bit_op=bit_op,
        protocol=_protocol(target.protocol),
        device=device,
        support=how,
        candidates=_candidates(content),
        default=content.default,
        started_at=target.imported_at.isoformat(timespec="seconds"),
        clock=None,
        noise_floor=None,
        versions={"tilearena": __version__},
    )


def _protocol(name: ProtocolName) -> Protocol:
    """One sample of each candidate and no screen; the operands are whatever they were."""
    return Protocol(name=name, rounds=1, screen_rounds=0, reference_rounds=1, seed=0, distribution="unknown")


def _candidates(content: Content) -> tuple[Candidate, ...]:
    return tuple(Candidate(id=template.id, template=template) for template in content.templates)
