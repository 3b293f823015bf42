"""Look up the most similar training problem. What a table of measurements gives without any model."""

import numpy as np
from scipy.spatial import cKDTree

from tilearena.dataset import Floats, Ints, Table, Task
from tilearena.plugins import Declined
from tilearena.predictors.features import log_slowdown


class Nearest:
    """1-nearest neighbour in (log2 m, log2 n, log2 k)."""

    name = "nearest"
    version = "1"

    def fit(self, train: Table, seed: int) -> None:
        """Index the training problems.

        Raises:
            Declined: no training problem has a time.
        """
        measured = np.isfinite(train.time_ns).any(axis=1)
        if not measured.any():
            raise Declined("nearest needs at least one measured training problem")
        self._slowdown = log_slowdown(train.time_ns[measured])
        self._tree = cKDTree(np.log2(train.problems[measured]))

    def costs(self, problems: Ints, task: Task) -> Floats:
        """Float64 [P, T]: log(t / fastest) of each template on the neighbour."""
        _, neighbour = self._tree.query(np.log2(problems))
        return self._slowdown[neighbour]
