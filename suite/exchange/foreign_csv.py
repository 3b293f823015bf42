"""A CSV file of another tool -> its rows, one by one: whatever it holds, nothing crashes and memory stays bounded."""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tilearena.errors import RecordingError, one_line

#: A million rows of cutlass_profiler.
MAX_BYTES = 256 << 20
MAX_LINE_BYTES = 1 << 16
MAX_ROWS = 1 << 20
#: Rows that are named one by one, with the reason; of the others the lines are.
SHOWN = 20

Row = Mapping[str, str]


class MalformedRowError(Exception):
    """One row cannot be taken; the message says why."""


@dataclass
class Faults:
    """The rows of a file that were left out: how many, a sentence for each of the first, and the lines of the others.

    ``spans`` are the first and last of consecutive lines.
    """

    path: Path
    count: int = 0
    sentences: list[str] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)

    def add(self, line: int, reason: object) -> None:
        """Leave out the row in this line (from 1)."""
        self.count += 1
        if len(self.sentences) < SHOWN:
            self.sentences.append(one_line(f"{self.path} line {line}: {reason}"))
        elif self.spans and line - 1 == self.spans[-1][1]:
            self.spans[-1] = self.spans[-1][0], line
        else:
            self.spans.append((line, line))


@dataclass(frozen=True)
class ForeignCsv:
    """An open file and the names in its first line."""

    path: Path
    columns: Sequence[str]
    file: IO[bytes]

    def require(self, columns: Sequence[str], optional: Sequence[str] = ()) -> None:
        """Make sure that each of ``columns`` is there once, and ``optional`` ones at most; others do not matter.

        Raises:
            RecordingError: one is missing, or there twice.
        """
        for count, what, names in ((0, "lacks", columns), (2, "has twice", (*columns, *optional))):
            if wrong := [name for name in names if min(self.columns.count(name), 2) == count]:
                raise RecordingError(f"{self.path} line 1 {what} the column {', '.join(wrong)}; correct the header")

    def rows(self, faults: Faults) -> Iterator[tuple[int, Row]]:
        """Line (from 1) and cells by column of each row that can be told apart into cells; the others go to ``faults``.

        Raises:
            RecordingError: there are more than ``MAX_ROWS``.
        """
        for line, data in _lines(self.file, 2):
            if line > MAX_ROWS:
                raise RecordingError(f"{self.path}: has more than {MAX_ROWS} lines; split it by problems")
            try:
                cells = _cells(data)
                if len(cells) not in (0, len(self.columns)):
                    raise MalformedRowError(f"has {len(cells)} cells, the header {len(self.columns)}")
            except MalformedRowError as error:
                faults.add(line, error)
                continue
            if cells:
                yield line, dict(zip(self.columns, cells, strict=True))


@contextmanager
def opened(path: Path) -> Iterator[ForeignCsv]:
    """Open a CSV file and read its header.

    Raises:
        RecordingError: it is no file, empty, too large, or its first line is no header.
    """
    if not path.is_file():
        raise RecordingError(f"{path}: no such file; give a CSV of cutlass_profiler or of labels")
    if not 0 < (size := path.stat().st_size) <= MAX_BYTES:
        what = f"larger than {MAX_BYTES >> 20} MiB; split it by problems" if size else "empty"
        raise RecordingError(f"{path}: is {what}")
    with path.open("rb") as file:
        first = next(data for _, data in _lines(file, 1))
        try:
            columns = _cells(first and first.removeprefix(b"\xef\xbb\xbf"))
        except MalformedRowError as error:
            raise RecordingError(f"{path} line 1 {error}; it must be the header of a CSV in UTF-8") from None
        yield ForeignCsv(path, columns, file)


def _lines(file: IO[bytes], first: int) -> Iterator[tuple[int, bytes | None]]:
    """Number (from ``first``) and content of each line; None for one that is too long, of which little is kept."""
    number = first
    while data := file.readline(MAX_LINE_BYTES + 1):
        whole = len(data) <= MAX_LINE_BYTES
        yield number, data if whole else None
        while data and not whole and not data.endswith(b"\n"):
            data = file.readline(MAX_LINE_BYTES)
        number += 1


def _cells(data: bytes | None) -> list[str]:
    if data is None:
        raise MalformedRowError(f"is longer than {MAX_LINE_BYTES} bytes")
    try:
        text = data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise MalformedRowError("is not UTF-8") from None
    if "\0" in text:
        raise MalformedRowError("holds a NUL byte")
    try:
        return [cell.strip() for cell in next(csv.reader([text], strict=True))]
    except csv.Error as error:
        raise MalformedRowError(f"is not CSV ({error})") from None


def whole_number(row: Row, column: str) -> int:
    """The cell as a whole number of up to nine digits.

    Raises:
        MalformedRowError: it is something else.
    """
    if not re.fullmatch("[0-9]{1,9}", row[column]):
        raise MalformedRowError(f"{column} is {shown(row[column])}, not a whole number of up to 9 digits")
    return int(row[column])


def shown(cell: str) -> str:
    """A cell in quotes, cut to a length that is fit to print."""
    return ascii(cell[:40])
