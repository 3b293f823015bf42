"""measured-k: the first k picks of any predictor are measured on the spot, and the fastest of them is kept.

What is kept was chosen by its own samples, so it is judged by others: the recorded times, and on a GPU also the times
of a fresh run of the picks and of the template that was the best when it was recorded.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilearena import search
from tilearena.dataset import Floats, Ints, Recording, Table
from tilearena.figures import picked
from tilearena.hands import Finished, Hand, Order
from tilearena.provenance import Telemetry
from tilearena.race import measure_problems
from tilearena.records import Problem, Protocol, Status
from tilearena.replay import ReplayRunner, ReplayTrial
from tilearena.runner import Runner
from tilearena.search_curve import with_intervals

#: Problems that are measured in one go.
BATCH_PROBLEMS = 250

#: A hand's `measure`, or what stands in for it.
Measure = Callable[[Order], Finished]
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class MeasuredK:
    """One predictor's outcome on P problems.

    ``kept`` is int64 [P], -1 where no pick ran; ``first_regret`` and ``regret`` float64 [P] are those of the first pick
    and of the kept one by the recorded times, ``live_regret`` [P] the latter by the fresh run, over the fastest of it
    (None without one, NaN where nothing ran). ``n_failed`` counts measured picks that did not run. Choosing took
    ``timed_s`` of samples and ``seconds`` in all, proof and host included; building and warm-up are in neither.
    """

    kept: Ints
    first_regret: Floats
    regret: Floats
    live_regret: Floats | None
    n_failed: int
    timed_s: float
    seconds: float
    slowed: bool

    def flat(self, groups: Ints, seed: int = 0) -> dict[str, Any]:
        """Flat, of JSON's types: mean regrets with their 95 % intervals, and the cost of a problem."""
        n_problems = len(self.kept)
        columns = {"first_regret_mean": self.first_regret, "regret_mean": self.regret}
        live = np.full(n_problems, np.nan) if self.live_regret is None else self.live_regret
        return {
            "n_problems": n_problems,
            "n_failed": self.n_failed,
            **with_intervals(columns | {"live_regret_mean": live}, groups, seed),
            "timed_s_per_problem": self.timed_s / n_problems,
            "seconds_per_problem": self.seconds / n_problems,
            "slowed": self.slowed,
        }


def measured_k(
    measure: Measure,
    protocol: Protocol,
    problems: Sequence[Problem],
    picks: Ints,
    table: Table,
    *,
    fresh: bool,
    progress: Progress = lambda done, total, label: None,
) -> MeasuredK:
    """Measure ``picks`` on each problem and keep the fastest.

    Args:
        measure: of candidates of which the first T are the templates of ``table``.
        protocol: of the samples; there is no screen, all take turns, and all take ``rounds``.
        problems: P of them, in the order of ``table``.
        picks: int [P, k], best first, -1 where there is none.
        table: the recorded times, each problem measured.
        fresh: also judge by a second run, which a replayed recording cannot give.
        progress: callback.
    """
    which = [set(row) - {-1} for row in picks.tolist()]
    chosen = _run(measure, protocol, 1, problems, which, table, progress, "choosing")
    kept = search.kept(chosen.time_ns, picks)[:, -1]
    live_regret, slowed = None, chosen.slowed
    if fresh:
        best = table.time_ns.argmin(axis=1).tolist()
        judges = [templates | {template} for templates, template in zip(which, best, strict=True)]
        again = _run(measure, protocol, 2, problems, judges, table, progress, "judging")
        live_regret, slowed = _regret_where_known(again.time_ns, kept), slowed or again.slowed
    return MeasuredK(
        kept=kept,
        first_regret=search.regret(table, picks[:, :1])[:, 0],
        regret=search.regret(table, kept[:, None])[:, 0],
        live_regret=live_regret,
        n_failed=chosen.n_failed,
        timed_s=chosen.timed_s,
        seconds=chosen.seconds,
        slowed=slowed,
    )


@dataclass(frozen=True)
class _Run:
    """Median times [P, T], inf for what did not run or took no part."""

    time_ns: Floats
    n_failed: int
    timed_s: float
    seconds: float
    slowed: bool


def _run(
    measure: Measure,
    protocol: Protocol,
    turn: int,
    problems: Sequence[Problem],
    which: Sequence[set[int]],
    table: Table,
    progress: Progress,
    label: str,
) -> _Run:
    """Time the templates ``which`` of each problem; another ``turn`` has another order and other operands."""
    no_screen = {"seed": protocol.seed + turn, "screen_rounds": 0, "reference_rounds": protocol.rounds}
    protocol = protocol.model_copy(update=no_screen)
    time_ns = np.full(table.time_ns.shape, np.inf)
    n_failed, timed_ns, seconds, slowed = 0, 0, 0.0, False
    todo = [(p, tuple(sorted(templates))) for p, templates in enumerate(which) if templates]
    for start in range(0, len(todo), BATCH_PROBLEMS):
        progress(start, len(todo), label)
        part = todo[start : start + BATCH_PROBLEMS]
        finished = measure(Order(tuple(problems[p] for p, _ in part), protocol, tuple(own for _, own in part)))
        for p, row in zip((p for p, own in part for _ in own), finished.rows, strict=True):
            if row.status is Status.OK:
                time_ns[p, row.candidate] = np.median(row.elapsed_ns) / row.launches
            timed_ns += sum(row.elapsed_ns)
            n_failed += row.status is not Status.OK
        seconds, slowed = seconds + finished.seconds, slowed or finished.slowed
    return _Run(time_ns, n_failed, timed_ns * 1e-9, seconds, slowed)


def _regret_where_known(time_ns: Floats, kept: Ints) -> Floats:
    """Regret [P] of ``kept`` [P] by ``time_ns`` [P, T], NaN where nothing has a time."""
    known = np.isfinite(time_ns).any(axis=1)
    lost = np.full(len(kept), np.nan)
    took_ns, _ = picked(time_ns[known], kept[known, None])
    lost[known] = took_ns[:, 0] / time_ns[known].min(axis=1) - 1
    return lost


def by_hand(hand: Hand) -> Measure:
    """Measures on a GPU."""
    return lambda order: hand.measure(order, threading.Event())


def by_runner(runner: Runner) -> Measure:
    """Measures in this process and thread; the replay of a recording stands in for a GPU."""

    def measure(order: Order) -> Finished:
        assert order.which is not None
        started_s = time.monotonic()
        found = list(measure_problems(runner, order.protocol, zip(order.problems, order.which, strict=True)))
        seconds = time.monotonic() - started_s
        return Finished([row for rows in found for row in rows], len(found), seconds, Telemetry(n_samples=0))

    return measure


class FirstSamples(ReplayRunner):
    """Gives back the samples of the screen, which every template has; no recorded time is made of a contender's."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording)
        #: How many samples every template has.
        self.rounds = recording.header.protocol.screen_rounds or recording.header.protocol.rounds

    def prove(self, problem: Problem, protocol: Protocol, which: Sequence[int]) -> ReplayTrial:
        """As a `ReplayRunner` answers a protocol that has a screen."""
        return super().prove(problem, protocol.model_copy(update={"screen_rounds": self.rounds}), which)
