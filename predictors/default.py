"""CUTLASS's own choice: the default template, whatever the problem. Speedups are against it."""

import numpy as np

from tilearena.table import Floats, Ints, Table, Task


class DefaultTemplate:
    """Always the space's default template."""

    name = "default"
    version = "1"

    def fit(self, train: Table, seed: int) -> None:
        """Nothing to learn."""

    def costs(self, problems: Ints, task: Task) -> Floats:
        """Float64 [P, T]: 0 for the default template, 1 for the others."""
        costs = np.ones((len(problems), len(task.templates)))
        costs[:, task.default] = 0.0
        return costs
