"""Measurements -> one zstd Parquet file per (device, spec, op, space, dtype, protocol), and back.

A file keeps every raw sample and every failure. Its header (JSON in the Parquet metadata) says on which device, when,
how and with which versions the rows were taken, and holds a fingerprint of the rows.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import ValidationError, model_validator

from tilearena.atomic import replacing
from tilearena.errors import RecordingError
from tilearena.provenance import Anchors, Batch, Clock, Share, wall_time_s
from tilearena.records import (
    SLUG,
    BitOp,
    Device,
    Dtype,
    Measurement,
    Op,
    Origin,
    Protocol,
    Record,
    Support,
    Template,
)
from tilearena.row_fault import candidate_fault, label_fault, row_fault
from tilearena.rows import content_fingerprint, label_order, median_time_ns, problems_of
from tilearena.table import Floats, Ints, Table, Task

SCHEMA_VERSION = 2
METADATA_KEY = b"tilearena"
#: A few bytes of Parquet can stand for very many values.
MAX_VALUES = 1 << 28
#: A refusal names so many files at most.
MOST_NAMED = 5
COLUMNS = pa.schema(
    [
        ("m", pa.int32()),
        ("n", pa.int32()),
        ("k", pa.int32()),
        ("candidate", pa.int16()),
        ("status", pa.dictionary(pa.int8(), pa.string())),
        ("launches", pa.int16()),
        ("elapsed_ns", pa.list_(pa.int64())),
        ("reason", pa.dictionary(pa.int16(), pa.string())),
    ]
)


class Candidate(Record):
    """What a row's ``candidate`` index means. A ``control`` is the default template a second time (A/A).

    The vendor's kernels have the ids ``cublaslt`` (the first answer of its heuristic) and ``torch._int_mm``.
    """

    id: str
    origin: Literal["template", "control", "vendor"] = "template"
    template: Template | None = None


class Header(Record):
    """Where the rows of a file come from.

    ``device`` has no ``uuid_sha256`` where several cards contributed; ``batches`` say which card measured which
    problems, in the order of the rows.
    """

    schema_version: int = SCHEMA_VERSION
    origin: Origin = "measured"
    op: Op
    spec: str
    spec_fingerprint: str
    space: str
    space_fingerprint: str
    dtype: Dtype
    bit_op: BitOp | None
    protocol: Protocol
    device: Device
    support: Support
    candidates: tuple[Candidate, ...]
    default: int
    started_at: str
    clock: Clock | None
    noise_floor: Share | None
    versions: dict[str, str]
    batches: tuple[Batch, ...] = ()
    anchors: tuple[Anchors, ...] = ()
    fingerprint: str = ""

    @model_validator(mode="after")
    def _imported_had_no_session(self) -> Self:
        ours = self.clock or self.noise_floor is not None or self.batches or self.anchors
        if self.origin != "measured" and (ours or any(c.origin != "template" for c in self.candidates)):
            raise ValueError("an imported recording has templates alone, and no clock, noise floor, batches or anchors")
        return self

    @property
    def wall_time_s(self) -> float:
        """Seconds of measuring, proof included, warm-up and building not."""
        return wall_time_s(self.batches)

    @property
    def screens(self) -> Ints:
        """Number of screen samples [C] at the head of each candidate's samples: only templates are screened."""
        rounds = self.protocol.screen_rounds
        return np.array([rounds if c.origin == "template" else 0 for c in self.candidates])


@dataclass(frozen=True)
class Recording:
    """A file in memory: its header and its rows."""

    header: Header
    rows: pa.Table

    def _grid(self, values: Floats) -> tuple[Ints, Floats]:
        """Problems [P, 3] in order of appearance, and ``values`` [R] of the rows by problem and candidate [P, C]."""
        problems, problem = problems_of(self.rows)
        grid = np.full((len(problems), len(self.header.candidates)), np.inf)
        grid[problem, self.rows["candidate"].to_numpy()] = values
        return problems, grid

    @cached_property
    def _times(self) -> tuple[Ints, Floats]:
        """Problems [P, 3] in order of appearance, and median time per launch [P, C], inf where failed or unknown."""
        return self._grid(median_time_ns(self.rows, self.header.screens))

    @property
    def templates(self) -> tuple[Template, ...]:
        """The templates, in space order."""
        return tuple(c.template for c in self.header.candidates if c.template is not None and c.origin == "template")

    @property
    def task(self) -> Task:
        """What a predictor may know of this recording."""
        h = self.header
        name, labels_only = h.protocol.name, h.origin == "labels"
        return Task(h.op, h.dtype, h.bit_op, h.space, self.templates, h.default, h.device, name, labels_only)

    @cached_property
    def table(self) -> Table:
        """Median times of the templates (controls and vendor rows left out), or the order that labels give."""
        problems, time_ns = self._grid(label_order(self.rows)) if self.task.labels_only else self._times
        columns = [i for i, c in enumerate(self.header.candidates) if c.origin == "template"]
        return Table(self.task, problems, time_ns[:, columns])

    @property
    def cards(self) -> list[str | None]:
        """``uuid_sha256`` of the card that measured each problem [P]; empty where that is unknown."""
        return [batch.card for batch in self.header.batches for _ in range(batch.n_problems)]

    def column_ns(self, candidate: int) -> Floats:
        """Median time of one candidate on every problem [P], inf where it failed or no time is known."""
        return self._times[1][:, candidate]


def rows_from(measurements: Iterable[Measurement]) -> pa.Table:
    """Measurements as a table with the columns of a recording."""
    return pa.Table.from_pylist([m.model_dump(mode="json") for m in measurements], schema=COLUMNS)


def write(path: Path, header: Header, rows: pa.Table) -> Header:
    """Write atomically; returns the header with its fingerprint."""
    content = content_fingerprint(header.model_dump(mode="json"), rows)
    header = header.model_copy(update={"fingerprint": content})
    metadata = {METADATA_KEY: header.model_dump_json().encode()}
    with (
        replacing(path) as scratch,
        pq.ParquetWriter(
            scratch,
            COLUMNS,
            compression="zstd",
            compression_level=19,
            use_dictionary=[name for name in COLUMNS.names if name != "elapsed_ns"],
            # the high bytes of samples are nearly always the same: a fifth to a third less than plain
            column_encoding={"elapsed_ns.list.element": "BYTE_STREAM_SPLIT"},
        ) as file,
    ):
        file.write_table(rows.replace_schema_metadata(None))
        file.add_key_value_metadata(metadata)  # of the file: a schema's is stored twice, once as base64
    return header


def read(path: Path) -> Recording:
    """Read and verify a recording.

    Raises:
        RecordingError: missing, damaged, changed after it was written, or of another schema version.
    """
    _require_file(path)
    try:
        with pq.ParquetFile(path) as file:
            file.scan_contents()  # Arrow ends the process if a damaged footer's columns are looked at as below
            groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
            if sum(g.column(i).num_values for g in groups for i in range(g.num_columns)) > MAX_VALUES:
                raise RecordingError(f"{path}: holds more than {MAX_VALUES} values; record fewer problems")
            rows = file.read()
            text = (file.metadata.metadata or {}).get(METADATA_KEY)
        rows.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise RecordingError(f"{path}: not a readable Parquet file ({_first_line(error)}); fetch it again") from None
    header, raw = _read_header(path, text)
    rows = rows.replace_schema_metadata(None)
    _require_columns(path, rows.schema)
    for name in COLUMNS.names:
        if rows[name].null_count or (name == "elapsed_ns" and pc.list_flatten(rows[name]).null_count):
            raise RecordingError(f"{path}: column {name} has empty cells; fetch it again")
    if content_fingerprint(raw, rows) != header.fingerprint:
        raise RecordingError(f"{path}: its content does not match its fingerprint {header.fingerprint}; fetch it again")
    _require_candidates(path, header)
    fault = row_fault(rows, header.dtype, header.protocol, [c.origin for c in header.candidates])
    if fault := fault or label_fault(rows, labels=header.origin == "labels"):
        raise RecordingError(f"{path}: {fault}")
    recording = Recording(header, rows)
    listed, there = sum(batch.n_problems for batch in header.batches), len(recording.table.problems)
    if header.batches and listed != there:
        raise RecordingError(f"{path}: its batches are of {listed} problems, but it has {there}")
    return recording


def read_header(path: Path) -> tuple[Header, int]:
    """Header and number of rows of a recording, whose content is not verified.

    Raises:
        RecordingError: it is no Parquet file, or its header is none of this schema version or contradicts itself.
    """
    _require_file(path)
    try:
        metadata = pq.read_metadata(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise RecordingError(f"{path}: not a readable Parquet file ({_first_line(error)}); fetch it again") from None
    header, _ = _read_header(path, (metadata.metadata or {}).get(METADATA_KEY))
    _require_candidates(path, header)
    return header, metadata.num_rows


def _require_file(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise RecordingError(f"{path}: is no file, so no recording; remove it")
    if not path.is_file():
        beside = sorted(p.stem for p in path.parent.glob("*.parquet") if re.fullmatch(SLUG, p.stem) and p.is_file())
        nearest = ", ".join(get_close_matches(path.stem, beside, MOST_NAMED, cutoff=0.0))
        there = f"the nearest names beside it are {nearest}; " if nearest else ""
        raise RecordingError(f"{path}: no such recording; {there}`tilearena recordings` lists all")


def _require_columns(path: Path, schema: pa.Schema) -> None:
    if schema.names != COLUMNS.names:
        shown = ascii(schema.names)[:200]
        raise RecordingError(f"{path}: columns are {shown}, expected {COLUMNS.names}; fetch it again")
    for found, expected in zip(schema, COLUMNS, strict=True):
        if not found.type.equals(expected.type):
            shown = str(found.type)[:80]
            raise RecordingError(f"{path}: column {found.name} is {shown}, expected {expected.type}; fetch it again")


def _read_header(path: Path, text: bytes | None) -> tuple[Header, dict[str, Any]]:
    if text is None:
        raise RecordingError(f"{path}: has no tilearena header, so it is not a recording")
    try:
        raw = json.loads(text.decode())  # of bytes it would take UTF-16, too
        version = raw.get("schema_version")
    except (ValueError, AttributeError, RecursionError):
        raise RecordingError(f"{path}: the tilearena header is not a JSON object; fetch it again") from None
    if version != SCHEMA_VERSION:
        newer = isinstance(version, int) and version > SCHEMA_VERSION
        advice = "update tilearena" if newer else "record it again: no upgrade from that version exists"
        shown = ascii(version)[:40]
        raise RecordingError(f"{path}: schema version {shown}, this tilearena reads {SCHEMA_VERSION}; {advice}")
    try:
        return Header.model_validate_json(text), raw
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ascii(".".join(map(str, first["loc"])))[:120]
        raise RecordingError(f"{path}: header key {key}: {first['msg']}") from None


def _require_candidates(path: Path, header: Header) -> None:
    if len({c.id for c in header.candidates}) < len(header.candidates):
        raise RecordingError(f"{path}: two of its candidates have the same id")
    kinds = [(c.origin, c.template) for c in header.candidates]
    if fault := candidate_fault(kinds, header.default, header.dtype, header.bit_op):
        raise RecordingError(f"{path}: {fault}")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
