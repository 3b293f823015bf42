"""The worker: the one process that owns a GPU and measures what it is told to, see `tilearena.worker_link`.

It ends, whatever its main thread is doing, when its standard input closes, as it does with the process that started it.
"""

import importlib
import itertools
import os
import queue
import random
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from filelock import FileLock

from tilearena import card_lock
from tilearena.errors import TilearenaError
from tilearena.race import measure_problem, measure_problems
from tilearena.records import Device, Record
from tilearena.runner import Runner
from tilearena.worker_link import TOLD, Failed, Opening, Ready, Rows, Told, Trying, Waiting, Work


class Link:
    """The worker's end. Standard input and output are its alone: others read nothing, and print to standard error."""

    def __init__(self) -> None:
        pipe, self._out = os.dup(0), os.dup(1)
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        self._told: queue.SimpleQueue[Told] = queue.SimpleQueue()
        threading.Thread(target=self._listen, args=(pipe,), daemon=True).start()
        self._lock: FileLock | None = None

    def _listen(self, pipe: int) -> None:
        with open(pipe, "rb") as lines:
            for line in lines:
                self._told.put(TOLD.validate_json(line))
        with suppress(OSError):  # all that this worker started, a compiler say
            os.killpg(os.getpid(), signal.SIGKILL)
        os._exit(0)

    def told(self) -> Told:
        """The next message, once it is there."""
        return self._told.get()

    def say(self, message: Record) -> None:
        """Send a message."""
        left = memoryview(message.model_dump_json().encode() + b"\n")
        while left:
            left = left[os.write(self._out, left) :]

    def building(self, done: int, total: int, label: str) -> None:
        """Say how far a build is."""
        self.say(Waiting(text=f"built {done} of {total}: {label}"))

    def lock(self, device: Device, folder: Path = card_lock.FOLDER) -> None:
        """Wait until no other process measures on this card of this host; it is ours until this process ends.

        Raises:
            MeasureError: the lock's file cannot be opened.
        """
        self._lock = card_lock.take(device, lambda text: self.say(Waiting(text=text)), folder)


def measure(link: Link, runner: Runner, work: Work) -> None:
    """Measure all problems, or try each candidate of theirs alone."""
    jobs = list(zip(work.problems, work.which, strict=True))
    if work.alone:
        for i, (problem, which) in enumerate(jobs):
            for candidate in which:
                link.say(Trying(problem=i, candidate=candidate))
                measure_problem(runner, problem, work.protocol, [candidate])
            link.say(Rows(problem=i, rows=()))
        return
    measured = measure_problems(runner, work.protocol, [job for job in jobs if job[1]])
    before = runner.retakes
    for i, (_, which) in enumerate(jobs):
        rows = tuple(next(measured)) if which else ()
        link.say(Rows.model_construct(problem=i, rows=rows, retakes=runner.retakes - before))
        before = runner.retakes


def warm_up(link: Link, runner: Runner, work: Work, seconds: float) -> None:
    """Keep the GPU busy until its clocks have risen; what is timed meanwhile is thrown away.

    With problems from all over ``work``: a library loads a kernel when it is first launched, which takes milliseconds,
    and cuBLASLt has one for every kind of problem.
    """
    order = random.Random(0).sample(range(len(work.problems)), len(work.problems))
    end = time.monotonic() + seconds
    for i in itertools.cycle(order):
        if time.monotonic() >= end:
            break
        link.say(Trying(problem=i, warm_up=True))
        if work.which[i]:
            measure_problem(runner, work.problems[i], work.protocol, work.which[i])
    link.say(Trying(problem=0))


def serve(link: Link, opening: Opening) -> NoReturn:
    """Open the runner and do what is told, until the process ends."""
    module, function = opening.factory.split(":")
    with getattr(importlib.import_module(module), function)(link, **opening.arguments) as runner:
        try:
            _serve(link, runner, opening.warm_up_s)
        except BaseException as error:  # the GPU may have failed, so that closing the runner would fail or hang
            _leave(link, error)


def _serve(link: Link, runner: Runner, warm_up_s: float) -> NoReturn:
    ready = {key: getattr(runner, key) for key in ("device", "candidates", "default", "versions")}
    link.say(Ready(**ready, clock=runner.clock()))
    warm: set[int] = set()
    while True:
        work = link.told()
        assert isinstance(work, Work)
        candidates = {candidate for which in work.which for candidate in which}
        if not work.alone and not candidates <= warm:  # the anchors' have the default template alone
            warm_up(link, runner, work, warm_up_s)
            warm |= candidates
        measure(link, runner, work)


def _leave(link: Link, error: BaseException) -> NoReturn:
    if not isinstance(error, TilearenaError):
        traceback.print_exception(error)
        sys.stderr.flush()
    message = (str(error).splitlines() or [""])[0]
    link.say(Failed(error=type(error).__name__, message=message))
    os._exit(1)


def main() -> NoReturn:
    """Serve one hand."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # of a batch system, say: end at once, without a traceback
    link = Link()
    try:
        opening = link.told()
        assert isinstance(opening, Opening)
        serve(link, opening)
    except BaseException as error:
        _leave(link, error)


if __name__ == "__main__":
    main()
