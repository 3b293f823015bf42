"""What a template does to a problem: tiles, waves, occupancy, traffic; shared by the heuristic and the learned models.

P problems, T templates; arrays are [P, T] where both matter, [P, 1] or [1, T] where one does.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilearena.records import BITS, Device, Template
from tilearena.table import Floats, Ints, Task

#: Limits of one SM on sm_80 and sm_90 (CUDA C++ Programming Guide, table "Technical Specifications per Compute
#: Capability"). sm_86 and sm_89 hold 1,536 threads and fewer blocks; registers bind the templates before that.
REGISTERS_PER_SM, THREADS_PER_SM, BLOCKS_PER_SM = 65_536, 2_048, 32
#: Shared memory that the runtime keeps in each block (same guide, section on compute capability 8.x).
RESERVED_SMEM_BYTES = 1_024
#: Most shared memory that the epilogue of a cutlass3 kernel takes, estimated: it stages a part of D.
EPILOGUE_SMEM_BYTES = 32_768
WARP_GROUP = 128


@dataclass(frozen=True)
class Geometry:
    """Counts that follow from shapes alone."""

    m: Floats
    n: Floats
    k: Floats
    row_bytes: Floats  # [P, 1] bytes of one row of A (and of one column of B)
    tile_m: Floats  # [1, T]
    tile_n: Floats  # [1, T]
    tile_k: Floats  # [1, T]
    step_bytes: Floats  # [1, T] bytes of K in one main-loop step
    warp_m: Floats  # [1, T]
    warp_n: Floats  # [1, T]
    warps: Floats  # [1, T]
    stages: Floats  # [1, T]
    cluster_m: Floats  # [1, T]
    cluster_n: Floats  # [1, T]
    split_k: Floats  # [1, T] threadblocks that share the K of one tile of D
    adding: Floats  # [1, T] whether they do so by sums in memory
    occupancy: Floats  # [1, T] blocks that one SM can hold
    tiles: Floats  # [P, T] tiles of D
    blocks: Floats  # [P, T] threadblocks in whole clusters, or what a persistent one works through as if it were one
    steps: Floats  # [P, T] main-loop iterations of a threadblock
    sm_count: float
    l2_bytes: float

    @property
    def resident(self) -> Floats:
        """[P, T] blocks that really share the busiest SM in the first wave."""
        return np.minimum(self.occupancy, np.ceil(self.blocks / self.sm_count))

    @property
    def waves(self) -> Floats:
        """[P, T] whole waves of ``sm_count * occupancy`` blocks."""
        return np.ceil(self.blocks / (self.sm_count * self.occupancy))

    @property
    def blocks_per_busiest_sm(self) -> Floats:
        """[P, T] blocks that the busiest SM works through, if they are spread evenly."""
        return np.ceil(self.blocks / self.sm_count)

    @property
    def padded_share(self) -> Floats:
        """[P, T] share of the computed tiles' area that lies outside of D."""
        return 1.0 - self.m * self.n / (self.tiles * self.tile_m * self.tile_n)

    @property
    def operand_bytes(self) -> Floats:
        """[P, 1] bytes of A and B, which must come from DRAM once when they are cold."""
        return (self.m + self.n) * self.row_bytes

    @property
    def output_bytes(self) -> Floats:
        """[P, 1] bytes of D."""
        return 4.0 * self.m * self.n

    @property
    def tile_traffic_bytes(self) -> Floats:
        """[P, T] bytes that all tiles together need; rows outside of A and B are not loaded.

        Blocks of a cluster load what they share once.
        """
        columns = np.ceil(self.n / (self.tile_n * self.cluster_n))
        rows = np.ceil(self.m / (self.tile_m * self.cluster_m))
        return (self.m * columns + self.n * rows) * self.row_bytes


def registers_per_thread(template: Template) -> int:
    """Estimate: accumulators, two sets of operand fragments, and 40 for addresses and loop state; at most 255.

    The two sets are CUTLASS's double-buffered warp fragments (``mma_multistage.h``); 40 is what compiled kernels show
    beyond both (64x64 warps: about 232 in all, 32x32 warps: about 104). ``wgmma`` reads its operands from shared
    memory.
    """
    warp_m, warp_n, _ = template.warp
    if template.generator == "cutlass3":
        estimate = warp_m * warp_n // WARP_GROUP + 40
    else:
        fragment_bytes = (warp_m + warp_n) * template.instruction[2] * BITS[template.dtype] // 8
        estimate = (warp_m * warp_n + 2 * fragment_bytes // 4) // 32 + 40
    return min(255, -(-estimate // 8) * 8)


def occupancy(template: Template, device: Device) -> int:
    """Blocks of a template that one SM holds at the same time, by shared memory, threads and registers; at least 1.

    Pingpong and cooperative kernels are persistent, with one block on each SM.
    """
    if template.schedule in ("pingpong", "cooperative"):
        return 1
    threads = 32 * template.warps
    smem_bytes = template.smem_bytes + RESERVED_SMEM_BYTES
    if template.generator == "cutlass3":
        smem_bytes += min(EPILOGUE_SMEM_BYTES, 4 * template.threadblock[0] * template.threadblock[1])
    return max(
        1,
        min(
            device.smem_per_sm_bytes // smem_bytes,
            THREADS_PER_SM // threads,
            REGISTERS_PER_SM // (threads * registers_per_thread(template)),
            BLOCKS_PER_SM,
        ),
    )


def row(task: Task, value: Callable[[Template], float]) -> Floats:
    """``value`` of each template [1, T]."""
    return np.array([[value(template) for template in task.templates]], dtype=np.float64)


def geometry(problems: Ints, task: Task) -> Geometry:
    """Counts for int64 [P, 3] problems (m, n, k) and the task's T templates on its device."""
    m, n, k = (problems[:, axis, None].astype(np.float64) for axis in range(3))
    bits = BITS[task.dtype]
    tile_m, tile_n, tile_k = (row(task, lambda t, axis=axis: t.threadblock[axis]) for axis in range(3))  # type: ignore[misc]
    split_k = row(task, lambda t: t.split_k)
    cluster_m, cluster_n = (row(task, lambda t, axis=axis: t.cluster[axis]) for axis in range(2))  # type: ignore[misc]
    tiles = np.ceil(m / tile_m) * np.ceil(n / tile_n)
    clusters = np.ceil(m / (tile_m * cluster_m)) * np.ceil(n / (tile_n * cluster_n))
    return Geometry(
        m=m,
        n=n,
        k=k,
        row_bytes=k * bits / 8,
        tile_m=tile_m,
        tile_n=tile_n,
        tile_k=tile_k,
        step_bytes=tile_k * bits / 8,
        warp_m=row(task, lambda t: t.warp[0]),
        warp_n=row(task, lambda t: t.warp[1]),
        warps=row(task, lambda t: t.warps),
        stages=row(task, lambda t: t.stages),
        cluster_m=cluster_m,
        cluster_n=cluster_n,
        split_k=split_k,
        adding=row(task, lambda t: t.adding),
        occupancy=row(task, lambda t: occupancy(t, task.device)),
        tiles=tiles,
        blocks=clusters * cluster_m * cluster_n * split_k,
        steps=np.ceil(np.ceil(k / tile_k) / split_k),
        sm_count=float(task.device.sm_count),
        l2_bytes=float(task.device.l2_bytes),
    )
