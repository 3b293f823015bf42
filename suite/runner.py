"""Where measurements come from: the Runner contract, and the runner that drives a kernel library on a GPU."""

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from tilearena import space
from tilearena.build import Library
from tilearena.dataset import Candidate, Ints
from tilearena.errors import DeviceFailedError, MeasureError, NoGpuError
from tilearena.records import BITS, Device, Measurement, Problem, Status, Template, fingerprint
from tilearena.records import Protocol as TimingProtocol

ABI_VERSION = 2
#: Problems up to this many multiply-adds are also compared element by element with a direct reference.
REFERENCE_MACS = 1 << 22

#: Enqueues D = A x B on a stream: (a, b, d, m, n, k, stream) addresses -> 0, or 1 where it does not serve the problem.
External = Callable[[int, int, int, int, int, int, int], int]


class Runner(Protocol):
    """Times candidates on problems. The GPU, and the replay of a recording, look the same from outside."""

    device: Device
    candidates: tuple[Candidate, ...]
    versions: dict[str, str]

    def empty_interval_ns(self) -> float | None:
        """Median time between two events with nothing in between; None if unknown."""

    def measure(
        self, problem: Problem, protocol: TimingProtocol, which: Sequence[int], order: Ints
    ) -> list[Measurement]:
        """One Measurement for each index in ``which``, in that order.

        Args:
            problem: what to compute.
            protocol: how to time it.
            which: indices into ``candidates``.
            order: [rounds, len(which)], each row a permutation of positions in ``which``: who runs when.
        """


class _Job(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int) for name in ("bits", "xor_popc", "m", "n", "k", "cold", "rounds", "candidates")),
        ("entry", ctypes.POINTER(ctypes.c_int)),
        ("order", ctypes.POINTER(ctypes.c_int)),
        ("hot_fill_ns", ctypes.c_int64),
        ("hot_max_launches", ctypes.c_int),
        ("reference_macs", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
        ("external", ctypes.c_void_p),
    )


class _Results(ctypes.Structure):
    _fields_ = (
        ("elapsed_ns", ctypes.POINTER(ctypes.c_int64)),
        ("launches", ctypes.POINTER(ctypes.c_int)),
        ("outcome", ctypes.POINTER(ctypes.c_int)),
        ("detail", ctypes.POINTER(ctypes.c_int64)),
    )


_EXTERNAL = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3, *[ctypes.c_int] * 3, ctypes.c_void_p)

#: ta_outcome -> status and sentence; {} is the detail.
_OUTCOMES = {
    1: (Status.INFEASIBLE, "the kernel cannot implement this problem"),
    2: (Status.LAUNCH_FAILED, "the launch failed (CUDA error {})"),
    3: (Status.WRONG_RESULT, "row {} of the output is wrong"),
    4: (Status.WRONG_RESULT, "the kernel wrote outside its output (guard word {})"),
    5: (Status.WRONG_RESULT, "element {} of the output differs from the direct reference"),
    6: (Status.WRONG_RESULT, "row {} of the output of the last timed launch is wrong"),
}


def load_library(path: Path) -> ctypes.CDLL:
    """Load a kernel library and declare its functions; works without a driver.

    Raises:
        MeasureError: not a kernel library, or one of another ABI version.
    """
    try:
        lib = ctypes.CDLL(str(path))
        lib.ta_id.restype = lib.ta_error.restype = ctypes.c_char_p
        lib.ta_open.restype = ctypes.c_void_p
    except (OSError, AttributeError) as error:
        raise MeasureError(f"{path}: not a kernel library ({error}); build it again") from None
    lib.ta_open.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_double, ctypes.c_uint64]
    lib.ta_measure.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Job), ctypes.POINTER(_Results)]
    lib.ta_empty_intervals.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_int64)]
    lib.ta_close.argtypes = [ctypes.c_void_p]
    if lib.ta_abi_version() != ABI_VERSION:
        raise MeasureError(f"{path}: ABI version {lib.ta_abi_version()}, expected {ABI_VERSION}; build it again")
    return lib


class GpuRunner:
    """Drives one kernel library on one GPU; a context manager that gives the memory back."""

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
        vendor: tuple[str, External] | None = None,
    ) -> None:
        """Open the GPU and set aside memory for the largest of ``problems`` that fits it.

        Raises:
            NoGpuError: no driver or no GPU. MeasureError: not enough memory, or not a kernel library.
        """
        self._lib = load_library(path)
        if self._lib.ta_gpus() < 0:
            raise NoGpuError(self._message())
        self.device = device
        self.versions = dict(library.versions)
        self._failures = {failure.id: failure.reason for failure in library.failures}
        entries = {self._lib.ta_id(i).decode(): i for i in range(self._lib.ta_count())}
        control = Candidate(id=f"{templates[default].id}#control", origin="control", template=templates[default])
        found = [Candidate(id=t.id, template=t) for t in templates] + [control]
        self._entry = [entries.get(t.id) for t in (*templates, templates[default])]
        self._external = self._vendor = None
        if vendor:
            found.append(Candidate(id=vendor[0], origin="vendor"))
            self._entry.append(-1)
            self._vendor = _Guarded(vendor[1])
            self._external = _EXTERNAL(self._vendor)
        self.candidates = tuple(found)
        fitting = [p for p in problems if space.memory_needed(p) <= device.memory_bytes]
        operand = max((p.operand_bytes for p in fitting), default=0)
        output = max((p.output_bytes for p in fitting), default=0)
        self._context = self._lib.ta_open(ordinal, operand, output, l2_multiple, seed)
        if not self._context:
            raise MeasureError(f"GPU {ordinal} cannot be opened for these problems: {self._message()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lib.ta_close(self._context)

    def _message(self) -> str:
        return str(self._lib.ta_error().decode())

    def empty_interval_ns(self, count: int = 256) -> float:
        """Median time between two events with nothing in between."""
        out = np.zeros(count, dtype=np.int64)
        if self._lib.ta_empty_intervals(self._context, count, _pointer(out, ctypes.c_int64)):
            raise MeasureError(f"the GPU failed: {self._message()}")
        return float(np.median(out))

    def measure(
        self, problem: Problem, protocol: TimingProtocol, which: Sequence[int], order: Ints
    ) -> list[Measurement]:
        """See `Runner.measure`. A hold of the stream that expired is repeated, at most three times.

        Raises:
            DeviceFailedError: an illegal address, say; nothing more can run in this process.
        """
        refused = {i: self._refusal(problem, i) for i in which}
        alive = [position for position, i in enumerate(which) if refused[i] is None]
        timed = self._run(problem, protocol, [which[p] for p in alive], _renumber(order, alive)) if alive else []
        rows = {which[p]: row for p, row in zip(alive, timed, strict=True)}
        for i in which:
            if i not in rows:
                status, reason = refused[i] or (Status.LAUNCH_FAILED, "not run")
                rows[i] = Measurement(m=problem.m, n=problem.n, k=problem.k, candidate=i, status=status, reason=reason)
        return [rows[i] for i in which]

    def _refusal(self, problem: Problem, candidate: int) -> tuple[Status, str] | None:
        template = self.candidates[candidate].template
        if template is None:
            return None
        if template.id in self._failures:
            return Status.BUILD_FAILED, self._failures[template.id]
        if self._entry[candidate] is None:
            return Status.BUILD_FAILED, "the kernel library does not hold this template"
        reason = space.rejection(problem, template, self.device)
        return (Status.INFEASIBLE, reason) if reason else None

    def _run(self, problem: Problem, protocol: TimingProtocol, which: Sequence[int], order: Ints) -> list[Measurement]:
        count, rounds = len(which), len(order)
        entry = np.array([self._entry[i] for i in which], dtype=np.int32)
        turns = np.ascontiguousarray(order, dtype=np.int32)
        elapsed = np.zeros((count, rounds), dtype=np.int64)
        launches, outcome = np.zeros(count, dtype=np.int32), np.zeros(count, dtype=np.int32)
        detail = np.zeros(count, dtype=np.int64)
        job = _Job(
            bits=BITS[problem.dtype],
            xor_popc=problem.bit_op == "xor",
            m=problem.m,
            n=problem.n,
            k=problem.k,
            cold=protocol.name == "cold",
            rounds=rounds,
            candidates=count,
            entry=_pointer(entry, ctypes.c_int),
            order=_pointer(turns, ctypes.c_int),
            hot_fill_ns=protocol.hot_fill_ns,
            hot_max_launches=protocol.hot_max_launches,
            reference_macs=REFERENCE_MACS,
            seed=int(fingerprint([protocol.seed, problem.m, problem.n, problem.k]), 16),
            external=ctypes.cast(self._external, ctypes.c_void_p) if self._external else None,
        )
        results = _Results(
            _pointer(elapsed, ctypes.c_int64),
            _pointer(launches, ctypes.c_int),
            _pointer(outcome, ctypes.c_int),
            _pointer(detail, ctypes.c_int64),
        )
        for _ in range(3):
            code = self._lib.ta_measure(self._context, ctypes.byref(job), ctypes.byref(results))
            if code < 0:
                shape = f"{problem.m}x{problem.n}x{problem.k} {problem.dtype}"
                raise DeviceFailedError(f"the GPU failed at {shape}: {self._message()}; run it again to go on after it")
            if code == 0:
                return [
                    self._row(problem, i, elapsed[p], int(launches[p]), int(outcome[p]), int(detail[p]))
                    for p, i in enumerate(which)
                ]
        raise MeasureError(f"launching took longer than 0.5 s three times at {problem!r}; is the machine overloaded?")

    def _row(
        self, problem: Problem, candidate: int, elapsed_ns: Ints, launches: int, outcome: int, detail: int
    ) -> Measurement:
        shape = {"m": problem.m, "n": problem.n, "k": problem.k, "candidate": candidate}
        if not outcome:
            times = {"status": Status.OK, "elapsed_ns": elapsed_ns.tolist(), "launches": launches}
            return Measurement.model_validate(shape | times)
        status, sentence = _OUTCOMES[outcome]
        reason = sentence.format(detail)
        if status is Status.LAUNCH_FAILED and self._vendor and self.candidates[candidate].origin == "vendor":
            reason = f"the vendor's call failed: {self._vendor.message}"
        return Measurement.model_validate(shape | {"status": status, "reason": reason})


def _renumber(order: Ints, alive: Sequence[int]) -> Ints:
    """The same turns without the positions that do not run."""
    new = np.full(order.shape[1], -1)
    new[list(alive)] = np.arange(len(alive))
    kept = new[order]
    return kept[kept >= 0].reshape(len(order), len(alive))


class _Guarded:
    """Exceptions cannot cross a C frame: they become "launch failed", and the message is kept."""

    def __init__(self, external: External) -> None:
        self._external, self.message = external, ""

    def __call__(self, *arguments: int) -> int:
        try:
            return self._external(*arguments)
        except Exception as error:
            self.message = (str(error).splitlines() or [type(error).__name__])[0]
            return 2


def _pointer(array: np.ndarray[Any, Any], ctype: Any) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(ctype))
