"""The C interface of a kernel library, as declared in kernels/abi.h, for ctypes."""

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tilearena.errors import MeasureError

VERSION = 5
#: Entries of a job that are no templates of the library: cuBLASLt, and the externals from the first one downwards.
ENTRY_CUBLASLT = -1
ENTRY_EXTERNAL = -2

#: ta_external: (a, b, d, m, n, k, launches, stream) -> 0, 1 where it does not serve the problem, 2 where it failed.
EXTERNAL = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3, *[ctypes.c_int] * 4, ctypes.c_void_p)


class Options(ctypes.Structure):
    """ta_options."""

    _fields_ = (
        ("ordinal", ctypes.c_int),
        ("sm_count", ctypes.c_int),
        ("operand_bytes", ctypes.c_int64),
        ("output_bytes", ctypes.c_int64),
        ("l2_multiple", ctypes.c_double),
        ("seed", ctypes.c_uint64),
        ("cublaslt", ctypes.c_char_p),
    )


class Job(ctypes.Structure):
    """ta_job."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("bits", "xor_popc", "m", "n", "k", "cold", "held", "candidates")),
        ("entry", ctypes.POINTER(ctypes.c_int)),
        ("hot_fill_ns", ctypes.c_int64),
        ("hot_max_launches", ctypes.c_int),
        ("launches", ctypes.c_int),
        ("reference_macs", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
        ("externals", ctypes.POINTER(EXTERNAL)),
    )


class _Proof(ctypes.Structure):
    _fields_ = (
        ("launches", ctypes.POINTER(ctypes.c_int)),
        ("outcome", ctypes.POINTER(ctypes.c_int)),
        ("detail", ctypes.POINTER(ctypes.c_int64)),
    )


@dataclass(frozen=True)
class Proof:
    """ta_proof with the arrays that it points to, one element a candidate of the job."""

    launches: npt.NDArray[np.int32]
    outcome: npt.NDArray[np.int32]
    detail: npt.NDArray[np.int64]
    reference: Any

    @classmethod
    def of(cls, candidates: int) -> Self:
        """Arrays for so many candidates."""
        launches, outcome = (np.zeros(candidates, dtype=np.int32) for _ in range(2))
        detail = np.zeros(candidates, dtype=np.int64)
        raw = _Proof(pointer(launches, ctypes.c_int), pointer(outcome, ctypes.c_int), pointer(detail, ctypes.c_int64))
        return cls(launches, outcome, detail, ctypes.byref(raw))


def load_library(path: Path) -> ctypes.CDLL:
    """Load a kernel library and declare its functions; works without a driver.

    Raises:
        MeasureError: not a kernel library, or one of another ABI version.
    """
    try:
        lib = ctypes.CDLL(str(path))
        lib.ta_id.restype = lib.ta_error.restype = ctypes.c_char_p
        lib.ta_open.restype = ctypes.c_void_p
        lib.ta_cublaslt_version.restype = ctypes.c_int64
    except (OSError, AttributeError) as error:
        raise MeasureError(f"{path}: not a kernel library ({error}); build it again") from None
    if lib.ta_abi_version() != VERSION:
        raise MeasureError(f"{path}: ABI version {lib.ta_abi_version()}, expected {VERSION}; build it again")
    int_p, int64_p = ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int64)
    lib.ta_open.argtypes = [ctypes.POINTER(Options)]
    slot: list[Any] = [ctypes.c_void_p, ctypes.c_int]
    lib.ta_prove.argtypes = [*slot, ctypes.POINTER(Job)]
    lib.ta_begin.argtypes = [*slot, ctypes.POINTER(_Proof)]
    lib.ta_submit.argtypes = [*slot, ctypes.c_int, int_p]
    lib.ta_collect.argtypes = [*slot, int64_p, ctypes.POINTER(_Proof)]
    lib.ta_empty_intervals.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, int64_p]
    lib.ta_close.argtypes = lib.ta_cublaslt_version.argtypes = [ctypes.c_void_p]
    return lib


def pointer(array: np.ndarray[Any, Any], ctype: Any) -> Any:
    """A C pointer to the elements of ``array``."""
    return array.ctypes.data_as(ctypes.POINTER(ctype))
