"""The bound: ranks by the measured times themselves. No predictor can do better on the recording it is judged by."""

import numpy as np

from tilearena.figures import log_slowdown, measured
from tilearena.plugins import Declined, require_same_templates
from tilearena.table import Floats, Ints, Table, Task


class Oracle:
    """The one baseline that is fitted on the tested problems as well; ``privileged`` asks the runner for that."""

    name = "oracle"
    version = "1"
    privileged = True

    def fit(self, train: Table, seed: int) -> None:
        """Remember every problem; templates tie where none worked."""
        self._task, rows = train.task, measured(train)
        # failed templates go last: one e-fold behind the slowest that worked
        self._costs = (~np.isfinite(train.time_ns)).astype(np.float64)
        self._costs[rows] += log_slowdown(train.time_ns[rows])
        self._row = {tuple(shape): row for row, shape in enumerate(train.problems.tolist())}

    def costs(self, problems: Ints, task: Task) -> Floats:
        """Float64 [P, T]: log(t / fastest) as measured.

        Raises:
            Declined: a problem is not among those that it was given.
        """
        require_same_templates(self.name, self._task, task)
        try:
            rows = [self._row[tuple(shape)] for shape in problems.tolist()]
        except KeyError as missing:
            raise Declined(f"oracle has no measured times of the problem (m, n, k) = {missing.args[0]}") from None
        return self._costs[rows]
