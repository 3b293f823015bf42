"""One template for every problem: the best single one of the training part. What does not beat it is a toy."""

import numpy as np

from tilearena.plugins import require_same_templates
from tilearena.score import constant_costs
from tilearena.table import Floats, Ints, Table, Task


class Constant:
    """Ranks all templates by their geometric-mean slowdown over the training problems."""

    name = "constant"
    version = "1"

    def fit(self, train: Table, seed: int) -> None:
        """Average log(t / fastest) of each template.

        Raises:
            RecordingError: no training problem has a time.
        """
        self._task, self._costs = train.task, constant_costs(train)

    def costs(self, problems: Ints, task: Task) -> Floats:
        """Float64 [P, T]: the same row for every problem."""
        require_same_templates(self.name, self._task, task)
        return np.tile(self._costs, (len(problems), 1))
