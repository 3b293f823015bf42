"""The runner that drives a kernel library on a GPU, behind the contract of `tilearena.runner`."""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np

from tilearena import abi, feasible
from tilearena.abi import pointer
from tilearena.build import Library
from tilearena.dataset import Candidate
from tilearena.errors import DeviceFailedError, MeasureError, NoGpuError, OverloadedError
from tilearena.gpu_trial import ATTEMPTS, OVERLOADED, GpuTrial
from tilearena.provenance import Clock
from tilearena.records import BITS, Device, Problem, Protocol, Status, Template, fingerprint
from tilearena.runner import Failure
from tilearena.table import Ints
from tilearena.vendor import CUBLASLT, External, Guarded

#: Problems up to this many multiply-adds are also compared element by element with a direct reference.
REFERENCE_MACS = 1 << 22


class GpuRunner:
    """Drives one kernel library on one GPU; a context manager that gives the memory back.

    All calls come from the thread that opened it.
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
            raise NoGpuError(self.message())
        self.device, self.default, self.retakes = device, default, 0
        self._slot = 0
        #: The one that has each of the library's slots.
        self.trials: list[GpuTrial | None] = [None, None]
        self.versions = dict(library.versions) | {"kernels": library.sources}
        self._line_up(templates, default, cublaslt is not None, externals)
        self._unbuilt = self._find_unbuilt(library)
        self._open(problems, seed, l2_multiple, ordinal, cublaslt)

    def _line_up(
        self,
        templates: Sequence[Template],
        default: int,
        with_cublaslt: bool,
        externals: Sequence[tuple[str, External]],
    ) -> None:
        """The candidates, and what each is called in a job."""
        entries = {self._lib.ta_id(i).decode(): i for i in range(self._lib.ta_count())}
        control = Candidate(id=f"{templates[default].id}#control", origin="control", template=templates[default])
        found = [Candidate(id=t.id, template=t) for t in templates] + [control]
        self._entry = [entries.get(t.id) for t in (*templates, templates[default])]
        if with_cublaslt:
            found.append(Candidate(id=CUBLASLT, origin="vendor"))
            self._entry.append(abi.ENTRY_CUBLASLT)
        #: By candidate.
        self.externals: dict[int, Guarded] = {}
        for name, external in externals:
            self.externals[len(found)] = Guarded(external)
            self._entry.append(abi.ENTRY_EXTERNAL - len(self.externals) + 1)
            found.append(Candidate(id=name, origin="vendor"))
        self._callbacks = (abi.EXTERNAL * len(self.externals))(*map(abi.EXTERNAL, self.externals.values()))
        self.candidates = tuple(found)

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
            raise MeasureError(f"GPU {ordinal} cannot be opened for these problems: {self.message()}")
        version = self._lib.ta_cublaslt_version(self._context)
        if version:
            self.versions["cublaslt"] = str(version)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lib.ta_close(self._context)

    def message(self) -> str:
        """The library's last error."""
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
                raise DeviceFailedError(f"the GPU failed: {self.message()}")
            if code == 0:
                return out
        raise OverloadedError(OVERLOADED.format(""))

    def prove(
        self, problem: Problem, protocol: Protocol, which: Sequence[int], *, launches: int = 0, held: bool = True
    ) -> GpuTrial:
        """See `tilearena.runner.Runner.prove`.

        Args:
            problem: what is computed.
            protocol: how it is timed.
            which: indices into ``candidates``.
            launches: in one sample of each candidate, for comparisons with other clocks; 0: what the protocol says.
            held: whether the stream is held while a batch is enqueued; profilers that serialise kernels cannot have it.
        """
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
        self._slot = 1 - self._slot
        return GpuTrial(self, problem, self._slot, job, alive, failures)

    def call(self, function: str, slot: int, *arguments: object) -> int:
        """What a function of the library answers for one of its two slots."""
        answer: int = getattr(self._lib, function)(self._context, slot, *arguments)
        return answer

    def _find_unbuilt(self, library: Library) -> dict[int, Failure]:
        reasons = {failure.id: failure.reason for failure in library.failures}
        missing = "the kernel library does not hold this template"
        return {
            i: Failure(Status.BUILD_FAILED, reasons.get(candidate.template.id, missing))
            for i, candidate in enumerate(self.candidates)
            if candidate.template is not None and (candidate.template.id in reasons or self._entry[i] is None)
        }

    def _refusal(self, problem: Problem, candidate: int) -> Failure | None:
        if candidate in self._unbuilt:
            return self._unbuilt[candidate]
        template = self.candidates[candidate].template
        if template is not None and (reason := feasible.rejection(problem, template, self.device)):
            return Failure(Status.INFEASIBLE, reason)
        if problem.operand_bytes > self._operand_bytes or problem.output_bytes > self._output_bytes:
            needed = feasible.memory_needed(problem)
            return Failure(Status.INFEASIBLE, f"needs {needed} bytes of device memory beside the other problems")
        return None


def _room(problems: Sequence[Problem], memory_bytes: int) -> tuple[int, int]:
    """Bytes of operands and of outputs to set aside: of the largest problems that fit together, largest out first."""
    left = sorted(problems, key=feasible.memory_needed)
    while left:
        operands, outputs = max(p.operand_bytes for p in left), max(p.output_bytes for p in left)
        if 2 * (operands + outputs) + feasible.POOL_BYTES <= memory_bytes:
            return operands, outputs
        left.pop()
    return 0, 0
