"""A hand whose GPU is owned by a worker process, which may die at any moment without a row being lost.

When the worker dies, its GPU fails, or it says nothing for long, a new one is started, and the problem in hand is
examined: each candidate runs alone. The one at which that happens again becomes a failed row; then the problem is
measured with the others together. If none is to blame alone, the problem is tried again as it is.
"""

import platform
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Self

from tilearena.culprit import FAULTS, Case, Trouble
from tilearena.device import SLOWDOWN, Reading, Sampler, Sensors, summarise
from tilearena.errors import Interrupted, MeasureError, OverloadedError, TilearenaError
from tilearena.hands import Done, Finished, HandLostError, Order
from tilearena.records import Status, fingerprint
from tilearena.worker_link import (
    Failed,
    Opening,
    Ready,
    Rows,
    Said,
    Trying,
    Waiting,
    Work,
    WorkerDiedError,
    WorkerProcess,
)

#: A batch that a thermal or hardware slowdown met is measured so many times at most.
ATTEMPTS = 3
#: More troubles than this for each candidate, or each of ten, without a single time in between, and the hand is lost. A
#: candidate that kills its worker makes three on one problem: in company, alone, and alone again. An opening that
#: fails, for which no candidate is to blame, counts as a whole candidate.
TROUBLES = 4
POLL_S = 0.05
#: Signals that reach a worker from outside: these alone are no proof against a candidate.
OUTSIDE = (-signal.SIGHUP, -signal.SIGINT, -signal.SIGKILL, -signal.SIGTERM)


class WorkerHand:
    """See `tilearena.hands.Hand`; a context manager. One thread at a time may measure with it."""

    def __init__(
        self,
        opening: Opening,
        *,
        read: Callable[[], Reading] | None = None,
        notice: Callable[[str], None] = lambda text: None,
        patience_s: float = 20.0,
        open_patience_s: float = 1800.0,
        cool_s: float = 5.0,
        stop: threading.Event | None = None,
    ) -> None:
        """Start a worker and wait until it has its GPU, for as long as another process measures on it.

        Args:
            opening: how the worker opens its runner.
            read: reads the card's sensors; NVML does by default.
            notice: called with a sentence about waiting, building and restarts.
            patience_s: how long a problem may take.
            open_patience_s: how long the worker may say nothing while it opens its runner.
            cool_s: pause before a batch is repeated.
            stop: set it to give up meanwhile.

        Raises:
            TilearenaError: as the factory of ``opening``. MeasureError: the worker died or hung meanwhile.
            Interrupted: ``stop`` was set.
        """
        self._opening, self._notice = opening, notice
        self._patience_s, self._open_patience_s, self._cool_s = patience_s, open_patience_s, cool_s
        self._process: WorkerProcess | None = None
        self._ended = True
        self._sampler, self._started = Sampler(dict), 0.0
        self._blamed: Counter[int] = Counter()
        self._troubles = 0
        try:
            ready = self._open(stop or threading.Event())
            if ready is None:
                raise Interrupted("interrupted before the GPU was open: nothing was measured")
        except Trouble as trouble:
            self.close()
            raise MeasureError(f"no worker could be started: {trouble.reason}") from None
        except BaseException:
            self.close()
            raise
        self.device, self.candidates, self.default = ready.device, ready.candidates, ready.default
        self.versions, self.clock, self.host = ready.versions, ready.clock, host()
        self._identity, self._most_troubles = _identity(ready), TROUBLES * max(10, len(ready.candidates))
        self._sampler = Sampler(read or Sensors(self.device.uuid_sha256).read)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker, and with it all that it holds of the GPU."""
        self._sampler.on = False
        if self._process is not None:
            self._ended = self._process.kill()
            self._process = None

    @property
    def worker_pid(self) -> int | None:
        """Process id of the worker; None where none runs."""
        return self._process.pid if self._process else None

    def measure(self, order: Order, stop: threading.Event, done: Done = lambda n: None) -> Finished:
        """See `tilearena.hands.Hand.measure`. ``seconds`` leaves the warm-up out.

        Raises:
            HandLostError: the host is overloaded, a worker cannot be ended, or worker after worker failed, with nothing
                timed in between.
            MeasureError: the worker has a bug.
        """
        which = order.which or (tuple(range(len(self.candidates))),) * len(order.problems)
        case = Case(order.problems, which)
        best: Finished | None = None
        self._started = time.monotonic()
        try:
            while True:
                finished = self._attempt(case, order, stop, done)
                if best is not None and finished.n_problems < best.n_problems:
                    return replace(best, seconds=finished.seconds)
                best = finished
                if not finished.slowed or case.attempt == ATTEMPTS:
                    break
                self._notice("the GPU was slowed down by heat or its hardware: the batch is measured again")
                if stop.wait(self._cool_s):
                    break
        except BaseException:
            self.close()
            raise
        return best

    def _attempt(self, case: Case, order: Order, stop: threading.Event, done: Done) -> Finished:
        case.begin()
        self._sampler.restart()
        while not case.whole and not stop.is_set():
            try:
                self._ensure_open(stop)
                if case.suspect is None:
                    self._go_on(case, order, stop, done)
                else:
                    self._examine(case, order, stop)
            except Trouble as trouble:
                self._deal_with(trouble, case, stop)
        seconds = time.monotonic() - self._started
        if not case.whole:
            self.close()
        telemetry = summarise(self._sampler.readings)
        rows = [row for of_problem in case.rows for row in of_problem]
        slowed = bool(telemetry.throttle_reasons & SLOWDOWN)
        return Finished(rows, len(case.rows), seconds, telemetry, case.attempt, case.retakes, slowed)

    def _go_on(self, case: Case, order: Order, stop: threading.Event, done: Done) -> None:
        first = len(case.rows)
        last = case.run_from(first)
        which = tuple(case.launched(i, self._barred) for i in range(first, last))
        case.at = Trying(problem=first)
        work = Work(problems=case.problems[first:last], protocol=order.protocol, which=which)
        for said in self._work(work, stop):
            if isinstance(said, Trying):
                case.at = said.model_copy(update={"problem": first + said.problem})
                if case.attempt == 1 and not case.rows and not said.warm_up:
                    self._started = time.monotonic()
            elif isinstance(said, Rows):
                case.finish(said.rows, said.retakes)
                case.at = Trying(problem=first + said.problem + 1)
                if any(row.status is Status.OK for row in said.rows):
                    self._troubles = 0
                self._sampler.on = True
                self._sampler.tick()
                done(len(case.rows))
                if len(case.rows) == last:
                    return

    def _examine(self, case: Case, order: Order, stop: threading.Event) -> None:
        suspect = case.suspect
        assert suspect is not None
        which = (case.launched(suspect, self._barred),)
        work = Work(problems=(case.problems[suspect],), protocol=order.protocol, which=which, alone=True)
        case.at = None
        for said in self._work(work, stop):
            if isinstance(said, Trying):
                case.at = Trying(problem=suspect, candidate=said.candidate)
            elif isinstance(said, Rows):
                case.acquit()
                return

    @property
    def _barred(self) -> set[int]:
        return {candidate for candidate, count in self._blamed.items() if count >= FAULTS}

    def _deal_with(self, trouble: Trouble, case: Case, stop: threading.Event) -> None:
        """Drop the worker, and take the blame down.

        Raises:
            HandLostError: it cannot be dropped, or that was one trouble too many.
        """
        self.close()
        self._require_ended()
        was_open = case.at is not None
        culprit = case.blame(trouble)
        self._troubles += 1 if was_open else TROUBLES
        if culprit is not None:
            self._blamed[culprit] += 1
        if self._troubles > self._most_troubles:
            raise HandLostError(
                f"{self.device.product} is given up: its worker failed again and again without a single time in "
                f"between, at last since {trouble.reason}; run tilearena doctor"
            )
        self._notice(f"the worker is started again: {trouble.reason}")
        if not was_open:  # the driver may need a moment
            stop.wait(0.5)

    def _ensure_open(self, stop: threading.Event) -> None:
        self._require_ended()
        if self._process is None:
            try:
                ready = self._open(stop)
            except TilearenaError as error:
                raise Trouble(str(error)) from None
            if ready is not None and _identity(ready) != self._identity:  # all rows go under one header
                raise HandLostError(f"{self.device.product} is given up: its card or kernels were exchanged meanwhile")

    def _require_ended(self) -> None:
        if not self._ended:  # it holds the card's lock, for which the next one would wait for ever
            raise HandLostError(f"{self.device.product} is given up: its worker cannot be ended; run tilearena doctor")

    def _open(self, stop: threading.Event) -> Ready | None:
        """Start a worker, which waits if another process has the GPU by now; None where ``stop`` was set meanwhile."""
        self._process = WorkerProcess(self._opening)
        noticed = ""
        for said in self._messages(self._process, self._open_patience_s, stop):
            if isinstance(said, Waiting) and said.text != noticed:
                noticed = said.text
                self._notice(noticed)
            elif isinstance(said, Failed):
                raise said.exception()
            elif isinstance(said, Ready):
                return said
        return None

    def _work(self, work: Work, stop: threading.Event) -> Iterator[Said]:
        """Give the worker ``work``, and hear what it says about it until ``stop`` is set."""
        assert self._process is not None
        self._sampler.on = False
        self._process.tell(work)
        for said in self._messages(self._process, self._patience_s, stop):
            if isinstance(said, Failed):
                error = said.exception()
                if isinstance(error, OverloadedError):  # no candidate's fault, and the next one would meet it, too
                    raise HandLostError(f"{self.device.product} is given up: {error}")
                if said.error in ("DeviceFailedError", "MeasureError"):
                    raise Trouble(str(error))
                raise error
            yield said

    def _messages(self, process: WorkerProcess, patience_s: float, stop: threading.Event) -> Iterator[Said]:
        silent_s = 0.0  # as we have listened: the clock goes on while we are suspended together with the worker
        while not stop.is_set():
            try:
                messages = process.hear(POLL_S)
            except WorkerDiedError as death:
                raise Trouble(str(death), inside=death.code not in OUTSIDE) from None
            yield from messages
            silent_s = 0.0 if messages else silent_s + POLL_S
            if silent_s > patience_s:
                if process.stopped:
                    raise Trouble(f"it was stopped by a signal for more than {patience_s:g} s", inside=False)
                raise Trouble(f"it did not finish within {patience_s:g} s")
            self._sampler.tick()


def _identity(ready: Ready) -> tuple[object, ...]:
    return ready.device.slug, ready.device.uuid_sha256, ready.candidates, ready.default, ready.versions


def host() -> str:
    """16 hex digits that tell hosts apart without naming them."""
    machine = Path("/etc/machine-id")
    return fingerprint([platform.node(), machine.read_text() if machine.exists() else ""])
