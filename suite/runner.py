"""Where measurements come from: the Runner contract, and the runner that drives a kernel library on a GPU."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from tilearena import abi, space
from tilearena.abi import pointer
from tilearena.build import Library
from tilearena.dataset import Candidate, Ints
from tilearena.errors import DeviceFailedError, MeasureError, NoGpuError, OverloadedError
from tilearena.provenance import Clock
from tilearena.records import BITS, Device, Problem, Status, Template, fingerprint
from tilearena.records import Protocol as TimingProtocol
from tilearena.vendor import CUBLASLT, External, Guarded

#: Problems up to this many multiply-adds are also compared element by element with a direct reference.
REFERENCE_MACS = 1 << 22
#: A batch whose hold of the stream expired is taken again so many times.
ATTEMPTS = 3


@dataclass(frozen=True)
class Failure:
    """Why a candidate has no time on a problem."""

    status: Status
    reason: str


@dataclass(frozen=True)
class Begun:
    """The outcome of the proof: launches in one sample of each candidate that is exact, and why the others are not."""

    launches: dict[int, int]
    failures: dict[int, Failure]


@dataclass
class _Prepared:
    """A problem as the library gets it; ``under_way`` once its proof runs while another one's samples are read."""

    key: tuple[Problem, TimingProtocol, tuple[int, ...], int, bool]
    which: list[int]
    failures: dict[int, Failure]
    job: abi.Job
    entry: npt.NDArray[np.int32]  # that ``job`` points to
    under_way: bool = False


class Runner(Protocol):
    """Proves and times candidates, one problem after the other. A GPU and the replay of a recording look the same."""

    device: Device
    candidates: tuple[Candidate, ...]
    default: int
    versions: dict[str, str]
    #: Calls of `sample` that were taken again, since a hold of the stream had expired.
    retakes: int

    def clock(self) -> Clock | None:
        """Empty interval and resolution of the events; None if unknown."""

    def begin(self, problem: Problem, protocol: TimingProtocol, which: Sequence[int]) -> Begun:
        """Prove each of ``which`` (indices into ``candidates``) on ``problem``, which the next samples are of.

        Raises:
            DeviceFailedError: the GPU failed; nothing more can run in this process.
        """

    def announce(self, problem: Problem, protocol: TimingProtocol, which: Sequence[int]) -> None:
        """Say what will begin next: its proof may run while the next samples are read, and the GPU need not wait."""

    def sample(self, order: Sequence[int]) -> tuple[list[int], dict[int, Failure]]:
        """Time the candidates in ``order``, one sample a turn.

        Returns the elapsed time of each turn in ns, for all of a sample's launches, and the candidates whose last
        output was wrong or that failed meanwhile; their times mean nothing.

        Raises:
            DeviceFailedError: as `begin`.
        """


#: ta_outcome -> status and sentence; {} is the detail.
_OUTCOMES = {
    1: (Status.INFEASIBLE, "the kernel cannot implement this problem"),
    2: (Status.LAUNCH_FAILED, "the launch failed (CUDA error {})"),
    3: (Status.WRONG_RESULT, "row {} of the output is wrong"),
    4: (Status.WRONG_RESULT, "the kernel wrote outside its output (guard word {})"),
    5: (Status.WRONG_RESULT, "element {} of the output differs from the direct reference"),
    6: (Status.WRONG_RESULT, "row {} of the output of the last timed launch is wrong"),
}


class GpuRunner:
    """Drives one kernel library on one GPU; a context manager that gives the memory back.

    One problem is measured at a time, by the thread that opened it.
    """

    def __init__(
        self,
        path: Path,
        library: Library,
        templates: Sequence[Template],
        default: int,
        device: Device,
        problems: Sequence[Problem],
        *,
        seed: int,
        l2_multiple: float = 3.0,
        ordinal: int = 0,
        cublaslt: Path | None = None,
        externals: Sequence[tuple[str, External]] = (),
    ) -> None:
        """Open the GPU and set aside memory for the largest of ``problems`` that fits it.

        Args:
            path: the shared library.
            library: what it holds.
            templates: in space order.
            default: index of the default template.
            device: what is opened; with ``sm_total`` a partition of ``sm_count`` SMs.
            problems: all that will be measured.
            seed: of the operands.
            l2_multiple: how many L2s of other data a cold operand has waited for.
            ordinal: number of the GPU.
            cublaslt: the shared library of cuBLASLt, to be a candidate.
            externals: further kernels of the vendor, by name.

        Raises:
            NoGpuError: no driver or no GPU. MeasureError: not enough memory, or not a kernel library.
        """
        self._lib = abi.load_library(path)
        if self._lib.ta_gpus() < 0:
            raise NoGpuError(self._message())
        self.device, self.default, self.retakes = device, default, 0
        self._next: _Prepared | None = None
        self.versions = dict(library.versions) | {"kernels": library.sources}
        self._failures = {failure.id: failure.reason for failure in library.failures}
        entries = {self._lib.ta_id(i).decode(): i for i in range(self._lib.ta_count())}
        control = Candidate(id=f"{templates[default].id}#control", origin="control", template=templates[default])
        found = [Candidate(id=t.id, template=t) for t in templates] + [control]
        self._entry = [entries.get(t.id) for t in (*templates, templates[default])]
        if cublaslt is not None:
            found.append(Candidate(id=CUBLASLT, origin="vendor"))
            self._entry.append(abi.ENTRY_CUBLASLT)
        self._externals: dict[int, Guarded] = {}
        for name, external in externals:
            self._externals[len(found)] = Guarded(external)
            self._entry.append(abi.ENTRY_EXTERNAL - len(self._externals) + 1)
            found.append(Candidate(id=name, origin="vendor"))
        self._callbacks = (abi.EXTERNAL * len(self._externals))(*map(abi.EXTERNAL, self._externals.values()))
        self.candidates = tuple(found)
        self._open(problems, seed, l2_multiple, ordinal, cublaslt)

    def _open(
        self, problems: Sequence[Problem], seed: int, l2_multiple: float, ordinal: int, cublaslt: Path | None
    ) -> None:
        self._operand_bytes, self._output_bytes = _room(problems, self.device.memory_bytes)
        options = abi.Options(
            ordinal=ordinal,
            sm_count=self.device.sm_count if self.device.sm_total else 0,
            operand_bytes=self._operand_bytes,
            output_bytes=self._output_bytes,
            l2_multiple=l2_multiple,
            seed=seed,
            cublaslt=str(cublaslt).encode() if cublaslt else None,
        )
        self._context = self._lib.ta_open(ctypes.byref(options))
        if not self._context:
            raise MeasureError(f"GPU {ordinal} cannot be opened for these problems: {self._message()}")
        version = self._lib.ta_cublaslt_version(self._context)
        if version:
            self.versions["cublaslt"] = str(version)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lib.ta_close(self._context)

    def _message(self) -> str:
        return str(self._lib.ta_error().decode())

    def clock(self, count: int = 1024) -> Clock:
        """See `Runner.clock`. Times of events are multiples of the resolution: the greatest common divisor of many."""
        nothing, launch = (self._empty_intervals(launches, count) for launches in (0, 1))
        return Clock(
            empty_interval_ns=float(np.median(nothing)),
            empty_launch_ns=float(np.median(launch)),
            resolution_ns=float(np.gcd.reduce(np.concatenate([nothing, launch]))),
        )

    def _empty_intervals(self, launches: int, count: int) -> Ints:
        out = np.zeros(count, dtype=np.int64)
        for _ in range(ATTEMPTS):
            code = self._lib.ta_empty_intervals(self._context, launches, count, pointer(out, ctypes.c_int64))
            if code < 0:
                raise DeviceFailedError(f"the GPU failed: {self._message()}")
            if code == 0:
                return out
        raise OverloadedError(f"launching took longer than 0.5 s {ATTEMPTS} times; is the machine overloaded?")

    def begin(
        self, problem: Problem, protocol: TimingProtocol, which: Sequence[int], *, launches: int = 0, held: bool = True
    ) -> Begun:
        """See `Runner.begin`.

        Args:
            problem: what is computed.
            protocol: how it is timed.
            which: indices into ``candidates``.
            launches: in one sample of each candidate, for comparisons with other clocks; 0: what the protocol says.
            held: whether the stream is held while a batch is enqueued; profilers that serialise kernels cannot have it.
        """
        key = (problem, protocol, tuple(which), launches, held)
        ready = self._next is not None and self._next.under_way and self._next.key == key
        self._now, self._next = self._next if ready and self._next else self._prepare(*key), None
        failures = self._now.failures
        if not self._now.which:
            return Begun({}, failures)
        proof = abi.Proof.of(len(self._now.which))
        job = None if ready else ctypes.byref(self._now.job)
        self._check(self._lib.ta_begin(self._context, job, proof.reference))
        wrong = self._wrong(proof)
        right = {i: int(n) for i, n in zip(self._now.which, proof.launches, strict=True) if i not in wrong}
        return Begun(right, failures | wrong)

    def announce(self, problem: Problem, protocol: TimingProtocol, which: Sequence[int]) -> None:
        """See `Runner.announce`."""
        prepared = self._prepare(problem, protocol, tuple(which), 0, True)
        self._next = prepared if prepared.which else None

    def _prepare(
        self, problem: Problem, protocol: TimingProtocol, which: tuple[int, ...], launches: int, held: bool
    ) -> "_Prepared":
        failures = {i: f for i in which if (f := self._refusal(problem, i))}
        alive = [i for i in which if i not in failures]
        entry = np.array([self._entry[i] for i in alive], dtype=np.int32)
        job = abi.Job(
            bits=BITS[problem.dtype],
            xor_popc=problem.bit_op == "xor",
            m=problem.m,
            n=problem.n,
            k=problem.k,
            cold=protocol.name == "cold",
            held=held,
            candidates=len(entry),
            entry=pointer(entry, ctypes.c_int),
            hot_fill_ns=protocol.hot_fill_ns,
            hot_max_launches=protocol.hot_max_launches,
            launches=launches,
            reference_macs=REFERENCE_MACS,
            seed=int(fingerprint([protocol.seed, problem.m, problem.n, problem.k]), 16),
            externals=self._callbacks,
        )
        return _Prepared((problem, protocol, which, launches, held), alive, failures, job, entry)

    def sample(self, order: Sequence[int]) -> tuple[list[int], dict[int, Failure]]:
        """See `Runner.sample`. What was taken while a hold of the stream expired is no sample and is taken again.

        Raises:
            DeviceFailedError: an illegal address, say; nothing more can run in this process.
            OverloadedError: the hold expired every time.
        """
        position = {candidate: p for p, candidate in enumerate(self._now.which)}
        turns = np.array([position[i] for i in order], dtype=np.int32)
        elapsed_ns = np.zeros(len(turns), dtype=np.int64)
        proof = abi.Proof.of(len(self._now.which))
        for attempt in range(ATTEMPTS):
            self.retakes += attempt > 0
            following = None
            if self._next is not None and not self._next.under_way:
                following, self._next.under_way = ctypes.byref(self._next.job), True
            code = self._lib.ta_sample(
                self._context,
                len(turns),
                pointer(turns, ctypes.c_int),
                pointer(elapsed_ns, ctypes.c_int64),
                proof.reference,
                following,
            )
            if not self._check(code):
                return elapsed_ns.tolist(), self._wrong(proof)
        raise OverloadedError(
            f"launching took longer than 0.5 s {ATTEMPTS} times at {self._now.key[0]!r}; is the machine overloaded?"
        )

    def _check(self, code: int) -> int:
        if code >= 0:
            return code
        p = self._now.key[0]
        raise DeviceFailedError(f"the GPU failed at {p.m}x{p.n}x{p.k} {p.dtype}: {self._message()}")

    def _refusal(self, problem: Problem, candidate: int) -> Failure | None:
        template = self.candidates[candidate].template
        if template is not None:
            if template.id in self._failures:
                return Failure(Status.BUILD_FAILED, self._failures[template.id])
            if self._entry[candidate] is None:
                return Failure(Status.BUILD_FAILED, "the kernel library does not hold this template")
            if reason := space.rejection(problem, template, self.device):
                return Failure(Status.INFEASIBLE, reason)
        if problem.operand_bytes > self._operand_bytes or problem.output_bytes > self._output_bytes:
            needed = space.memory_needed(problem)
            return Failure(Status.INFEASIBLE, f"needs {needed} bytes of device memory beside the other problems")
        return None

    def _wrong(self, proof: abi.Proof) -> dict[int, Failure]:
        found = {}
        for i, outcome, detail in zip(self._now.which, proof.outcome.tolist(), proof.detail.tolist(), strict=True):
            if outcome:
                status, sentence = _OUTCOMES[outcome]
                reason = sentence.format(detail)
                if status is Status.LAUNCH_FAILED and i in self._externals:
                    reason = f"the vendor's call failed: {self._externals[i].message}"
                elif status is Status.LAUNCH_FAILED and self.candidates[i].id == CUBLASLT:
                    reason = f"cuBLASLt's call failed (status {detail})"
                found[i] = Failure(status, reason)
        return found


def _room(problems: Sequence[Problem], memory_bytes: int) -> tuple[int, int]:
    """Bytes of operands and of outputs to set aside: of the largest problems that fit together, largest out first."""
    left = sorted(problems, key=space.memory_needed)
    while left:
        operands, outputs = max(p.operand_bytes for p in left), max(p.output_bytes for p in left)
        if 2 * (operands + outputs) + space.POOL_BYTES <= memory_bytes:
            return operands, outputs
        left.pop()
    return 0, 0
