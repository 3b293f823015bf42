"""The C interface of a kernel library, as ctypes sees it."""

import ctypes

import numpy as np
import pytest

from tilearena import abi
from tilearena.errors import MeasureError


def test_structures_have_the_layout_of_the_header():
    # offsets as a C compiler for 64 bits lays out kernels/abi.h
    assert (abi.Options.operand_bytes.offset, abi.Options.cublaslt.offset, ctypes.sizeof(abi.Options)) == (8, 40, 48)
    assert (abi.Job.entry.offset, abi.Job.launches.offset, abi.Job.reference_macs.offset) == (32, 52, 56)
    assert ctypes.sizeof(abi.Job) == 80


def test_file_that_is_no_kernel_library_is_refused(tmp_path):
    for name, data in (("text.so", b"not ELF"), ("empty.so", b"")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(MeasureError, match=f"{name}: not a kernel library .*; build it again"):
            abi.load_library(tmp_path / name)


def test_proof_holds_its_arrays():
    proof = abi.Proof.of(3)
    raw = proof.reference._obj
    raw.outcome[2], raw.detail[1], raw.launches[0] = 6, 1 << 40, 20
    assert (proof.outcome.tolist(), proof.detail.tolist(), proof.launches.tolist()) == (
        [0, 0, 6],
        [0, 1 << 40, 0],
        [20, 0, 0],
    )
    assert proof.outcome.dtype == np.int32
