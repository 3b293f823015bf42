"""Looks each template up among training problems that fill the GPU alike.

Threadblocks run in waves, one on each SM; the last wave is seldom full, so two problems of nearly the same size may
differ by a whole wave. A template's neighbours are therefore sought not among M, N and K alone, but also by the number
of waves that this template takes, and by how full they are.
"""

import numpy as np
from scipy.spatial import cKDTree

from tilearena.figures import log_slowdown, measured
from tilearena.plugins import Declined

NEIGHBOURS, NEAR = 6, 0.05
#: How much the log of the waves and their fill count beside the logs of M, N and K; a guess that was not tuned.
WAVES, FILL = 2.0, 4.0


def places(problems, template, device):
    """Where problems [P, 3] lie for one template: float64 [P, 5]."""
    tiles = np.ceil(problems[:, :2] / template.threadblock[:2]).prod(axis=1)
    waves = np.ceil(tiles / device.sm_count)
    fill = tiles / device.sm_count / waves
    return np.column_stack([np.log2(problems), WAVES * np.log2(waves), FILL * fill])


class Waves:
    """Mean slowdown of the six nearest problems, the nearer the heavier; one index for each template."""

    name = "waves"
    version = "1"

    def fit(self, train, seed):
        """Index the training problems on which anything worked."""
        train = train.take(measured(train))
        if not len(train.problems):
            raise Declined("waves needs at least one measured training problem")
        self.templates = train.task.templates
        self.slowdown = log_slowdown(train.time_ns)
        self.trees = [cKDTree(places(train.problems, t, train.task.device)) for t in self.templates]

    def costs(self, problems, task):
        """Log slowdown that is expected of each template: float64 [P, T]."""
        if task.templates != self.templates:
            raise Declined("waves ranks only the templates that it was trained on")
        nearest = range(1, min(NEIGHBOURS, len(self.slowdown)) + 1)
        costs = np.empty((len(problems), len(self.templates)))
        for t, (template, tree) in enumerate(zip(self.templates, self.trees, strict=True)):
            distance, rows = tree.query(places(problems, template, task.device), nearest)
            costs[:, t] = np.average(self.slowdown[rows, t], axis=1, weights=(distance + NEAR) ** -2)
        return costs
