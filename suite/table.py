"""What predictors learn from and what scores are of: problems, and how long every template takes on each of them."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tilearena.records import BitOp, Device, Dtype, Op, ProtocolName, Template

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Task:
    """All that a predictor may know besides the problems.

    ``labels_only``: no time is known, only which template is the best on each problem.
    """

    op: Op
    dtype: Dtype
    bit_op: BitOp | None
    space: str
    templates: tuple[Template, ...]
    default: int
    device: Device
    protocol: ProtocolName
    labels_only: bool = False


@dataclass(frozen=True)
class Table:
    """Median times of every template on every problem.

    ``problems`` is int64 [P, 3] (m, n, k); ``time_ns`` is float64 [P, T] for one launch, inf where the template failed.
    Where the task is ``labels_only``, it is no time but an order: 1 for the best template and 2 for any other.
    ``others`` are tables of further devices, with the same templates and problems of their own; they have no others.
    """

    task: Task
    problems: Ints
    time_ns: Floats
    others: tuple["Table", ...] = ()

    @property
    def tables(self) -> tuple["Table", ...]:
        """This one and the ``others``."""
        return (self, *self.others)

    def take(self, rows: npt.NDArray[np.integer[Any]] | npt.NDArray[np.bool_]) -> Self:
        """The same table on some of its problems; the ``others`` stay as they are."""
        return replace(self, problems=self.problems[rows], time_ns=self.time_ns[rows])
