"""Parts of a recording while it is measured: what is finished lies on disk, an interrupted run goes on from there."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from tilearena import dataset
from tilearena.dataset import COLUMNS, Header
from tilearena.errors import MeasureError
from tilearena.records import Measurement, fingerprint

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Collected:
    """All parts together: rows, seconds of measuring, ids of the runs that contributed, and their telemetry samples."""

    rows: pa.Table
    wall_time_s: float
    sessions: tuple[str, ...]
    telemetry: list[dict[str, float]]


class Parts:
    """The folder beside a recording that holds its parts; one process at a time, as a context manager.

    Only runs of the same card, driver, spec, space, protocol and tools share a folder.
    """

    def __init__(self, path: Path, header: Header) -> None:
        what = [
            header.spec_fingerprint,
            header.space_fingerprint,
            header.protocol.model_dump(mode="json"),
            header.device.model_dump(mode="json"),
            header.versions,
            [candidate.id for candidate in header.candidates],
        ]
        self.folder = path.with_name(f".{path.stem}.{fingerprint(what)}.parts")
        self._lock = FileLock(self.folder / "lock", timeout=0)
        self._header = header

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
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lock.release()

    def header(self) -> Header:
        """The header of the run that began; this one's if there was none.

        Raises:
            MeasureError: it is damaged.
        """
        begun = self.folder / "header.json"
        if not begun.is_file():
            begun.write_text(self._header.model_dump_json())
            return self._header
        try:
            return Header.model_validate_json(begun.read_bytes())
        except ValueError:
            raise MeasureError(f"{begun} is damaged; delete {self.folder} to measure from the beginning") from None

    def done(self) -> set[Shape]:
        """Shapes that are finished.

        Raises:
            MeasureError: a part is damaged.
        """
        shapes: set[Shape] = set()
        for part in self._files():
            rows = _read(part)
            shapes |= set(zip(*(rows[axis].to_pylist() for axis in "mnk"), strict=True))
        return shapes

    def write(self, rows: Sequence[Measurement], seconds: float, telemetry: Sequence[dict[str, float]]) -> None:
        """Add a part, atomically."""
        number = max((int(part.stem) for part in self._files()), default=-1) + 1
        part = self.folder / f"{number:05d}.parquet"
        note = {"seconds": seconds, "session": self._header.sessions[0], "telemetry": list(telemetry)}
        table = dataset.rows_from(rows).replace_schema_metadata({b"part": json.dumps(note).encode()})
        scratch = part.with_suffix(".tmp")
        pq.write_table(table, scratch, compression="zstd")
        scratch.replace(part)

    def collect(self) -> Collected:
        """Everything that was measured, in order."""
        tables = [_read(part) for part in self._files()]
        notes: list[dict[str, Any]] = [json.loads(table.schema.metadata[b"part"]) for table in tables]
        rows = pa.concat_tables([t.replace_schema_metadata(None).cast(COLUMNS) for t in tables]).unify_dictionaries()
        return Collected(
            rows=rows.combine_chunks(),
            wall_time_s=round(sum(note["seconds"] for note in notes), 3),
            sessions=tuple(dict.fromkeys(note["session"] for note in notes)),
            telemetry=[sample for note in notes for sample in note["telemetry"]],
        )

    def discard(self) -> None:
        """Forget all parts."""
        for file in [*self._files(), self.folder / "header.json"]:
            file.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the folder, the recording being written."""
        shutil.rmtree(self.folder)

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*.parquet"))


def _read(part: Path) -> pa.Table:
    try:
        return pq.read_table(part)
    except (pa.ArrowException, OSError):
        raise MeasureError(f"{part} is damaged; delete it to measure its problems again") from None
