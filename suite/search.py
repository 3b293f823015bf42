"""What a tuner reaches with k measurements of a problem, without a model: at random, by Optuna, or with a fixed set.

Every strategy measures different templates one after the other and keeps the fastest so far. A template that fails
costs its measurement as any other. Where none that was measured ran, the slowest feasible template counts, as
everywhere (`tilearena.figures.picked`).
"""

from collections.abc import Callable, Sequence

import numpy as np

from tilearena.figures import log_slowdown, measured, picked
from tilearena.predict import Fold
from tilearena.search_space import Points
from tilearena.table import Floats, Ints, Table

#: Of Optuna's first trials so many are drawn at random (the default of its TPESampler), in a small space fewer: at
#: most this part of it, or nothing would be left to learn for.
STARTUP_TRIALS, STARTUP_PART = 10, 4


#: Called with the number of studies that are done and that of all.
Reached = Callable[[int, int], None]


def counts(n_templates: int, most: int | None = None) -> tuple[int, ...]:
    """Numbers of measurements to look at: 1, 2, 4, ... and ``n_templates`` itself, none above ``most``."""
    most = n_templates if most is None else min(most, n_templates)
    powers = [1 << i for i in range(most.bit_length())]
    return tuple(sorted({*powers, most}))


def kept(reward_ns: Floats, picks: Ints) -> Ints:
    """The template [P, K] that is kept after each measurement: the first of the fastest so far, -1 where none ran.

    Args:
        reward_ns: what the tuner sees, float64 [P, T], inf where a template failed.
        picks: int [P, K], templates in the order in which they are measured, -1 where there is none.
    """
    seen = np.where(picks < 0, np.inf, np.take_along_axis(reward_ns, picks, axis=1))
    before = np.minimum.accumulate(np.pad(seen, ((0, 0), (1, 0)), constant_values=np.inf), axis=1)[:, :-1]
    last = np.maximum.accumulate(np.where(seen < before, np.arange(picks.shape[1]), -1), axis=1)
    return np.where(last < 0, -1, np.take_along_axis(picks, last, axis=1))


def regret(table: Table, chosen: Ints) -> Floats:
    """Regret [P, K] of the templates ``chosen`` [P, K], each problem measured; -1 or a failed one is the slowest."""
    time_ns, _ = picked(table.time_ns, chosen)
    lost: Floats = time_ns / table.time_ns.min(axis=1, keepdims=True) - 1
    return lost


def random_regret(table: Table, reward_ns: Floats, ks: Sequence[int]) -> Floats:
    """Expected regret [P, len(ks)] of the best of k templates drawn without replacement, exactly.

    The i-th fastest of T (from 0) is the fastest of k drawn ones with probability C(T-i-1, k-1) / C(T, k). Source:
    David and Nagaraja, Order Statistics, 3rd edition, 2003, section 3.7. Templates of equal reward are kept equally
    often.
    """
    order = np.argsort(reward_ns, axis=1, kind="stable")
    reward = np.take_along_axis(reward_ns, order, axis=1)
    lost = _mean_of_ties(reward, regret(table, np.where(np.isfinite(reward), order, -1)))
    n_templates = reward_ns.shape[1]
    return np.stack([lost @ _first_of(n_templates, k) for k in ks], axis=1)


def _first_of(n_templates: int, k: int) -> Floats:
    """Probability [T] that the i-th in order is the first of k that are drawn without replacement."""
    i = np.arange(n_templates - 1)
    step = np.maximum(n_templates - i - k, 0) / (n_templates - i - 1)
    return k / n_templates * np.concatenate([[1.0], np.cumprod(step)])


def _mean_of_ties(ordered: Floats, values: Floats) -> Floats:
    """``values`` [P, T], averaged over equal neighbours in a row of ``ordered`` [P, T]."""
    first = np.ones(ordered.shape, dtype=np.bool_)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    tie = np.cumsum(first.ravel()) - 1
    mean: Floats = (np.bincount(tie, values.ravel()) / np.bincount(tie))[tie].reshape(values.shape)
    return mean


def constant_set(train: Table, depth: int) -> Ints:
    """Templates [depth] in the order of greedy forward selection on ``train``: each lowers the mean loss the most.

    The loss of a set on a problem is log(t / t(best)) of its fastest, a failed template being the slowest feasible; so
    the first is the best constant template (`tilearena.score.constant_pick`). Equal templates go in space order.
    """
    loss = log_slowdown(train.time_ns[measured(train)])
    reached = np.full((len(loss), 1), np.inf)
    chosen: list[int] = []
    for _ in range(min(depth, loss.shape[1])):
        means = np.minimum(loss, reached).mean(axis=0)
        means[chosen] = np.inf
        chosen.append(int(means.argmin()))
        reached = np.minimum(reached, loss[:, chosen[-1:]])
    return np.array(chosen, dtype=np.int64)


def constant_picks(folds: Sequence[Fold], n_problems: int, depth: int) -> Ints:
    """`constant_set` of each fold's training part for its test rows, int64 [P, depth]; -1 in no fold."""
    picks = np.full((n_problems, depth), -1, dtype=np.int64)
    for fold in folds:
        picks[np.asarray(fold.test_rows)] = constant_set(fold.train, depth)
    return picks


def tpe_picks(
    table: Table,
    reward_ns: Floats,
    n_trials: int,
    seed: Sequence[int],
    reached: Reached = lambda done, total: None,
) -> Ints:
    """What Optuna's TPESampler measures on each problem, int64 [P, min(n_trials, T)], best or not, in its order.

    A study's seed is of ``seed`` and the shape, so that problems do not all begin with the same templates.

    Raises:
        PredictorError: Optuna is not installed.
    """
    points = Points.of(table.task.templates)
    startup = max(1, min(STARTUP_TRIALS, len(points.codes) // STARTUP_PART))
    picks = []
    for done, (shape, time_ns) in enumerate(zip(table.problems.tolist(), reward_ns, strict=True)):
        reached(done, len(reward_ns))
        own_seed = int(np.random.SeedSequence([*seed, *shape]).generate_state(1)[0])
        picks.append(points.study(time_ns, n_trials, startup, own_seed))
    return np.array(picks, dtype=np.int64).reshape(len(reward_ns), -1)
