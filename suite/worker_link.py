"""What a worker and its hand say to each other: JSON, a message a line, over the worker's standard input and output."""

import os
import selectors
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from tilearena import errors
from tilearena.dataset import Candidate
from tilearena.errors import MeasureError, TilearenaError
from tilearena.provenance import Clock
from tilearena.records import Device, Measurement, Problem, Protocol, Record


class Opening(Record):
    """How a worker opens its runner: the first message that it gets.

    Attributes:
        factory: ``module:function``, called in the worker as ``function(link, **arguments)`` with a
            `tilearena.worker.Link`; answers a context manager whose value is a `tilearena.runner.Runner`. It calls
            ``link.lock(device)`` before it opens the GPU.
        arguments: for the factory; JSON.
        warm_up_s: how long the GPU is kept busy before the first batch that has a candidate that ran in none before.
    """

    kind: Literal["opening"] = "opening"
    factory: Annotated[str, Field(pattern=r"^[\w.]+:\w+$")]
    arguments: dict[str, Any] = Field(default_factory=dict)
    warm_up_s: float = 0.5


class Work(Record):
    """Problems to measure, and which candidates of each; ``alone``: each candidate is announced and gets no row."""

    kind: Literal["work"] = "work"
    problems: tuple[Problem, ...]
    protocol: Protocol
    which: tuple[tuple[int, ...], ...]
    alone: bool = False


class Waiting(Record):
    """The worker waits, or builds; said again and again meanwhile."""

    kind: Literal["waiting"] = "waiting"
    text: str


class Ready(Record):
    """The runner is open."""

    kind: Literal["ready"] = "ready"
    device: Device
    candidates: tuple[Candidate, ...]
    default: int
    versions: dict[str, str]
    clock: Clock | None


class Trying(Record):
    """What is begun now: a candidate alone, or the warm-up with some problem, or (None) the first problem after it."""

    kind: Literal["trying"] = "trying"
    problem: int
    candidate: int | None = None
    warm_up: bool = False


class Rows(Record):
    """A problem is done: one row for each of its candidates, none where they were tried alone.

    ``retakes``: how often samples were taken again since the message before, see `tilearena.runner.Runner`.
    """

    kind: Literal["rows"] = "rows"
    problem: int
    rows: tuple[Measurement, ...]
    retakes: int = 0


class Failed(Record):
    """The last message of a worker: the class of an exception, and its sentence."""

    kind: Literal["failed"] = "failed"
    error: str
    message: str

    def exception(self) -> TilearenaError:
        """The same exception, for the user; one that is no `TilearenaError` becomes a `MeasureError`."""
        known = getattr(errors, self.error, None)
        if isinstance(known, type) and issubclass(known, TilearenaError):
            return known(self.message)
        return MeasureError(f"the worker failed: {self.error}: {self.message}")


Told = Annotated[Opening | Work, Field(discriminator="kind")]
Said = Annotated[Waiting | Ready | Trying | Rows | Failed, Field(discriminator="kind")]
TOLD: TypeAdapter[Told] = TypeAdapter(Told)
SAID: TypeAdapter[Said] = TypeAdapter(Said)


#: The driver may need some time to end what runs on the GPU.
KILL_S = 10.0


class WorkerDiedError(Exception):
    """The worker's process has ended; ``code`` is its exit code, or minus the signal."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"the worker died ({f'signal {-code}' if code < 0 else f'exit code {code}'})")


class WorkerProcess:
    """The hand's end: starts ``python -m tilearena.worker``, talks to it, and ends it.

    The worker has a session of its own, so that Ctrl-C in the terminal does not reach it. It ends with this process.
    """

    def __init__(self, opening: Opening) -> None:
        command = [sys.executable, "-P", "-m", "tilearena.worker"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stdout, selectors.EVENT_READ)
        self._tail = b""
        self.tell(opening)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def stopped(self) -> bool:
        """Whether a signal has stopped it, while it has not ended."""
        with suppress(ChildProcessError):
            return os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
        return False

    def tell(self, message: Opening | Work) -> None:
        """Send a message, when it has dealt with the one before; whether it takes it, or has died, `hear` shows.

        In a thread, since a worker that is stopped would keep us waiting once the pipe is full.
        """
        line = message.model_dump_json().encode() + b"\n"
        self._telling = threading.Thread(target=self._write, args=(memoryview(line),), daemon=True)
        self._telling.start()

    def _write(self, left: memoryview) -> None:
        with suppress(OSError, ValueError):  # it has died, or is closed
            while left:
                left = left[self._stdin.write(left) :]

    def hear(self, timeout_s: float) -> list[Said]:
        """What it has said, once it says something; nothing after ``timeout_s``.

        Raises:
            WorkerDiedError: it has ended, and all that it said was heard. MeasureError: it said nonsense.
        """
        if not self._selector.select(timeout_s):
            return []
        chunk = os.read(self._stdout.fileno(), 1 << 16)
        if not chunk:
            raise WorkerDiedError(self._process.wait())
        *lines, self._tail = (self._tail + chunk).split(b"\n")
        try:
            return [SAID.validate_json(line) for line in lines]
        except ValidationError as error:  # a library wrote into the pipe, or a runner answers what cannot be
            first = error.errors(include_url=False)[0]
            said = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
            raise MeasureError(f"no message of a worker: {said}; report this as a bug") from None

    def kill(self) -> bool:
        """End it and all that it started, at once; whether it has ended: one that hangs in its driver cannot."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(KILL_S)
            self._telling.join(KILL_S)
        self._selector.close()
        self._stdin.close()
        self._stdout.close()
        return self._process.returncode is not None
