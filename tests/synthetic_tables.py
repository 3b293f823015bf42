"""Tables of an analytic model to fit on and to test on, and how well a predictor does there; nothing measured."""

import numpy as np

from tilearena.figures import log_slowdown
from tilearena.plugins import Predictor, load
from tilearena.synthetic import synthetic_table
from tilearena.table import Table

TABLE = synthetic_table(600)
TRAIN, TEST = TABLE.take(np.arange(480)), TABLE.take(np.arange(480, 600))


def mean_regret(costs: np.ndarray, table: Table) -> float:
    """Of the first pick; a failed one counts as the slowest that worked."""
    slowdown = np.exp(log_slowdown(table.time_ns))
    return float((slowdown[np.arange(len(costs)), costs.argmin(axis=1)] - 1).mean())


def fitted(name: str, train: Table, seed: int = 0) -> Predictor:
    predictor = load(name)
    predictor.fit(train, seed)
    return predictor
