"""The figures of the glossary, from what a predictor picked and what was measured.

First every problem is judged by itself (``judge``), then the problems are averaged under weights (``estimate``), so
that a figure and its bootstrap resamples are one computation. Times are in nanoseconds, inf where a template failed.
"""

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt

from tilearena.bootstrap import ascending, weighted_max, weighted_mean, weighted_quantiles
from tilearena.splits import shape_codes
from tilearena.table import Floats, Ints, Table

Bools = npt.NDArray[np.bool_]

#: Times within this fraction of the minimum may count as ties, however noisy the session was.
MAX_TIE_BAND = 0.02
#: A pick is a slowdown when it takes more than this multiple of the default's time.
SLOWDOWN = 1.02
REGRET_AT = (1, 2, 4, 8)
QUANTILES = {"regret_p50": 0.5, "regret_p90": 0.9, "regret_p99": 0.99, "regret_max": 1.0}


@dataclass(frozen=True)
class Judged:
    """What each problem [P] contributes; NaN where it takes no part.

    ``failed``: the first pick is missing or infeasible. ``means``: the figures that are plain means, by name. A loss is
    log(t / t(best)).
    """

    failed: Bools
    means: dict[str, Floats]
    regret: Floats
    slowdown: Floats
    loss: Floats
    constant_loss: Floats
    log_speedup: Floats
    log_oracle_speedup: Floats
    log_vs_cublaslt: Floats
    log_oracle_vs_cublaslt: Floats

    @cached_property
    def regret_order(self) -> Ints:
        """Problems from the least regret up, sorted once for all resamples."""
        return ascending(self.regret)


def measured(table: Table) -> Bools:
    """Whether any template is feasible [P]."""
    any_feasible: Bools = np.isfinite(table.time_ns.min(axis=1))
    return any_feasible


def measured_tables(train: Table) -> list[Table]:
    """The measured problems of each device that ``train`` has."""
    return [table.take(measured(table)) for table in train.tables]


def with_failures(time_ns: Floats) -> Floats:
    """Times [P, T] where a failed template takes as long as the slowest feasible one of its problem.

    Every problem must have a feasible template.
    """
    return np.where(np.isfinite(time_ns), time_ns, _slowest(time_ns))


def log_slowdown(time_ns: Floats) -> Floats:
    """log(t / fastest) of each template, float64 [P, T]; failures as in ``with_failures``."""
    filled = with_failures(time_ns)
    slowdown: Floats = np.log(filled / filled.min(axis=1, keepdims=True))
    return slowdown


def picked(time_ns: Floats, picks: Ints) -> tuple[Floats, Bools]:
    """Time of each pick [P, R] and whether it ran; one that is -1 or failed takes as long as the slowest feasible."""
    time = np.take_along_axis(time_ns, picks, axis=1)
    ran = (picks >= 0) & np.isfinite(time)
    return np.where(ran, time, _slowest(time_ns)), ran


def judge(
    table: Table,
    picks: Ints,
    *,
    repeat: Table | None,
    noise_floor: float | None,
    constant_picks: Ints | None,
    vendor_ns: Floats | None,
) -> Judged:
    """Judge ``picks`` [P, R] problem by problem; arguments as in ``tilearena.score.score``, all problems measured."""
    best = table.time_ns.min(axis=1)
    default = _finite(table.time_ns[:, table.task.default])
    time, ran = picked(table.time_ns, picks)
    regret_at = np.minimum.accumulate(time / best[:, None] - 1, axis=1)
    right = ran & (time == best[:, None])
    second = np.partition(table.time_ns, 1, axis=1)[:, 1] if table.time_ns.shape[1] > 1 else best
    first, slowdown = time[:, 0], time[:, 0] / default
    unknown = np.full(len(best), np.nan)
    tie = unknown
    if noise_floor is not None:
        tied = ran & (time <= best[:, None] * (1 + min(noise_floor, MAX_TIE_BAND)))
        tie = _as_share(tied[:, :2].any(axis=1))
    vendor = unknown if vendor_ns is None else _finite(vendor_ns)
    constant = unknown
    if constant_picks is not None:
        constant = np.log(picked(table.time_ns, constant_picks[:, None])[0][:, 0] / best)
    return Judged(
        failed=~ran[:, 0],
        means={
            "top1": _as_share(right[:, 0]),
            "top2": _as_share(right[:, :2].any(axis=1)),
            "top2_measured": _as_share(ran[:, 0] & (first <= second)),
            "top2_tie": tie,
            "regret_mean": regret_at[:, 0],
            "slowdown_share": np.where(np.isnan(default), np.nan, first > SLOWDOWN * default),
            **_ceilings(table, repeat),
            **{f"regret_at_{k}": regret_at[:, min(k, picks.shape[1]) - 1] for k in REGRET_AT},
        },
        regret=regret_at[:, 0],
        slowdown=slowdown,
        loss=np.log(first / best),
        constant_loss=constant,
        log_speedup=np.log(default / first),
        log_oracle_speedup=np.log(default / best),
        log_vs_cublaslt=np.log(vendor / first),
        log_oracle_vs_cublaslt=np.log(vendor / best),
    )


def estimate(judged: Judged, weights: Floats) -> dict[str, Floats]:
    """Every figure [B] under each row of ``weights`` [B, P]; NaN where it is undefined."""
    mean = partial(weighted_mean, weights, total=weights.sum(axis=1))
    means = {name: mean(values) for name, values in judged.means.items()}
    quantiles = weighted_quantiles(weights, judged.regret, tuple(QUANTILES.values()), judged.regret_order)
    loss, constant_loss = (mean(values) for values in (judged.loss, judged.constant_loss))
    undefined = np.full(len(weights), np.nan)
    return means | {
        **dict(zip(QUANTILES, quantiles, strict=True)),
        "speedup_geomean": np.exp(mean(judged.log_speedup)),
        "oracle_speedup_geomean": np.exp(mean(judged.log_oracle_speedup)),
        "speedup_vs_cublaslt_geomean": np.exp(mean(judged.log_vs_cublaslt)),
        "oracle_speedup_vs_cublaslt_geomean": np.exp(mean(judged.log_oracle_vs_cublaslt)),
        "gap_closed": 1 - np.divide(loss, constant_loss, out=undefined, where=constant_loss > 0),
        "slowdown_max": weighted_max(weights, judged.slowdown),
    }


def _ceilings(table: Table, repeat: Table | None) -> dict[str, Floats]:
    """What the ranking by ``repeat``'s times reaches on the problems that both tables measured."""
    top1, top2, regret = np.full((3, len(table.problems)), np.nan)
    if repeat is not None:
        repeat = repeat.take(measured(repeat))
        codes = shape_codes(table.problems), shape_codes(repeat.problems)
        _, here, there = np.intersect1d(*codes, return_indices=True)
        choice = np.argsort(repeat.time_ns[there], axis=1, kind="stable")[:, :2]
        choice = np.where(np.isfinite(np.take_along_axis(repeat.time_ns[there], choice, axis=1)), choice, -1)
        best = table.time_ns[here].min(axis=1, keepdims=True)
        time, ran = picked(table.time_ns[here], choice)
        right = ran & (time == best)
        top1[here], top2[here], regret[here] = right[:, 0], right.any(axis=1), time[:, 0] / best[:, 0] - 1
    return {"ceiling_top1": top1, "ceiling_top2": top2, "ceiling_regret_mean": regret}


def _slowest(time_ns: Floats) -> Floats:
    """Time of the slowest feasible template of each problem [P, 1]."""
    slowest: Floats = np.where(np.isfinite(time_ns), time_ns, -np.inf).max(axis=1, keepdims=True)
    return slowest


def _finite(time_ns: Floats) -> Floats:
    """The same times, NaN for one that is not finite."""
    return np.where(np.isfinite(time_ns), time_ns, np.nan)


def _as_share(hits: Bools) -> Floats:
    return hits.astype(np.float64)
