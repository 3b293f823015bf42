"""Parts of a recording while it is measured: what is finished lies on disk, an interrupted run goes on from there."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from tilearena.atomic import replacing
from tilearena.dataset import COLUMNS, Header
from tilearena.errors import MeasureError
from tilearena.provenance import Anchors, Batch
from tilearena.records import Problem, fingerprint

Shape = tuple[int, int, int]
#: Keys of a part's metadata: its `Batch`, and the fingerprint in its folder's name.
NOTE, RUN = b"batch", b"run"


@dataclass(frozen=True)
class Collected:
    """All parts together: rows, who measured which of them, and the times of the anchors."""

    rows: pa.Table
    batches: tuple[Batch, ...]
    anchors: tuple[Anchors, ...]


class Parts:
    """The folder beside a recording that holds its parts; one process at a time, as a context manager.

    Only runs of the same problems, card (or of several cards alike), driver, spec, space, protocol and tools share a
    folder. Every file in it appears whole or not at all.
    """

    def __init__(self, path: Path, header: Header, problems: Sequence[Problem] = (), *, pool: bool = False) -> None:
        """Name the folder; ``pool`` says that several hands measure ``problems``, on whatever cards."""
        self._pool, self._problems = pool, fingerprint([(p.m, p.n, p.k) for p in problems])
        self._run = self._fingerprint(header)
        self.folder = path.with_name(f".{path.stem}.{self._run}.parts")
        self._lock = FileLock(self.folder / "lock", timeout=0)
        self._header = header
        self._first = self._first_anchors = 0

    def _fingerprint(self, header: Header) -> str:
        """Of what the runs that share the folder have in common."""
        what = [
            header.spec_fingerprint,
            header.space_fingerprint,
            header.protocol.model_dump(mode="json"),
            header.device.model_dump(mode="json") | ({"uuid_sha256": "pool"} if self._pool else {}),
            header.versions,
            [candidate.id for candidate in header.candidates],
            self._problems,
        ]
        return fingerprint(what)

    def __enter__(self) -> Self:
        """Take the folder.

        Raises:
            MeasureError: another process has it.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire()
        except Timeout:
            raise MeasureError(f"another process is measuring into {self.folder}; wait for it") from None
        self._first, self._first_anchors = _next(self._files()), _next(self._anchors())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lock.release()

    def header(self) -> Header:
        """The header of the run that began; this one's if there was none.

        Raises:
            MeasureError: it is damaged, or of another folder.
        """
        begun = self.folder / "header.json"
        if not begun.is_file():
            with replacing(begun) as scratch:
                scratch.write_text(self._header.model_dump_json())
            return self._header
        try:
            header = Header.model_validate_json(begun.read_bytes())
            if self._fingerprint(header) != self._run:
                raise ValueError
        except ValueError:
            raise MeasureError(
                f"{begun} is damaged or of another run; delete {self.folder} to measure from the beginning"
            ) from None
        return header

    def done(self) -> set[Shape]:
        """Shapes that are finished.

        Raises:
            MeasureError: a part is damaged, of another folder, or there twice.
        """
        shapes: set[Shape] = set()
        for part in self._files():
            rows, _ = self._read(part)
            fresh = set(zip(*(rows[axis].to_pylist() for axis in "mnk"), strict=True))
            if fresh & shapes:
                raise MeasureError(f"{part} holds problems that a part before it holds, too; delete one of them")
            shapes |= fresh
        return shapes

    def write(self, index: int, rows: pa.Table, batch: Batch) -> None:
        """Keep the batch of this run that has the number ``index``; once more is once.

        Raises:
            OSError: it cannot be written; names the file.
        """
        with replacing(self.folder / f"{self._first + index:05d}.parquet") as scratch:
            noted = rows.replace_schema_metadata({NOTE: batch.model_dump_json().encode(), RUN: self._run.encode()})
            pq.write_table(noted, scratch, compression="zstd")

    def write_anchors(self, anchors: Sequence[Anchors]) -> None:
        """Keep the times of the anchors of this run, in place of earlier ones of this run.

        Raises:
            OSError: they cannot be written; names the file.
        """
        for i, one in enumerate(anchors):
            with replacing(self.folder / f"{self._first_anchors + i:05d}.anchors") as scratch:
                scratch.write_text(one.model_dump_json())

    def collect(self) -> Collected:
        """Everything that was measured, in order.

        Raises:
            MeasureError: a file is damaged.
        """
        parts = [self._read(part) for part in self._files()]
        rows = pa.concat_tables([rows for rows, _ in parts]).unify_dictionaries().combine_chunks()
        anchors = tuple(_read_anchors(file) for file in self._anchors())
        return Collected(rows, tuple(batch for _, batch in parts), anchors)

    def discard(self) -> None:
        """Forget all parts; the header, which tells whose they are, last."""
        for file in [*self._files(), *self._anchors(), self.folder / "header.json"]:
            file.unlink(missing_ok=True)
        self._first = self._first_anchors = 0

    def remove(self) -> None:
        """Remove the folder, the recording being written."""
        self.discard()
        shutil.rmtree(self.folder)

    def _read(self, part: Path) -> tuple[pa.Table, Batch]:
        try:
            rows = pq.read_table(part)
            if rows.schema.metadata[RUN] != self._run.encode():
                raise ValueError
            note = Batch.model_validate_json(rows.schema.metadata[NOTE])
            return rows.replace_schema_metadata(None).cast(COLUMNS), note
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError):
            raise MeasureError(
                f"{part} is damaged or of another run; delete it to measure its problems again"
            ) from None

    def _files(self) -> list[Path]:
        return _numbered(self.folder, "parquet")

    def _anchors(self) -> list[Path]:
        return _numbered(self.folder, "anchors")


def _numbered(folder: Path, kind: str) -> list[Path]:
    """Files of ours, in order; somebody else's lie there unread."""
    return sorted(file for file in folder.glob(f"*.{kind}") if file.stem.isdecimal())


def _next(files: Sequence[Path]) -> int:
    return max((int(file.stem) for file in files), default=-1) + 1


def _read_anchors(file: Path) -> Anchors:
    try:
        return Anchors.model_validate_json(file.read_bytes())
    except ValueError:
        raise MeasureError(f"{file} is damaged; delete it, the rows do not need it") from None
