"""What follows from the rows of a recording alone: times, and a fingerprint of their content."""

import hashlib
import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def median_time_ns(rows: pa.Table, screens: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Median time per launch of each row, inf where there is none.

    A contender's is of its fresh samples alone: those of the screen made it a contender, so they are biased.

    Args:
        rows: of a recording, R of them.
        screens: number of screen samples [C] of each candidate.
    """
    samples = rows["elapsed_ns"].combine_chunks()
    lengths = np.diff(samples.offsets.to_numpy())
    screen = screens[rows["candidate"].to_numpy()]
    skipped = np.where(lengths > screen, screen, 0)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]) + skipped
    counts = lengths - skipped
    flat = samples.flatten().to_numpy().astype(np.float64)
    launches = np.maximum(rows["launches"].to_numpy(), 1)
    out = np.full(len(rows), np.inf)
    for count in np.unique(counts[counts > 0]):
        which = np.flatnonzero(counts == count)
        out[which] = np.median(flat[starts[which][:, None] + np.arange(count)], axis=1) / launches[which]
    return out


def content_fingerprint(header: dict[str, Any], rows: pa.Table) -> str:
    """16 hex digits of SHA-256 over the header (JSON, its fingerprint left out) and the values of all rows.

    Independent of encoding, chunking and the order of keys.
    """
    rest = {key: value for key, value in header.items() if key != "fingerprint"}
    digest = hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode())
    for axis in ("m", "n", "k", "candidate", "launches"):
        digest.update(rows[axis].to_numpy().astype("<i8").tobytes())
    samples = rows["elapsed_ns"].combine_chunks()
    digest.update(np.diff(samples.offsets.to_numpy()).astype("<i8").tobytes())
    digest.update(samples.flatten().to_numpy().astype("<i8").tobytes())
    for column in ("status", "reason"):
        digest.update(json.dumps(rows[column].to_pylist()).encode())
    return digest.hexdigest()[:16]
