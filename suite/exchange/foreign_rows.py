"""What a foreign file says about one data type, and how that becomes the rows of a recording."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from pydantic import ValidationError

from tilearena.dataset import COLUMNS
from tilearena.errors import RecordingError
from tilearena.exchange.foreign_csv import MalformedRowError
from tilearena.records import BitOp, Dtype, Problem, Template

#: Rows of a recording: every problem has one for each candidate. What a candidate is numbered with has 16 bits.
MAX_CELLS, MAX_CANDIDATES = 1 << 22, (1 << 15) - 1


@dataclass(frozen=True)
class Content:
    """One recording's worth: problems in order of appearance, templates in order, and their rows."""

    dtype: Dtype
    bit_op: BitOp | None
    space: str
    space_fingerprint: str
    problems: tuple[Problem, ...]
    templates: tuple[Template, ...]
    default: int
    rows: pa.Table


@lru_cache(maxsize=1 << 16)
def problem_of(dtype: Dtype, bit_op: BitOp | None, m: int, n: int, k: int) -> Problem:
    """The problem; one that was asked for before is the same object.

    Raises:
        MalformedRowError: no such problem is possible.
    """
    try:
        return Problem(dtype=dtype, bit_op=bit_op, m=m, n=n, k=k)
    except ValidationError as error:
        first = error.errors()[0]
        key = "".join(f"{name}: " for name in first["loc"])
        raise MalformedRowError(f"{m} x {n} x {k} ({dtype}) is no problem: {key}{first['msg']}") from None


def require_size(path: object, n_problems: int, n_candidates: int) -> None:
    """Refuse what would make a recording of too many rows, most of which are not in the file.

    Raises:
        RecordingError: it would; names ``path``.
    """
    if n_problems * n_candidates > MAX_CELLS or n_candidates > MAX_CANDIDATES:
        raise RecordingError(
            f"{path}: {n_problems} problems with {n_candidates} templates are more than {MAX_CELLS} rows; split it by "
            "problems"
        )


def grid_rows(
    problems: Sequence[Problem],
    n_candidates: int,
    statuses: Sequence[str],
    elapsed_ns: Sequence[int],
    reasons: Sequence[str],
) -> pa.Table:
    """The rows of a recording of P problems and C candidates, in the order of both.

    Args:
        problems: P of them.
        n_candidates: C.
        statuses: P * C of them.
        elapsed_ns: the one sample of a row, of one launch; 0 where there is none.
        reasons: empty where there is none.
    """
    shapes = np.array([(p.m, p.n, p.k) for p in problems], dtype=np.int32).repeat(n_candidates, axis=0)
    time_ns = np.array(elapsed_ns, dtype=np.int64)
    timed = time_ns > 0
    offsets = np.concatenate([[0], np.cumsum(timed)]).astype(np.int32)
    columns = {
        **dict(zip("mnk", shapes.T, strict=True)),
        "candidate": np.tile(np.arange(n_candidates, dtype=np.int16), len(problems)),
        "status": statuses,
        "launches": timed.astype(np.int16),
        "elapsed_ns": pa.ListArray.from_arrays(offsets, time_ns[timed]),
        "reason": reasons,
    }
    return pa.Table.from_pydict(columns, schema=COLUMNS)
