"""What is recorded below a root, and whether every file is whole and in its place."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tilearena import dataset
from tilearena.dataset import Header
from tilearena.errors import TilearenaError
from tilearena.judge import Sources, read_in_place

#: The end of the name of a repeat recording, see `tilearena.dataset.find_path`.
REPEAT = ".repeat.parquet"


@dataclass(frozen=True)
class Entry:
    """One file, by its path below ``baselines/recordings``; without a header where that cannot be read.

    ``fault``: what is wrong with it, empty where nothing was found.
    """

    path: Path
    n_bytes: int
    header: Header | None = None
    n_rows: int = 0
    fault: str = ""

    @property
    def is_repeat(self) -> bool:
        """Whether it is for ceilings."""
        return self.path.name.endswith(REPEAT)


def inventory(root: Path, *, verify: bool) -> Iterator[Entry]:
    """Every recording below ``root``, in the order of its path; parts of unfinished ones are left out.

    ``verify``: the content too is read, compared with its fingerprint, with its place, and with the workload and the
    space that ship under the names that it gives.
    """
    folder = root / "baselines" / "recordings"
    for path in sorted(folder.rglob("*.parquet")):
        place = path.relative_to(folder)
        if any(part.startswith(".") for part in place.parts):
            continue
        try:
            yield _entry(root, path, place, verify)
        except TilearenaError as error:
            yield Entry(place, path.stat().st_size, fault=str(error).removeprefix(f"{path}: "))


def _entry(root: Path, path: Path, place: Path, verify: bool) -> Entry:
    header, n_rows = dataset.read_header(path)
    dataset.path_for(root, header)  # its names are safe to print, or this refuses them
    if verify:
        recording = read_in_place(root, path, repeat=path.name.endswith(REPEAT))
        Sources(recording, recording, None).require()
    return Entry(place, path.stat().st_size, header, n_rows)
