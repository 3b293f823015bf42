"""Gradient-boosted trees (LightGBM) that regress the slowdown of each template from what it does to the problem.

The target is the square root of log(t / fastest): it spreads out the templates near the best, where the choice is made.
"""

import lightgbm as lgb
import numpy as np

from tilearena.dataset import Floats, Ints, Table, Task
from tilearena.figures import log_slowdown, measured
from tilearena.plugins import Declined
from tilearena.predictors.features import features

MIN_PROBLEMS = 10
PARAMETERS = {
    "objective": "l2",
    "learning_rate": 0.1,
    "num_leaves": 31,
    "min_data_in_leaf": 10,
    "feature_fraction": 0.7,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "max_bin": 127,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}
MAX_TREES, PATIENCE, HELD_OUT = 500, 30, 0.2


class Gbdt:
    """The number of trees is chosen on a fifth of the training problems, then all of them are fitted again."""

    name = "gbdt"
    version = "1"

    def fit(self, train: Table, seed: int) -> None:
        """Boost on rows (problem, template).

        Raises:
            Declined: fewer than 10 measured problems.
        """
        train = train.take(measured(train))
        n_problems = len(train.problems)
        if n_problems < MIN_PROBLEMS:
            raise Declined(f"gbdt needs at least {MIN_PROBLEMS} measured training problems and got {n_problems}")
        x = features(train.problems, train.task)
        y = np.sqrt(log_slowdown(train.time_ns))
        held_out = np.random.default_rng(seed).permutation(n_problems) < HELD_OUT * n_problems
        parameters = PARAMETERS | {"seed": seed}
        early = lgb.train(
            parameters,
            _rows(x[~held_out], y[~held_out]),
            MAX_TREES,
            valid_sets=[_rows(x[held_out], y[held_out])],
            callbacks=[lgb.early_stopping(PATIENCE, verbose=False)],
        )
        self._trees = lgb.train(parameters, _rows(x, y), max(1, early.best_iteration))

    def costs(self, problems: Ints, task: Task) -> Floats:
        """Float64 [P, T]: predicted square root of log(t / fastest)."""
        x = features(problems, task)
        predicted = self._trees.predict(x.reshape(-1, x.shape[-1]), num_threads=1)
        return np.asarray(predicted, dtype=np.float64).reshape(x.shape[:2])


def _rows(x: np.ndarray, y: Floats) -> lgb.Dataset:
    """[P, T, F] features and [P, T] targets as P * T rows; problems stay whole, so held-out shapes are unseen ones."""
    return lgb.Dataset(x.reshape(-1, x.shape[-1]), y.reshape(-1), free_raw_data=True)
