"""Regret against measurements: curves of strategies and of predictors over the same problems, with intervals.

A curve is rewarded by the times of one recording. Judged by the same times, it flatters whoever measures much: of many
noisy times the lowest is too low, and whoever keeps it is judged by it (the winner's curse). Rewarded by the repeat
recording and judged by the recording, it is free of that.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tilearena import search
from tilearena.bootstrap import bootstrap, weighted_mean
from tilearena.errors import RecordingError, SpecError
from tilearena.figures import measured
from tilearena.judge import Sources
from tilearena.predict import Fold
from tilearena.splits import shape_codes
from tilearena.table import Floats, Ints, Table

RANDOM, TPE, CONSTANT = "random", "tpe", "constant-k"
STRATEGIES = (RANDOM, TPE, CONSTANT)

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Curve:
    """``regret`` and ``failed`` are float64 [P, K]: after ``ks`` measurements, and how many of these failed.

    Both are means over the draws or runs of a strategy that has some.
    """

    strategy: str
    ks: tuple[int, ...]
    regret: Floats
    failed: Floats


@dataclass(frozen=True)
class Course:
    """The problems over which curves are drawn: ``rows`` [P] of the recording's table, ``table`` and ``groups`` [P].

    ``reward_ns`` [P, T] is what a tuner sees, ``n_of`` the number of problems of which these were taken.
    """

    rows: Ints
    table: Table
    reward_ns: Floats
    groups: Ints
    n_of: int


def course(
    sources: Sources, folds: Sequence[Fold], groups: Ints, *, by_repeat: bool = False, sample: int | None = None
) -> Course:
    """What ``folds`` test and has a time, ``sample`` of it, evenly spaced.

    Args:
        sources: the tested recording and its repeat.
        folds: whose test rows, of the tested table, are looked at.
        groups: labels [rows of the tested table] that the bootstrap draws whole.
        by_repeat: reward by the repeat; only what it has measured, too, is looked at.
        sample: how many; all for None or where there are not so many.

    Raises:
        RecordingError: the recording is of labels, or a repeat is asked for that is not there.
        SpecError: no problem is left.
    """
    header, whole = sources.test.header, sources.test.table
    if whole.task.labels_only:
        raise RecordingError(f"the recording of {header.spec} is of labels, without times; a search needs times")
    rows = np.sort(np.concatenate([np.asarray(fold.test_rows) for fold in folds]))
    rows = rows[measured(whole)[rows]]
    reward_ns = whole.time_ns
    if by_repeat:
        if sources.repeat is None:
            what = f"{header.spec} ({header.dtype}, {header.protocol.name})"
            raise RecordingError(f"{what} has no repeat; record one with `tilearena measure --repeat`")
        reward_ns = _as_in(whole, sources.repeat.table)
        rows = rows[np.isfinite(reward_ns[rows]).any(axis=1)]
    n_of = len(rows)
    if not n_of:
        raise SpecError(f"no problem of {header.spec} is left to search on; measure more")
    if sample is not None and sample < n_of:
        rows = rows[np.arange(sample) * n_of // sample]
    return Course(rows, whole.take(rows), reward_ns[rows], groups[rows], n_of)


def _as_in(table: Table, repeat: Table) -> Floats:
    """Times of ``repeat`` in the order of the problems of ``table`` [P, T], inf for what it lacks."""
    _, here, there = np.intersect1d(
        shape_codes(table.problems), shape_codes(repeat.problems), assume_unique=True, return_indices=True
    )
    time_ns = np.full(table.time_ns.shape, np.inf)
    time_ns[here] = repeat.time_ns[there]
    return time_ns


def of_picks(strategy: str, course: Course, picks: Ints, ks: Sequence[int]) -> Curve:
    """The best of the first k of ``picks`` [P, R], best first; of k up to R."""
    ks = tuple(k for k in ks if k <= picks.shape[1])
    at = np.array(ks, dtype=np.int64) - 1
    failed = np.isinf(np.take_along_axis(course.reward_ns, picks, axis=1)) & (picks >= 0)
    regret = search.regret(course.table, search.kept(course.reward_ns, picks)[:, at])
    return Curve(strategy, ks, regret, failed.cumsum(axis=1, dtype=np.float64)[:, at])


def of_random(course: Course, ks: Sequence[int]) -> Curve:
    """The expectation over all draws without replacement."""
    share = np.isinf(course.reward_ns).mean(axis=1, keepdims=True)
    regret = search.random_regret(course.table, course.reward_ns, ks)
    return Curve(RANDOM, tuple(ks), regret, share * np.array(ks))


def of_tpe(
    course: Course,
    ks: Sequence[int],
    *,
    runs: int,
    seed: int = 0,
    progress: Progress = lambda done, total, label: None,
) -> Curve:
    """The mean over ``runs`` studies of each problem, as long as the largest of ``ks``.

    Raises:
        PredictorError: Optuna is not installed.
    """
    n_problems = len(course.rows)

    def reached(run: int, done: int, total: int) -> None:
        progress(run * n_problems + done, runs * n_problems, TPE)

    curves = [
        of_picks(
            TPE,
            course,
            search.tpe_picks(course.table, course.reward_ns, max(ks), [seed, run], partial(reached, run)),
            ks,
        )
        for run in range(runs)
    ]
    regret, failed = (np.mean([getattr(c, name) for c in curves], axis=0) for name in ("regret", "failed"))
    return Curve(TPE, curves[0].ks, regret, failed)


def rows(curves: Sequence[Curve], groups: Ints, seed: int = 0) -> list[dict[str, Any]]:
    """One flat JSON-able row for each strategy and k, for a table or a chart.

    ``regret_mean`` has its 95 % interval beside it (``_lo``, ``_hi``; bootstrap over ``groups`` [P], the same resamples
    for every curve). ``n_failed_mean`` is how many of the k measurements failed, on average.
    """
    found = []
    for curve in curves:
        flat = with_intervals(
            {f"{k}": column for k, column in zip(curve.ks, curve.regret.T, strict=True)}, groups, seed
        )
        for k, failed in zip(curve.ks, curve.failed.T, strict=True):
            figures = {f"regret_mean{suffix}": flat[f"{k}{suffix}"] for suffix in ("", "_lo", "_hi")}
            found.append({"strategy": curve.strategy, "k": k} | figures | {"n_failed_mean": float(failed.mean())})
    return found


def with_intervals(columns: dict[str, Floats], groups: Ints, seed: int) -> dict[str, float | None]:
    """Mean of each of ``columns`` [P] and its 95 % interval (``_lo``, ``_hi``); NaN takes no part, None is unknown."""

    def estimate(weights: Floats) -> dict[str, Floats]:
        return {name: weighted_mean(weights, column) for name, column in columns.items()}

    flat: dict[str, float | None] = {}
    for name, figures in bootstrap(estimate, groups, seed).items():
        for suffix, value in zip(("", "_lo", "_hi"), figures, strict=True):
            flat[name + suffix] = float(value) if np.isfinite(value) else None
    return flat
