"""Picks + measured times -> Score: every figure of the glossary with its 95 % interval. Pure and vectorised."""

from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from tilearena.bootstrap import N_RESAMPLES, bootstrap
from tilearena.errors import PredictorError, RecordingError
from tilearena.figures import estimate, judge, log_slowdown, measured
from tilearena.records import Dtype, Op, ProtocolName, Record, Support
from tilearena.splits import Split, shape_codes
from tilearena.table import Floats, Ints, Table

#: Ranked templates of a problem that a score needs: ``regret_at_8`` is the deepest figure.
N_PICKS = 8
#: Every figure of a score, in the order in which it is shown; docs say what each means.
FIGURES = (
    "top1",
    "top2",
    "top2_measured",
    "top2_tie",
    "regret_mean",
    "regret_p50",
    "regret_p90",
    "regret_p99",
    "regret_max",
    "speedup_geomean",
    "oracle_speedup_geomean",
    "speedup_vs_cublaslt_geomean",
    "oracle_speedup_vs_cublaslt_geomean",
    "gap_closed",
    "slowdown_share",
    "slowdown_max",
    "ceiling_top1",
    "ceiling_top2",
    "ceiling_regret_mean",
    "regret_at_1",
    "regret_at_2",
    "regret_at_4",
    "regret_at_8",
    "predict_us",
)

#: Those that need no time but the predictor's own: all that is known where a recording is of labels.
TIMELESS = ("top1", "top2", "predict_us")

Number = Annotated[float, Field(allow_inf_nan=False)]


class Key(Record):
    """What a result is a result of."""

    op: Op
    spec: str
    space: str
    dtype: Dtype
    protocol: ProtocolName
    device: str
    split: Split
    predictor: str
    version: str
    train_spec: str
    support: Support


class Figure(Record):
    """A figure and its 95 % interval; None where it is undefined or unknown."""

    value: Number | None = None
    lo: Number | None = None
    hi: Number | None = None


class Score(Record):
    """The figures of one predictor on one tested set.

    ``n_problems`` counts all problems; of these ``n_unmeasured`` have no feasible template and enter no figure, and
    ``n_no_default`` have times but none of the default, so that they enter no speedup and no slowdown.
    ``n_vendor`` have times of templates and of cuBLASLt, and alone enter the speedups over cuBLASLt.
    ``n_failed`` counts the measured problems whose first pick is missing or infeasible there. ``reason`` says why the
    predictor failed and is empty if it did not.
    """

    key: Key
    reason: str
    n_problems: int
    n_failed: int
    n_unmeasured: int
    n_no_default: int
    n_vendor: int
    figures: dict[str, Figure]

    @property
    def status(self) -> Literal["ok", "failed"]:
        """``failed`` if there is a reason."""
        return "failed" if self.reason else "ok"

    @property
    def declined(self) -> bool:
        """Whether the predictor said that it does not serve this, as `tilearena.predict_child` words it."""
        return self.reason.startswith(f"{self.key.predictor!r} declined: ")

    def flat(self) -> dict[str, Any]:
        """One flat JSON-able dict: key, status and counts, then ``name``, ``name_lo``, ``name_hi`` of each figure."""
        counts = self.model_dump(exclude={"key", "figures"})
        flat = self.key.model_dump() | {"status": self.status} | counts
        for name, figure in self.figures.items():
            flat |= {name: figure.value, f"{name}_lo": figure.lo, f"{name}_hi": figure.hi}
        return flat


def order(status: str, top2: float | None, regret_mean: float | None) -> tuple[bool, bool, float, float]:
    """Where a score comes among others, the best first: by top2, then by mean regret; those without and failed last."""
    return status != "ok", top2 is None or regret_mean is None, -(top2 or 0), regret_mean or 0


def rank(costs: Floats) -> Ints:
    """Template indices [P, T] from the lowest of ``costs`` [P, T] up; equal costs rank in space order, NaN last."""
    return np.argsort(costs, axis=1, kind="stable")


def constant_costs(train: Table) -> Floats:
    """Mean log(t / t(best)) [T] of each template over the measured problems of ``train``.

    A template that failed on a problem counts there as the slowest feasible one.

    Raises:
        RecordingError: no problem has a time.
    """
    rows = measured(train)
    if not rows.any():
        raise RecordingError("no problem of the training part has a time; record it again")
    costs: Floats = log_slowdown(train.time_ns[rows]).mean(axis=0)
    return costs


def constant_pick(train: Table) -> int:
    """Index of the single template with the lowest ``constant_costs``, the first in space order if several have it."""
    return int(constant_costs(train).argmin())


def score(
    table: Table,
    picks: Ints,
    *,
    key: Key,
    groups: Ints | None = None,
    repeat: Table | None = None,
    noise_floor: float | None = None,
    predict_us: float | None = None,
    constant_picks: Ints | None = None,
    vendor_ns: Floats | None = None,
    reason: str = "",
    seed: int = 0,
    intervals: bool = True,
) -> Score:
    """Judge ``picks`` by the times of ``table``; by labels alone all figures but ``TIMELESS`` are None.

    Args:
        table: the tested problems, P of them.
        picks: int [P, R], 1 <= R <= ``N_PICKS``: ranked template indices, -1 where there is none. A k beyond R means
            all R picks.
        key: what is scored.
        groups: labels [P]; the bootstrap draws whole groups (default: every shape is one).
        repeat: a second recording of the same templates, for the ceilings.
        noise_floor: relative A/A difference of the session, a fraction.
        predict_us: median time to rank one problem, in microseconds.
        constant_picks: int [P], the best constant template of the training part of each problem, for ``gap_closed``.
        vendor_ns: float64 [P], median time of cuBLASLt on each problem in nanoseconds, inf or NaN where it is unknown.
        reason: why the predictor failed or declined; the status is then ``failed``, as it is if no first pick runs.
        seed: of the bootstrap.
        intervals: without them every ``lo`` and ``hi`` is None, and a score takes milliseconds.

    Raises:
        PredictorError: picks or constant picks of a wrong shape, or naming a template that is not there.
        RecordingError: the repeat recording has other templates, or the vendor's times are of another shape.
    """
    _check(table, picks, constant_picks, repeat, vendor_ns)
    rows = measured(table)
    judged = judge(
        table.take(rows),
        picks[rows],
        repeat=repeat,
        noise_floor=noise_floor,
        constant_picks=None if constant_picks is None else constant_picks[rows],
        vendor_ns=None if vendor_ns is None else vendor_ns[rows],
    )
    groups = shape_codes(table.problems) if groups is None else groups
    resamples = N_RESAMPLES if intervals else 0
    estimates = bootstrap(partial(estimate, judged), groups[rows], seed, resamples)
    estimates["predict_us"] = (np.nan if predict_us is None else predict_us, np.nan, np.nan)
    known = TIMELESS if table.task.labels_only else FIGURES
    if judged.failed.all() and rows.any() and not reason:
        reason = "no problem has a first pick that runs"
    return Score(
        key=key,
        reason=reason,
        n_problems=len(rows),
        n_failed=int(judged.failed.sum()),
        n_unmeasured=int((~rows).sum()),
        n_no_default=int(np.isnan(judged.slowdown).sum()),
        n_vendor=int(np.isfinite(judged.log_vs_cublaslt).sum()),
        figures={name: _figure(*estimates[name]) if name in known else Figure() for name in FIGURES},
    )


def _check(
    table: Table, picks: Ints, constant_picks: Ints | None, repeat: Table | None, vendor_ns: Floats | None
) -> None:
    n_problems, n_templates = table.time_ns.shape
    depth = min(max(1, picks.shape[-1]), N_PICKS)
    _check_picks("picks", picks, (n_problems, depth), n_templates)
    if constant_picks is not None:
        _check_picks("constant picks", constant_picks, (n_problems,), n_templates)
    if repeat is not None and repeat.task.templates != table.task.templates:
        raise RecordingError("the repeat recording has other templates than the recording; record it again")
    if vendor_ns is not None and vendor_ns.shape != (n_problems,):
        raise RecordingError(f"times of cuBLASLt are {list(vendor_ns.shape)}; one for each of {n_problems} is needed")


def _check_picks(name: str, picks: Ints, shape: tuple[int, ...], n_templates: int) -> None:
    if picks.shape != shape or picks.dtype.kind != "i":
        raise PredictorError(f"{name} are {picks.dtype} {list(picks.shape)}; integers {list(shape)} are needed")
    if picks.size and (picks.min() < -1 or picks.max() >= n_templates):
        raise PredictorError(f"{name} must lie in -1..{n_templates - 1}, got {picks.min()}..{picks.max()}")


def _figure(value: float, lo: float, hi: float) -> Figure:
    return Figure(value=_known(value), lo=_known(lo), hi=_known(hi))


def _known(number: float) -> float | None:
    return float(number) if np.isfinite(number) else None
