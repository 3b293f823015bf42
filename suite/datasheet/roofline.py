"""How much a problem computes and moves, and the published peaks of a card that bound how fast that can go."""

from dataclasses import dataclass

import numpy as np

from tilearena.records import BITS, Dtype
from tilearena.table import Floats, Ints


@dataclass(frozen=True)
class Peak:
    """Published peaks: dense tensor operations a second by dtype, in 10^12, and bytes of DRAM a second, in 10^9."""

    tops: dict[Dtype, float]
    dram_gb_s: float
    source: str


#: By product name. NVIDIA gives int8 "with sparsity", which is twice the dense rate; it publishes none for b1, and none
#: for s4 on Hopper, where it is emulated.
PEAKS = {
    "NVIDIA H200": Peak(
        tops={"s8": 3958 / 2},
        dram_gb_s=4800,
        source="https://www.nvidia.com/en-us/data-center/h200/ (H200 SXM: INT8 Tensor Core 3,958 TOPS with sparsity, "
        "GPU memory bandwidth 4.8 TB/s)",
    )
}


def operations(problems: Ints) -> Floats:
    """Operations of each problem [P] of ``problems`` [P, 3] (m, n, k): two a multiply-add, of one bit also."""
    m, n, k = problems.T.astype(np.float64)
    count: Floats = 2.0 * m * n * k
    return count


def moved_bytes(problems: Ints, dtype: Dtype) -> Floats:
    """Bytes of A, B (``dtype``) and D (s32) of each problem [P]: the least that can be moved, each of them once."""
    m, n, k = problems.T.astype(np.float64)
    moved: Floats = (m + n) * k * BITS[dtype] / 8 + 4 * m * n
    return moved
