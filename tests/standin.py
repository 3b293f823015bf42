"""A runner on a synthetic device whose times come from a formula, with planted faults: it stands in for a GPU.

A worker opens it as ``standin:open_standin``, see `opening`; ``PYTHONPATH`` must hold this folder.
"""

import contextlib
import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tilearena import errors
from tilearena.dataset import Candidate, Header
from tilearena.errors import DeviceFailedError, MeasureError, OverloadedError
from tilearena.provenance import Clock
from tilearena.records import BITS, Device, Dtype, Problem, Protocol, Status, Template
from tilearena.runner import Begun, Failure, Trial
from tilearena.spec import load_space, load_workload
from tilearena.worker_link import Opening

FOLDER = Path(__file__).parent
DEVICE = Device(
    slug="synthetic-device",
    product="Synthetic device (formula, not measured)",
    compute_capability=(9, 0),
    sm_count=132,
    l2_bytes=60 << 20,
    memory_bytes=140 << 30,
    smem_per_block_bytes=227 << 10,
    smem_per_sm_bytes=228 << 10,
    driver="0.0",
)
TILES = {"large": (128, 256, 64, 64), "medium": (128, 128, 64, 64), "small": (64, 64, 32, 32)}
#: The CUTLASS default, large/3.
DEFAULT = 1
#: Candidates of `StandInRunner`: nine templates, the control, and the vendor's where asked for.
CONTROL, VENDOR = 9, 10
FOREVER_S = 3600

#: What happens, on which shape (any if None), to which candidate (any if None).
Fault = tuple[str, tuple[int, int, int] | None, int | None]


def templates(dtype: Dtype) -> tuple[Template, ...]:
    """The nine templates of the space ``paper9``."""
    k = 512 // BITS[dtype]
    return tuple(
        Template(
            dtype=dtype,
            bit_op="and" if dtype == "b1" else None,
            label=f"{name}/{stages}",
            threadblock=(m, n, k),
            warp=(wm, wn, k),
            instruction=(16, 8, k // 2),
            stages=stages,
        )
        for name, (m, n, wm, wn) in TILES.items()
        for stages in (2, 3, 4)
    )


def formula_ns(shape: Sequence[int], template: Template) -> float:
    """Waves of threadblocks, each as long as its tile and a little for filling the pipeline."""
    m, n, k = shape
    tm, tn, tk = template.threadblock
    resident = min(4, max(1, 200_000 // template.smem_bytes))
    waves = -(-(-(-m // tm) * -(-n // tn)) // (DEVICE.sm_count * resident))
    steps = -(-k // tk) + 6 / template.stages + template.stages / 2
    return 2_000 + waves * steps * (tm * tn) ** 0.8 * 0.05 * resident


def opening(*, warm_up_s: float = 0.0, **options: Any) -> Opening:
    """How a worker opens `StandInRunner` with these options."""
    return Opening(factory="standin:open_standin", arguments=options, warm_up_s=warm_up_s)


@contextlib.contextmanager
def open_standin(
    link: Any,
    *,
    card: str | None = None,
    open_s: float = 0.0,
    open_error: str = "",
    once: str | None = None,
    chatter: str = "",
    **options: Any,
) -> Iterator["StandInRunner"]:
    """The factory.

    Args:
        link: of the worker.
        card: the device's uuid_sha256.
        open_s: how long opening takes.
        open_error: class of an exception in opening.
        once: a file that the first opening makes; later ones die.
        chatter: printed to standard output, as a library might.
        options: of `StandInRunner`.
    """
    if open_error:
        raise getattr(errors, open_error, MeasureError)("it cannot be opened")
    if once is not None:
        if Path(once).exists():
            os.kill(os.getpid(), signal.SIGKILL)
        Path(once).touch()
    print(chatter, flush=True)
    os.write(1, chatter.encode())
    device = DEVICE.model_copy(update={"uuid_sha256": card})
    link.lock(device, Path(tempfile.gettempdir()))  # TMPDIR keeps the cards of tests apart
    time.sleep(open_s)
    yield StandInRunner(device, **options)


class StandInTrial(Trial):
    """One problem; see `StandInRunner`."""

    def __init__(
        self, runner: "StandInRunner", shape: tuple[int, int, int], protocol: Protocol, which: tuple[int, ...]
    ) -> None:
        self._runner, self.shape, self.which = runner, shape, which
        self._launches = 1 if protocol.name == "cold" else runner.hot_launches
        self._rng = {i: random.Random(f"{runner.seed} {shape} {i}") for i in which}

    def begin(self) -> Begun:
        time.sleep(self._runner.problem_s)
        failures = {}
        for candidate in self.which:
            for kind in self._runner.planted(candidate, self.shape):
                if failure := self.strike(kind, candidate):
                    failures[candidate] = failure
        return Begun({i: self._launches for i in self.which if i not in failures}, failures)

    def submit(self, order: Sequence[int]) -> None:
        self.order = order

    def collect(self) -> tuple[list[int], dict[int, Failure]]:
        self._runner.proved_meanwhile(self)
        failures = {}
        for candidate in set(self.order):
            for kind in self._runner.planted(candidate, self.shape):
                if kind.startswith("late_") and (failure := self.strike(kind.removeprefix("late_"), candidate)):
                    failures[candidate] = failure
        return [self._sample_ns(candidate) for candidate in self.order], failures

    def _sample_ns(self, candidate: int) -> int:
        exact = self._runner.exact_ns(self.shape, candidate)
        return max(1, round(self._launches * exact * (1 + self._rng[candidate].gauss(0.0, self._runner.noise))))

    def strike(self, kind: str, candidate: int) -> Failure | None:
        m, n, k = self.shape
        if kind == "die" or (kind == "crowd" and len(self.which) > 1):
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "abort":
            os.abort()
        elif kind == "hang":
            time.sleep(FOREVER_S)
        elif kind in ("fault", "next_fault"):
            raise DeviceFailedError(f"the GPU failed at {m}x{n}x{k}: an illegal memory access was encountered")
        elif kind.startswith("once ") and not Path(kind.removeprefix("once ")).exists():
            Path(kind.removeprefix("once ")).touch()
            raise DeviceFailedError(f"the GPU failed at {m}x{n}x{k}: a bit flipped")
        elif kind.startswith("stop ") and not Path(kind.removeprefix("stop ")).exists():
            Path(kind.removeprefix("stop ")).touch()
            os.kill(os.getpid(), signal.SIGSTOP)
        elif kind == "wrong":
            return Failure(Status.WRONG_RESULT, f"row {candidate} of the output is wrong")
        elif kind == "no_memory":
            return Failure(Status.LAUNCH_FAILED, "the launch failed (CUDA error 2)")
        elif kind == "retake":
            self._runner.retakes += 1
        elif kind == "overload":
            raise OverloadedError("launching took too long")
        elif kind == "bug":
            raise ValueError("a bug")
        return None


def formula_header(spec, dtype, protocol, *, seed=0, vendor=False, versions=None):
    """Header of a recording from the formula: three samples a row, no screen; with cuBLASLt beside where ``vendor``."""
    candidates = [Candidate(id=template.id, template=template) for template in templates(dtype)]
    return Header(
        op="gemm",
        spec=spec,
        spec_fingerprint=load_workload(spec).fingerprint,
        space="paper9",
        space_fingerprint=load_space("paper9").fingerprint,
        dtype=dtype,
        bit_op="and" if dtype == "b1" else None,
        protocol=Protocol(name=protocol, rounds=3, screen_rounds=0, reference_rounds=3, seed=seed),
        device=DEVICE,
        support="emulated" if dtype == "s4" else "native",
        candidates=(*candidates, *([Candidate(id="cublaslt", origin="vendor")] if vendor else [])),
        default=DEFAULT,
        started_at="2026-01-02T03:04:05+00:00",
        clock=None,
        noise_floor=0.005,
        versions=versions or {},
    )


class StandInRunner:
    """A Runner: every problem has the same samples whenever it is measured, with ``noise`` (relative) in them.

    Args:
        device: what it says that it is.
        dtype: of the templates.
        problem_s: how long `StandInTrial.begin` takes.
        noise: standard deviation of a sample.
        seed: of the noise.
        vendor: time of the candidate ``cublaslt`` over the best template's; not a candidate if None.
        launches: in one sample of the hot protocol.
        faults: planted ones. In `StandInTrial.begin`: "die" (signal 9), "abort" (signal 6), "hang", "fault"
            (DeviceFailedError), "wrong" (the proof fails), "no_memory" (the launch fails), "crowd" (dies unless alone),
            "bug" (ValueError), "once FILE" (DeviceFailedError, where FILE does not exist, and makes it), "stop FILE" (a
            SIGSTOP likewise), "next_fault" (DeviceFailedError, and already in another problem's first ``collect`` after
            this one's proof was asked for). In `StandInTrial.collect`: "late_fault" (DeviceFailedError), "late_hang",
            "late_wrong", "late_retake" (it counts one), "late_overload" (OverloadedError).
    """

    #: Of what `prove` answers.
    trial_type = StandInTrial

    def __init__(
        self,
        device: Device = DEVICE,
        *,
        dtype: Dtype = "s8",
        problem_s: float = 0.0,
        noise: float = 0.01,
        seed: int = 0,
        vendor: float | None = None,
        launches: int = 4,
        faults: Sequence[Fault] = (),
    ) -> None:
        self.device, self.default, self.versions, self.retakes = device, DEFAULT, {"standin": "1"}, 0
        self._templates = templates(dtype)
        control = self._templates[DEFAULT]
        self.candidates = (
            *(Candidate(id=t.id, template=t) for t in self._templates),
            Candidate(id=f"{control.id}#control", origin="control", template=control),
            *([Candidate(id="cublaslt", origin="vendor")] if vendor is not None else []),
        )
        self.problem_s, self.noise, self.seed, self._vendor = problem_s, noise, seed, vendor
        self.hot_launches, self._faults = launches, faults
        self._proving: StandInTrial | None = None

    def clock(self) -> Clock:
        return Clock(empty_interval_ns=1000.0, empty_launch_ns=3000.0, resolution_ns=32.0)

    def prove(self, problem: Problem, protocol: Protocol, which: Sequence[int]) -> StandInTrial:
        trial = self.trial_type(self, (problem.m, problem.n, problem.k), protocol, tuple(which))
        self._proving = trial
        return trial

    def proved_meanwhile(self, other: StandInTrial) -> None:
        """A fault in the proof that runs while another problem's samples are read shows there."""
        ahead, self._proving = self._proving, None
        if ahead is not None and ahead is not other:
            for candidate in ahead.which:
                if "next_fault" in self.planted(candidate, ahead.shape):
                    other.strike("next_fault", candidate)

    def exact_ns(self, shape: Sequence[int], candidate: int) -> float:
        if candidate == VENDOR:
            assert self._vendor is not None
            return self._vendor * min(formula_ns(shape, t) for t in self._templates)
        return formula_ns(shape, self._templates[DEFAULT if candidate == CONTROL else candidate])

    def planted(self, candidate: int, at: tuple[int, int, int]) -> list[str]:
        return [
            kind
            for kind, shape, who in self._faults
            if (shape is None or tuple(shape) == at) and who in (None, candidate)
        ]
