"""Look up the most similar training problem. What a table of measurements gives without any model."""

import numpy as np
from scipy.spatial import cKDTree

from tilearena.dataset import Floats, Ints, Table, Task
from tilearena.figures import log_slowdown, measured
from tilearena.plugins import Declined


class Nearest:
    """1-nearest neighbour in (log2 m, log2 n, log2 k)."""

    name = "nearest"
    version = "1"

    def fit(self, train: Table, seed: int) -> None:
        """Index the training problems.

        Raises:
            Declined: no training problem has a time; or only best templates are known, so that there is no second pick.
        """
        if train.task.labels_only:
            raise Declined("nearest needs times: a label names no second template")
        train = train.take(measured(train))
        if not len(train.problems):
            raise Declined("nearest needs at least one measured training problem")
        self._slowdown = log_slowdown(train.time_ns)
        self._tree = cKDTree(np.log2(train.problems))

    def costs(self, problems: Ints, task: Task) -> Floats:
        """Float64 [P, T]: log(t / fastest) of each template on the neighbour."""
        _, neighbour = self._tree.query(np.log2(problems))
        return self._slowdown[neighbour]
