"""Candidates and rows that no measurement gives: the checks that a recording must pass whoever made it."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tilearena.records import K_ALIGNMENT, MAX_EXTENT, N_ALIGNMENT, BitOp, Dtype, Protocol, Status, Template


def candidate_fault(
    candidates: Sequence[tuple[str, Template | None]], default: int, dtype: Dtype, bit_op: BitOp | None
) -> str | None:
    """Why no recording of ``dtype`` can have these ``candidates`` (origin, template); None if one can."""
    count = sum(origin == "template" for origin, _ in candidates)
    if any(origin != "template" for origin, _ in candidates[:count]):
        return "a template comes after a control or a vendor's kernel"
    if not 0 <= default < count:
        return f"its default is {default}, but it has {count} templates"
    for i, (origin, template) in enumerate(candidates):
        if origin != "vendor" and (template is None or (template.dtype, template.bit_op) != (dtype, bit_op)):
            return f"candidate {i} is no template of {dtype}"
    return None


def row_fault(rows: pa.Table, dtype: Dtype, protocol: Protocol, n_candidates: int) -> str | None:
    """Why ``rows`` cannot be measurements of ``n_candidates`` under ``protocol``, in one sentence; None if they can."""
    if len(rows) == 0:
        return "holds no rows"
    candidate, launches = rows["candidate"].to_numpy(), rows["launches"].to_numpy()
    m, n, k = (rows[axis].to_numpy().astype(np.int64) for axis in "mnk")
    if candidate.min() < 0 or candidate.max() >= n_candidates:
        return "a row names a candidate that the header does not list"
    samples = rows["elapsed_ns"].combine_chunks()
    lengths = np.diff(samples.offsets.to_numpy())
    ok = np.array(rows["status"].to_pylist()) == Status.OK
    faults = {
        "has an m, n or k that no problem has": (np.minimum(np.minimum(m, n), k) < 1)
        | (np.maximum(np.maximum(m, n), k) > MAX_EXTENT)
        | (n % N_ALIGNMENT != 0)
        | (k % K_ALIGNMENT[dtype] != 0),
        "has a status that contradicts its samples": ok != (lengths > 0),
        f"does not have {protocol.rounds} samples": ok & (lengths != protocol.rounds),
        "has a number of launches that contradicts its status or protocol": (launches < ok)
        | (~ok & (launches != 0))
        | (launches > (1 if protocol.name == "cold" else protocol.hot_max_launches)),
    }
    for fault, where in faults.items():
        if where.any():
            return f"row {int(np.flatnonzero(where)[0])} {fault}"
    if samples.flatten().to_numpy().min(initial=1) < 1:
        return "a sample is not a positive time"
    rows_of, counts = np.unique(np.stack([m, n, k, candidate], axis=1), axis=0, return_counts=True)
    if counts.max() > 1 or len(rows_of) != len(np.unique(rows_of[:, :3], axis=0)) * n_candidates:
        return "some problem does not have exactly one row for each candidate"
    return None
