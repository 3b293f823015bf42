"""What is recorded below a root, and whether every file is whole and in its place."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tilearena import dataset
from tilearena.dataset import Header
from tilearena.errors import RecordingError, TilearenaError
from tilearena.judge import require_same_kernels, require_shipped
from tilearena.records import Dtype
from tilearena.root import RECORDINGS, path_for, read_in_place, recorded, require_in_place
from tilearena.spec import load_workload, workload_names

#: The end of the name of a repeat recording, see `tilearena.root.find_path`.
REPEAT, FIRST = ".repeat.parquet", ".parquet"


@dataclass(frozen=True)
class Entry:
    """One file, by its path below ``baselines/recordings``; without a header where that cannot be read.

    ``n_of``: problems of its workload, of which it may have a sample; None where that does not ship. ``fault``: what is
    wrong with it, empty where nothing was found.
    """

    path: Path
    n_bytes: int = 0
    header: Header | None = None
    n_rows: int = 0
    n_of: int | None = None
    fault: str = ""

    @property
    def n_problems(self) -> int:
        """Every one has a row for each candidate."""
        return self.n_rows // len(self.header.candidates) if self.header else 0

    @property
    def is_repeat(self) -> bool:
        """Whether it is for ceilings."""
        return self.path.name.endswith(REPEAT)


def names(header: Header) -> dict[str, str]:
    """What a recording is of, as the JSON of several verbs says it."""
    return {
        "origin": header.origin,
        "device": header.device.slug,
        "spec": header.spec,
        "space": header.space,
        "dtype": header.dtype,
        "protocol": header.protocol.name,
    }


def inventory(root: Path, *, verify: bool) -> Iterator[Entry]:
    """Every recording below ``root``, in the order of its path.

    Each must lie where its header says. ``verify``: its content too is read and compared with its fingerprint, it must
    be of the workload and the space that ship under their names, and a repeat must be of the kernels of its recording.
    """
    for path in recorded(root):
        yield _entry(root, path, Entry(path.relative_to(root / RECORDINGS)), verify)


@cache
def _n_problems(spec: str, dtype: Dtype) -> int:
    return len(load_workload(spec).problems_for(dtype))


def _entry(root: Path, path: Path, entry: Entry, verify: bool) -> Entry:
    try:
        entry = replace(entry, n_bytes=path.stat().st_size)
        header, n_rows = dataset.read_header(path)
        path_for(root, header)  # its names are safe to print, or this refuses them
        entry = replace(entry, header=header, n_rows=n_rows)
        if header.origin == "measured" and header.spec in workload_names():
            entry = replace(entry, n_of=_n_problems(header.spec, header.dtype))
        require_in_place(root, path, header, repeat=entry.is_repeat)
        if verify:
            _verify(root, path, header, entry.is_repeat)
    except OSError as error:
        return replace(entry, fault=f"cannot be read ({error.strerror})")
    except TilearenaError as error:
        return replace(entry, fault=str(error).removeprefix(f"{path}: "))
    return entry


def _verify(root: Path, path: Path, header: Header, is_repeat: bool) -> None:
    read_in_place(root, path, repeat=is_repeat)
    require_shipped(header)
    if is_repeat:
        first = path.with_name(path.name.removesuffix(REPEAT) + FIRST)
        if not first.is_file():
            raise RecordingError(f"{path}: the recording that it repeats is missing; record that, or remove this")
        require_same_kernels(path, dataset.read_header(first)[0], header)
