"""One problem under way on a GPU, behind the contract of `tilearena.runner.Trial`."""

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tilearena import abi
from tilearena.abi import pointer
from tilearena.errors import DeviceFailedError, OverloadedError
from tilearena.records import Problem, Status
from tilearena.runner import Begun, Failure, Trial
from tilearena.vendor import CUBLASLT

if TYPE_CHECKING:
    from tilearena.gpu_runner import GpuRunner

#: Samples whose hold of the stream expired are taken so many times; the library proves as often (kAttempts).
ATTEMPTS = 3
#: What is wrong where that is not enough; the time is the library's kHoldLimitNs.
OVERLOADED = f"launching took longer than 0.5 s {ATTEMPTS} times{{}}; is the machine overloaded?"

#: ta_outcome -> status and sentence; {} is the detail.
_OUTCOMES = {
    1: (Status.INFEASIBLE, "the kernel cannot implement this problem"),
    2: (Status.LAUNCH_FAILED, "the launch failed (CUDA error {})"),
    3: (Status.WRONG_RESULT, "row {} of the output is wrong"),
    4: (Status.WRONG_RESULT, "the kernel wrote outside its output (word {} of a guard band)"),
    5: (Status.WRONG_RESULT, "element {} of the output differs from the direct reference"),
    6: (Status.WRONG_RESULT, "row {} of the output of the last timed launch is wrong"),
}


class GpuTrial(Trial):
    """See `tilearena.runner.Trial`."""

    def __init__(
        self,
        runner: "GpuRunner",
        problem: Problem,
        slot: int,
        job: abi.Job,
        alive: Sequence[int],
        failures: dict[int, Failure],
    ) -> None:
        """Ask for the proof.

        Args:
            runner: whose library proves and times.
            problem: what is computed.
            slot: of the library, which this trial has until the next but one begins.
            job: for the library.
            alive: the job's candidates.
            failures: of the others.
        """
        self._runner, self._problem, self._slot = runner, problem, slot
        self._alive, self._failures = alive, failures
        self._proof = abi.Proof.of(len(alive))
        self._turns = np.zeros(0, dtype=np.int32)
        runner.trials[slot] = self
        if alive:
            self._call("ta_prove", ctypes.byref(job))

    def begin(self) -> Begun:
        """See `tilearena.runner.Trial.begin`.

        Raises:
            OverloadedError: launching takes longer than the stream can be held.
        """
        if not self._alive:
            return Begun({}, self._failures)
        if self._call("ta_begin", self._proof.reference):
            raise self._overloaded()
        wrong = self._wrong()
        right = {i: int(n) for i, n in zip(self._alive, self._proof.launches, strict=True) if i not in wrong}
        return Begun(right, self._failures | wrong)

    def submit(self, order: Sequence[int]) -> None:
        """See `tilearena.runner.Trial.submit`."""
        position = {candidate: p for p, candidate in enumerate(self._alive)}
        self._turns = np.array([position[i] for i in order], dtype=np.int32)
        self._call("ta_submit", len(self._turns), pointer(self._turns, ctypes.c_int))

    def collect(self) -> tuple[list[int], dict[int, Failure]]:
        """See `tilearena.runner.Trial.collect`. Samples during which a hold expired are none, and are taken again.

        Raises:
            OverloadedError: the hold expired every time.
        """
        elapsed_ns = np.zeros(len(self._turns), dtype=np.int64)
        for attempt in range(ATTEMPTS):
            if attempt:
                self._runner.retakes += 1
                self._call("ta_submit", len(self._turns), pointer(self._turns, ctypes.c_int))
            if not self._call("ta_collect", pointer(elapsed_ns, ctypes.c_int64), self._proof.reference):
                return elapsed_ns.tolist(), self._wrong()
        raise self._overloaded()

    def _overloaded(self) -> OverloadedError:
        p = self._problem
        return OverloadedError(OVERLOADED.format(f" at {p.m}x{p.n}x{p.k} {p.dtype}"))

    def _call(self, function: str, *arguments: object) -> int:
        assert self._runner.trials[self._slot] is self, "another trial has the slot by now"
        code = self._runner.call(function, self._slot, *arguments)
        if code >= 0:
            return code
        p = self._problem
        raise DeviceFailedError(f"the GPU failed at {p.m}x{p.n}x{p.k} {p.dtype}: {self._runner.message()}")

    def _wrong(self) -> dict[int, Failure]:
        found = {}
        outcomes, details = self._proof.outcome.tolist(), self._proof.detail.tolist()
        for i, outcome, detail in zip(self._alive, outcomes, details, strict=True):
            if outcome:
                status, sentence = _OUTCOMES[outcome]
                reason = sentence.format(detail)
                if status is Status.LAUNCH_FAILED and i in self._runner.externals:
                    p = self._problem
                    if message := self._runner.externals[i].messages.get((p.m, p.n, p.k)):
                        reason = f"the vendor's call failed: {message}"
                elif status is Status.LAUNCH_FAILED and self._runner.candidates[i].id == CUBLASLT:
                    reason = f"cuBLASLt's call failed (status {detail})"
                found[i] = Failure(status, reason)
        return found
