"""Ranked picks of several results <-> one zstd Parquet file: the part of a submission that can be recomputed from."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tilearena.atomic import replacing
from tilearena.errors import SubmissionError
from tilearena.score import N_PICKS
from tilearena.table import Ints

MAX_ROWS = 1 << 20
PICK_COLUMNS = tuple(f"pick_{i + 1}" for i in range(N_PICKS))
COLUMNS = pa.schema(
    [
        pa.field("result", pa.int16(), nullable=False),
        pa.field("problem", pa.int32(), nullable=False),
        *(pa.field(name, pa.int16(), nullable=False) for name in PICK_COLUMNS),
    ]
)


def padded(picks: Ints) -> Ints:
    """The first 8 picks, int64 [P, 8]; -1 where ``picks`` [P, R] has fewer."""
    out = np.full((len(picks), N_PICKS), -1, dtype=np.int64)
    out[:, : picks.shape[1]] = picks[:, :N_PICKS]
    return out


def picks_fingerprint(picks: Ints) -> str:
    """16 hex digits of SHA-256 over the first 8 picks as little-endian int16."""
    return hashlib.sha256(padded(picks).astype("<i2").tobytes()).hexdigest()[:16]


def write_picks(path: Path, results: Sequence[Ints]) -> None:
    """Write the picks [P, R] of each result atomically, ordered by result and problem."""
    lengths = [len(picks) for picks in results]
    columns = [np.repeat(np.arange(len(results)), lengths), np.concatenate([np.arange(n) for n in lengths])]
    columns += list(np.concatenate([padded(picks) for picks in results]).T)
    arrays = [pa.array(values, type=field.type) for values, field in zip(columns, COLUMNS, strict=True)]
    with replacing(path) as scratch:
        pq.write_table(pa.Table.from_arrays(arrays, schema=COLUMNS), scratch, compression="zstd", compression_level=19)


def read_picks(path: Path, data: bytes, labels: Sequence[str]) -> tuple[Ints, ...]:
    """Picks int64 [P, 8] of each result named in ``labels``, from the bytes of the file at ``path``.

    Raises:
        SubmissionError: not readable, other columns, too many rows, rows missing or out of order, or picks that are
            no ranking (twice the same, a hole, below -1).
    """
    rows = _rows(path, data)
    result = rows["result"].to_numpy().astype(np.int64)
    if len(result) and not 0 <= result.min() <= result.max() < len(labels):
        raise SubmissionError(f"{path}: column result must lie in 0..{len(labels) - 1}, the results of the JSON")
    counts = np.bincount(result, minlength=len(labels))
    problem = np.concatenate([np.arange(n) for n in counts])
    expected = (("result", np.repeat(np.arange(len(labels)), counts)), ("problem", problem))
    for name, values in expected:
        wrong = np.flatnonzero(rows[name].to_numpy() != values)
        if len(wrong):
            raise SubmissionError(
                f"{path}: row {wrong[0]} should have {name} {values[wrong[0]]}; "
                "rows go by result, then problem from 0 without a gap"
            )
    ranked = np.stack([rows[name].to_numpy().astype(np.int64) for name in PICK_COLUMNS], axis=1)
    row, fault = _fault(ranked)
    if fault:
        raise SubmissionError(f"{path}: {labels[result[row]]} problem {problem[row]} {fault}; rank each template once")
    return tuple(np.split(ranked, np.cumsum(counts)[:-1]))


def _rows(path: Path, data: bytes) -> pa.Table:
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        groups = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        if not file.schema_arrow.equals(COLUMNS):
            raise SubmissionError(f"{path}: columns are not {', '.join(COLUMNS.names)} with their types, none nullable")
        if max(sum(groups), file.metadata.num_rows) > MAX_ROWS:
            raise SubmissionError(f"{path}: holds more than {MAX_ROWS} rows; split the submission by spec")
        return file.read()
    except (pa.ArrowException, OSError, ValueError) as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise SubmissionError(f"{path}: not a readable Parquet file ({line}); write it again") from None


def _fault(picks: Ints) -> tuple[int, str]:
    """The first row that is no ranking, and why; an empty reason if all are."""
    ordered = np.sort(picks, axis=1)
    faults = {
        "has a pick below -1": (picks < -1).any(axis=1),
        "has a -1 before a valid pick": ((picks[:, :-1] < 0) & (picks[:, 1:] >= 0)).any(axis=1),
        "picks one template twice": ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(axis=1),
    }
    return next(((int(rows.argmax()), fault) for fault, rows in faults.items() if rows.any()), (0, ""))
