"""Start and end of every kernel, from CUPTI's activity records, through ctypes.

The five functions and the head of the kernel record (CUpti_ActivityKernel4 to 12: start at byte 16, end at 24, name at
104) are the same in all versions of CUPTI since 9, so that whichever library the machine has will do.
"""

import ctypes
import ctypes.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

CONCURRENT_KERNEL = 10
FLUSH_FORCED = 1
BUFFER_BYTES = 8 << 20

_REQUESTED = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_COMPLETED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


@dataclass(frozen=True, order=True)
class Kernel:
    """One launch; times in ns."""

    start_ns: int
    end_ns: int
    name: str

    @classmethod
    def at(cls, address: int) -> Self:
        """Read a kernel record."""
        start_ns, end_ns = (ctypes.c_uint64 * 2).from_address(address + 16)
        name = ctypes.c_char_p.from_address(address + 104).value or b""
        return cls(start_ns, end_ns, name.decode())


def find_library() -> str:
    """Path of libcupti: of the PyPI wheel nvidia-cuda-cupti, else the system's CUDA.

    Raises:
        FileNotFoundError: there is none.
    """
    wheels = [p for entry in sys.path for p in sorted(Path(entry or ".").glob("nvidia/*/lib/libcupti.so.*"))]
    system = sorted(Path("/usr/local").glob("cuda*/extras/CUPTI/lib64/libcupti.so"))
    found = [str(path) for path in (*wheels, *system)]
    if name := ctypes.util.find_library("cupti"):
        found.append(name)
    if not found:
        raise FileNotFoundError("libcupti is missing; run: pip install nvidia-cuda-cupti")
    return found[0]


class Recorder:
    """CUPTI in this process, switched on inside a ``with`` block.

    Loading it may disturb, so compare with what was timed before. Between the launches that are wanted it stays on:
    what it sets up at the first launch after it was switched on may wait for the stream.
    """

    def __init__(self) -> None:
        self.path = find_library()
        self._lib = ctypes.CDLL(self.path)
        self._lib.cuptiActivityGetNextRecord.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        self._buffers: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self._kernels: list[Kernel] = []
        self._callbacks = _REQUESTED(self._requested), _COMPLETED(self._completed)  # must outlive the library's use
        self._check(self._lib.cuptiActivityRegisterCallbacks(*self._callbacks))

    @property
    def version(self) -> int:
        """CUPTI's API version."""
        version = ctypes.c_uint32()
        self._check(self._lib.cuptiGetVersion(ctypes.byref(version)))
        return version.value

    def __enter__(self) -> Self:
        self._check(self._lib.cuptiActivityEnable(CONCURRENT_KERNEL))
        return self

    def __exit__(self, *_: object) -> None:
        self._check(self._lib.cuptiActivityFlushAll(FLUSH_FORCED))
        self._check(self._lib.cuptiActivityDisable(CONCURRENT_KERNEL))

    @contextmanager
    def recording(self) -> Iterator[list[Kernel]]:
        """Kernels that run inside; the list is filled, in order of start, when the block is left."""
        kernels: list[Kernel] = []
        self._check(self._lib.cuptiActivityFlushAll(FLUSH_FORCED))
        self._kernels = []
        yield kernels
        self._check(self._lib.cuptiActivityFlushAll(FLUSH_FORCED))
        kernels.extend(sorted(self._kernels))

    def _requested(self, buffer, size, max_records) -> None:  # type: ignore[no-untyped-def]
        memory = ctypes.create_string_buffer(BUFFER_BYTES)
        address = ctypes.addressof(memory)
        self._buffers[address] = memory
        buffer[0], size[0], max_records[0] = address, BUFFER_BYTES, 0

    def _completed(self, context: int, stream: int, buffer: int, size: int, valid: int) -> None:
        record = ctypes.c_void_p()
        while valid and not self._lib.cuptiActivityGetNextRecord(buffer, valid, ctypes.byref(record)):
            assert record.value is not None
            if ctypes.c_uint32.from_address(record.value).value == CONCURRENT_KERNEL:
                self._kernels.append(Kernel.at(record.value))
        self._buffers.pop(buffer, None)

    def _check(self, code: int) -> None:
        if code:
            raise RuntimeError(f"CUPTI ({self.path}) answered with error {code}")
