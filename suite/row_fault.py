"""Candidates and rows that no measurement gives: the checks that a recording must pass whoever made it."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tilearena.records import K_ALIGNMENT, LABELS, MAX_EXTENT, N_ALIGNMENT, BitOp, Dtype, Protocol, Status, Template
from tilearena.rows import PIECE, has_status, problems_of

#: The most samples that a row can have: 64 of the screen and 64 of each final, see `tilearena.records.Protocol`.
MAX_SAMPLES = 192
#: More than any extent of a tile, in elements.
MAX_TILE = 1 << 13


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
        if template is not None and not _has_shape(template):
            return f"candidate {i} is a template of a shape that no kernel has"
        if origin == "control" and template != candidates[default][1]:
            return f"candidate {i} is a control, but not of the default"
    return None


def _has_shape(template: Template) -> bool:
    """Whether every extent is one that a tile can have, and the threadblock's tile has room for a warp's."""
    extents = (*template.threadblock, *template.warp, *template.instruction, *template.cluster)
    return all(0 < extent < MAX_TILE for extent in extents) and template.warps > 0


def sample_counts(protocol: Protocol, origins: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Which numbers of samples (columns, 0 to `MAX_SAMPLES` + 1) rows of a candidate may have, see `tilearena.race`."""
    screen, rounds, reference = protocol.screen_rounds, protocol.rounds, protocol.reference_rounds
    one_final = [reference, rounds] if screen else [rounds]
    two_finals = {0, *one_final, *(a + b for a in one_final for b in one_final)} if screen else set(one_final)
    allowed = np.zeros((len(origins), MAX_SAMPLES + 2), dtype=np.bool_)
    for i, origin in enumerate(origins):
        if origin == "template":
            allowed[i, [screen + fresh for fresh in two_finals]] = True
        else:
            allowed[i, [reference, 2 * reference] if screen else [rounds]] = True
    return allowed


def row_fault(rows: pa.Table, dtype: Dtype, protocol: Protocol, origins: Sequence[str]) -> str | None:
    """Why ``rows`` cannot be measurements of candidates of ``origins`` under ``protocol``; None if they can."""
    n_candidates = len(origins)
    if len(rows) == 0:
        return "holds no rows"
    candidate = rows["candidate"].to_numpy()
    if candidate.min() < 0 or candidate.max() >= n_candidates:
        return "a row names a candidate that the header does not list"
    allowed = sample_counts(protocol, origins)
    first = 0
    for piece in rows.to_batches(max_chunksize=PIECE):
        if fault := _piece_fault(piece, first, dtype, protocol, allowed):
            return fault
        first += len(piece)
    problems, problem = problems_of(rows)
    # the counts take no more room than the rows, since there is one for each
    if len(rows) != len(problems) * n_candidates or np.bincount(problem * n_candidates + candidate).max() > 1:
        return "some problem does not have exactly one row for each candidate"
    return None


def label_fault(rows: pa.Table, *, labels: bool) -> str | None:
    """Why ``rows``, which have no other fault, are no labels, or are some though they must not be; None if neither.

    Of labels each problem has one best template.
    """
    if (has_status(rows, *LABELS) != labels).any():
        return f"some row has {'no' if labels else 'a'} status of labels, though its origin says otherwise"
    if labels:
        problems, problem = problems_of(rows)
        if (np.bincount(problem[has_status(rows, Status.BEST)], minlength=len(problems)) != 1).any():
            return "some problem does not have exactly one best template"
    return None


def _piece_fault(
    piece: pa.RecordBatch, first: int, dtype: Dtype, protocol: Protocol, allowed: npt.NDArray[np.bool_]
) -> str | None:
    """As `row_fault`, of rows by themselves; ``first`` is the number of the first, ``allowed`` of `sample_counts`."""
    m, n, k = (piece[axis].to_numpy().astype(np.int64) for axis in "mnk")
    candidate, launches = piece["candidate"].to_numpy(), piece["launches"].to_numpy()
    samples = piece["elapsed_ns"]
    lengths = np.diff(samples.offsets.to_numpy())
    statuses, status = piece["status"].dictionary.to_pylist(), piece["status"].indices.to_numpy()
    reasons, reason = piece["reason"].dictionary.to_pylist(), piece["reason"].indices.to_numpy()
    ok = np.isin(statuses, [Status.OK])[status]
    explained = np.array([text != "" for text in reasons], dtype=np.bool_)[reason]
    faults = {
        "has an unknown status": ~np.isin(statuses, list(Status))[status],
        "has an m, n or k that no problem has": (np.minimum(np.minimum(m, n), k) < 1)
        | (np.maximum(np.maximum(m, n), k) > MAX_EXTENT)
        | (n % N_ALIGNMENT != 0)
        | (k % K_ALIGNMENT[dtype] != 0),
        "has a status that contradicts its samples": ok != (lengths > 0),
        "has a reason that contradicts its status": explained == np.isin(statuses, [Status.OK, *LABELS])[status],
        "has a number of samples that its protocol does not take": ok
        & ~allowed[candidate, np.minimum(lengths, MAX_SAMPLES + 1)],
        "has a number of launches that contradicts its status or protocol": (launches < ok)
        | (~ok & (launches != 0))
        | (launches > (1 if protocol.name == "cold" else protocol.hot_max_launches)),
    }
    for fault, where in faults.items():
        if where.any():
            return f"row {first + int(np.flatnonzero(where)[0])} {fault}"
    if samples.flatten().to_numpy().min(initial=1) < 1:
        return "a sample is not a positive time"
    return None
