"""A hand without a worker: it measures in its thread with any runner, so that the journal can be tested by itself."""

import threading
import time
from collections.abc import Iterator, Sequence

from tilearena.errors import DeviceFailedError
from tilearena.hands import Done, Finished, HandLostError, Order
from tilearena.provenance import Telemetry
from tilearena.race import measure_problems
from tilearena.records import Problem
from tilearena.runner import Runner

Asked = tuple[Problem, tuple[int, ...], int]


class InProcessHand:
    """Measures with ``runner``; notes in ``asked`` every problem with its candidates and its seed.

    ``lost_after``: the hand is lost once it has measured so many problems, and its batch with it.
    """

    def __init__(
        self, runner: Runner, *, host: str = "0" * 16, lost_after: int | None = None, asked: list[Asked] | None = None
    ) -> None:
        self.runner, self.host, self.lost_after = runner, host, lost_after
        self.device, self.candidates, self.default = runner.device, runner.candidates, runner.default
        self.versions, self.clock = dict(runner.versions), runner.clock()
        self.asked: list[Asked] = [] if asked is None else asked
        self.closed = False

    def measure(self, order: Order, stop: threading.Event, done: Done = lambda n: None) -> Finished:
        started, rows, n_problems = time.monotonic(), [], 0
        before = self.runner.retakes
        whole: Sequence[int] = range(len(self.candidates))

        def tasks() -> Iterator[tuple[Problem, tuple[int, ...]]]:
            for i, problem in enumerate(order.problems):
                if stop.is_set():
                    return
                if self.lost_after is not None and len(self.asked) >= self.lost_after:
                    raise HandLostError("the worker died 8 times")
                which = tuple(order.which[i] if order.which is not None else whole)
                self.asked.append((problem, which, order.protocol.seed))
                yield problem, which

        try:
            for found in measure_problems(self.runner, order.protocol, tasks()):
                rows += found
                n_problems += 1
                done(n_problems)
        except DeviceFailedError as error:
            raise HandLostError(str(error)) from error
        retakes = self.runner.retakes - before
        return Finished(rows, n_problems, time.monotonic() - started, Telemetry(n_samples=0), retakes=retakes)

    def close(self) -> None:
        self.closed = True
