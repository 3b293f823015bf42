"""The vendor's kernels beside ours: where cuBLASLt's library lies, and kernels that Python enqueues."""

import ctypes.util
import operator
import sysconfig
from collections.abc import Callable
from pathlib import Path

#: Id of the vendor's candidate that speedups are over: the first answer of cuBLASLt's heuristic, called directly.
CUBLASLT = "cublaslt"

#: Enqueues D = A x B so many times on a stream: (a, b, d, m, n, k, launches, stream) -> 0, or 1 where it does not serve
#: the problem.
External = Callable[[int, int, int, int, int, int, int, int], int]


def find_cublaslt() -> Path | None:
    """The shared library of cuBLASLt: of the PyPI wheels (nvidia-cublas, which torch brings), else the system's."""
    for root in dict.fromkeys(sysconfig.get_paths()[key] for key in ("purelib", "platlib")):
        found = sorted(Path(root).glob("nvidia/*/lib/libcublasLt.so.*"))
        if found:
            return found[-1]
    name = ctypes.util.find_library("cublasLt")
    return Path(name) if name else None


class Guarded:
    """Exceptions cannot cross a C frame: they become "launch failed", and the message is kept.

    Attributes:
        messages: the last one by (M, N, K): calls for two problems are interleaved.
    """

    def __init__(self, external: External) -> None:
        self._external = external
        self.messages: dict[tuple[int, ...], str] = {}

    def __call__(self, *arguments: int) -> int:
        """Pass the call on; 2 where it raises, whatever that is, or answers no integer."""
        shape = arguments[3:6]
        try:
            answer = operator.index(self._external(*arguments))
        except BaseException as error:
            self.messages[shape] = _sentence(error)
            return 2
        self.messages.pop(shape, None)
        return answer


def _sentence(error: BaseException) -> str:
    try:
        return str(error).splitlines()[0]
    except Exception:  # it has no text, or cannot say it
        return type(error).__name__
