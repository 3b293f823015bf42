"""measured-k: the first k picks of any predictor are measured on the spot, and the fastest of them is kept.

What is kept was chosen by its own samples, so it is judged by others: the recorded times, and on a GPU also the times
of a fresh run of the picks and of the template that was the best when it was recorded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tilearena import search
from tilearena.dataset import Recording
from tilearena.figures import picked
from tilearena.records import Problem, Protocol
from tilearena.replay import ReplayRunner, ReplayTrial
from tilearena.search_curve import with_intervals
from tilearena.table import Floats, Ints, Table
from tilearena.unscreened import Measure, Progress, times_of


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
    run = partial(times_of, measure, protocol, problems, n_candidates=table.time_ns.shape[1], progress=progress)
    chosen = run(which, label="choosing")
    kept = search.kept(chosen.time_ns, picks)[:, -1]
    live_regret, slowed = None, chosen.slowed
    if fresh:
        best = table.time_ns.argmin(axis=1).tolist()
        judges = [templates | {template} for templates, template in zip(which, best, strict=True)]
        again = run(judges, turn=2, label="judging")
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


def _regret_where_known(time_ns: Floats, kept: Ints) -> Floats:
    """Regret [P] of ``kept`` [P] by ``time_ns`` [P, T], NaN where nothing has a time."""
    known = np.isfinite(time_ns).any(axis=1)
    lost = np.full(len(kept), np.nan)
    took_ns, _ = picked(time_ns[known], kept[known, None])
    lost[known] = took_ns[:, 0] / time_ns[known].min(axis=1) - 1
    return lost


class FirstSamples(ReplayRunner):
    """Gives back the samples of the screen, which every template has; no recorded time is made of a contender's."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording)
        #: How many samples every template has.
        self.rounds = recording.header.protocol.screen_rounds or recording.header.protocol.rounds

    def prove(self, problem: Problem, protocol: Protocol, which: Sequence[int]) -> ReplayTrial:
        """As a `ReplayRunner` answers a protocol that has a screen."""
        return super().prove(problem, protocol.model_copy(update={"screen_rounds": self.rounds}), which)
