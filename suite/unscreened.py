"""Problems, and some candidates of each -> their times, all of equally many samples: nothing is screened."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilearena.hands import Finished, Hand, Order
from tilearena.provenance import Telemetry
from tilearena.race import measure_problems
from tilearena.records import Problem, Protocol, Status
from tilearena.runner import Runner
from tilearena.table import Floats

#: Problems that are measured in one go.
BATCH_PROBLEMS = 250

#: A hand's `measure`, or what stands in for it.
Measure = Callable[[Order], Finished]
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Times:
    """Medians of one run.

    ``time_ns`` is float64 [P, C], inf for what did not run or took no part. ``n_failed`` counts what did not run. All
    samples together took ``timed_s``, and the run ``seconds``; ``slowed``: some batch was slowed down by heat or
    hardware every time that it was measured.
    """

    time_ns: Floats
    n_failed: int
    timed_s: float
    seconds: float
    slowed: bool


def times_of(
    measure: Measure,
    protocol: Protocol,
    problems: Sequence[Problem],
    which: Sequence[set[int]],
    n_candidates: int,
    *,
    turn: int = 1,
    progress: Progress,
    label: str,
) -> Times:
    """Time the candidates ``which`` [P] of each problem; another ``turn`` has another order and other operands."""
    no_screen = {"seed": protocol.seed + turn, "screen_rounds": 0, "reference_rounds": protocol.rounds}
    protocol = protocol.model_copy(update=no_screen)
    time_ns = np.full((len(problems), n_candidates), np.inf)
    n_failed, timed_ns, seconds, slowed = 0, 0, 0.0, False
    todo = [(p, tuple(sorted(candidates))) for p, candidates in enumerate(which) if candidates]
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
    return Times(time_ns, n_failed, timed_ns * 1e-9, seconds, slowed)


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
