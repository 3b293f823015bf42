"""Look up the most similar training problem. What a table of measurements gives without any model."""

import numpy as np
from scipy.spatial import cKDTree

from tilearena.figures import log_slowdown, measured
from tilearena.plugins import Declined, require_same_templates
from tilearena.table import Floats, Ints, Table, Task


class Nearest:
    """1-nearest neighbour in (log2 m, log2 n, log2 k)."""

    name = "nearest"
    version = "1"

    def fit(self, train: Table, seed: int) -> None:
        """Index the training problems.

        Raises:
            Declined: no training problem has a time.
        """
        self._task, train = train.task, train.take(measured(train))
        if not len(train.problems):
            raise Declined("nearest needs at least one measured training problem")
        self._slowdown = log_slowdown(train.time_ns)
        places = np.log2(train.problems)
        self._tree = cKDTree(places)
        # a label tells the best template alone, so its neighbours say what comes next: each template's nearest win
        wins = [places[train.time_ns[:, t] == 1] for t in range(train.time_ns.shape[1])]
        self._wins = [cKDTree(won) if len(won) else None for won in wins] if train.task.labels_only else None

    def costs(self, problems: Ints, task: Task) -> Floats:
        """Float64 [P, T]: log(t / fastest) of each template on the neighbour.

        With labels the distance to the nearest problem that the template is best on.
        """
        require_same_templates(self.name, self._task, task)
        if self._wins is not None:
            far = np.full(len(problems), np.inf)
            return np.stack([tree.query(np.log2(problems))[0] if tree else far for tree in self._wins], axis=1)
        _, neighbour = self._tree.query(np.log2(problems))
        return self._slowdown[neighbour]
