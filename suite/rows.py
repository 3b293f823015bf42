"""What follows from the rows of a recording alone: problems, times, and a fingerprint of their content.

Rows are taken in pieces where a result in between would be as large as all samples.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tilearena.records import Status

#: Rows that are looked at in one go.
PIECE = 1 << 18
#: Bits of one extent in a shape's code: extents are at most 2^20, so three of them fit in an int64.
_EXTENT_BITS = 21


def problems_of(rows: pa.Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Problems [P, 3] in order of appearance, and which of them each of the R rows is of [R].

    Extents must lie in 0..2^21 - 1.
    """
    codes = np.zeros(len(rows), dtype=np.int64)
    for axis in "mnk":
        codes = (codes << _EXTENT_BITS) | rows[axis].to_numpy()
    encoded = pa.array(codes).dictionary_encode()  # by hashing: linear, and in order of appearance
    code = encoded.dictionary.to_numpy()
    extents = [code >> shift & (1 << _EXTENT_BITS) - 1 for shift in (2 * _EXTENT_BITS, _EXTENT_BITS, 0)]
    return np.stack(extents, axis=1), encoded.indices.to_numpy().astype(np.int64)


def median_time_ns(rows: pa.Table, screens: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Median time per launch of each row, inf where there is none.

    A contender's is of its fresh samples alone: those of the screen made it a contender, so they are biased.

    Args:
        rows: of a recording, R of them.
        screens: number of screen samples [C] of each candidate.
    """
    medians = [_median_time_ns(piece, screens) for piece in rows.to_batches(max_chunksize=PIECE)]
    return np.concatenate([np.zeros(0), *medians])


def _median_time_ns(piece: pa.RecordBatch, screens: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    samples = piece["elapsed_ns"]
    lengths = np.diff(samples.offsets.to_numpy())
    screen = screens[piece["candidate"].to_numpy()]
    skipped = np.where(lengths > screen, screen, 0)
    starts = np.cumsum(lengths) - lengths + skipped
    counts = lengths - skipped
    flat = samples.flatten().to_numpy().astype(np.float64)
    launches = np.maximum(piece["launches"].to_numpy(), 1)
    out = np.full(len(piece), np.inf)
    for count in np.unique(counts[counts > 0]):
        which = np.flatnonzero(counts == count)
        out[which] = np.median(flat[starts[which][:, None] + np.arange(count)], axis=1) / launches[which]
    return out


def has_status(rows: pa.Table, *statuses: Status) -> npt.NDArray[np.bool_]:
    """Whether each of the R rows has one of ``statuses`` [R]."""
    chunks = rows["status"].chunks
    found = [np.isin(chunk.dictionary.to_pylist(), statuses)[chunk.indices.to_numpy()] for chunk in chunks]
    return np.concatenate([np.zeros(0, dtype=np.bool_), *found])


def label_order(rows: pa.Table) -> npt.NDArray[np.float64]:
    """1 for the best template of a problem and 2 for any other, float64 [R]: an order, not times.

    Args:
        rows: of a recording of labels, R of them.
    """
    return np.where(has_status(rows, Status.BEST), 1.0, 2.0)


def content_fingerprint(header: dict[str, Any], rows: pa.Table) -> str:
    """16 hex digits of SHA-256 over the header (JSON, its fingerprint left out) and the values of all rows.

    Independent of encoding, chunking and the order of keys.
    """
    rest = {key: value for key, value in header.items() if key != "fingerprint"}
    digest = hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode())
    for axis in ("m", "n", "k", "candidate", "launches"):
        for chunk in rows[axis].chunks:
            digest.update(_bytes(chunk.to_numpy()))
    samples = rows["elapsed_ns"].chunks
    for chunk in samples:
        digest.update(_bytes(np.diff(chunk.offsets.to_numpy())))
    for chunk in samples:
        digest.update(_bytes(chunk.flatten().to_numpy()))
    for column in ("status", "reason"):
        for text in _json_list(rows[column]):
            digest.update(text.encode())
    return digest.hexdigest()[:16]


def _bytes(values: npt.NDArray[np.integer[Any]]) -> memoryview:
    """Whole numbers as they are in the digest, without a copy where they are so already."""
    return values.astype("<i8", copy=False).data


def _json_list(column: pa.ChunkedArray) -> Iterator[str]:
    """JSON of a list of all values of a dictionary-encoded column, in pieces."""
    yield "["
    between = ""
    for chunk in column.chunks:
        texts = np.array([json.dumps(value) for value in chunk.dictionary.to_pylist()], dtype=object)
        codes = chunk.indices.to_numpy()
        for start in range(0, len(codes), PIECE):
            yield between + ", ".join(texts[codes[start : start + PIECE]])
            between = ", "
    yield "]"
