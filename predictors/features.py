"""What a template does to a problem: tiles, waves, occupancy, traffic; shared by the heuristic and the GBDT.

P problems, T templates; arrays are [P, T] where both matter, [P, 1] or [1, T] where one does.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilearena.dataset import Floats, Ints, Task
from tilearena.records import BITS, Device, Template

#: Limits of one SM on sm_80 and sm_90 (CUDA C++ Programming Guide, table "Technical Specifications per Compute
#: Capability"). sm_86 and sm_89 hold 1,536 threads and fewer blocks; registers bind the templates before that.
REGISTERS_PER_SM, THREADS_PER_SM, BLOCKS_PER_SM = 65_536, 2_048, 32
#: Shared memory that the runtime keeps in each block (same guide, section on compute capability 8.x).
RESERVED_SMEM_BYTES = 1_024


@dataclass(frozen=True)
class Geometry:
    """Counts that follow from shapes alone."""

    m: Floats
    n: Floats
    k: Floats
    row_bytes: Floats  # [P, 1] bytes of one row of A (and of one column of B)
    tile_m: Floats  # [1, T]
    tile_n: Floats  # [1, T]
    step_bytes: Floats  # [1, T] bytes of K in one main-loop step
    warp_m: Floats  # [1, T]
    warp_n: Floats  # [1, T]
    warps: Floats  # [1, T]
    stages: Floats  # [1, T]
    occupancy: Floats  # [1, T] blocks that one SM can hold
    tiles: Floats  # [P, T] threadblocks
    steps: Floats  # [P, T] main-loop iterations of a threadblock
    sm_count: float
    l2_bytes: float

    @property
    def resident(self) -> Floats:
        """[P, T] blocks that really share the busiest SM in the first wave."""
        return np.minimum(self.occupancy, np.ceil(self.tiles / self.sm_count))

    @property
    def waves(self) -> Floats:
        """[P, T] whole waves of ``sm_count * occupancy`` blocks."""
        return np.ceil(self.tiles / (self.sm_count * self.occupancy))

    @property
    def blocks_per_busiest_sm(self) -> Floats:
        """[P, T] blocks that the busiest SM works through, if they are spread evenly."""
        return np.ceil(self.tiles / self.sm_count)

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
        """[P, T] bytes that all blocks together load from L2; rows outside of A and B are not loaded."""
        columns, rows = np.ceil(self.n / self.tile_n), np.ceil(self.m / self.tile_m)
        return (self.m * columns + self.n * rows) * self.row_bytes


def registers_per_thread(template: Template) -> int:
    """Estimate: accumulators, two sets of operand fragments, and 40 for addresses and loop state; at most 255.

    The two sets are CUTLASS's double-buffered warp fragments (``mma_multistage.h``); 40 is what compiled kernels show
    beyond both (64x64 warps: about 232 in all, 32x32 warps: about 104).
    """
    warp_m, warp_n, _ = template.warp
    fragment_bytes = (warp_m + warp_n) * template.instruction[2] * BITS[template.dtype] // 8
    estimate = (warp_m * warp_n + 2 * fragment_bytes // 4) // 32 + 40
    return min(255, -(-estimate // 8) * 8)


def occupancy(template: Template, device: Device) -> int:
    """Blocks of a template that one SM holds at the same time, by shared memory, threads and registers; at least 1."""
    threads = 32 * template.warps
    return max(
        1,
        min(
            device.smem_per_sm_bytes // (template.smem_bytes + RESERVED_SMEM_BYTES),
            THREADS_PER_SM // threads,
            REGISTERS_PER_SM // (threads * registers_per_thread(template)),
            BLOCKS_PER_SM,
        ),
    )


def geometry(problems: Ints, task: Task) -> Geometry:
    """Counts for int64 [P, 3] problems (m, n, k) and the task's T templates on its device."""
    m, n, k = (problems[:, axis, None].astype(np.float64) for axis in range(3))
    bits = BITS[task.dtype]

    def row(values: list[int]) -> Floats:
        return np.array(values, dtype=np.float64)[None, :]

    tile_m, tile_n, tile_k = (row([t.threadblock[axis] for t in task.templates]) for axis in range(3))
    return Geometry(
        m=m,
        n=n,
        k=k,
        row_bytes=k * bits / 8,
        tile_m=tile_m,
        tile_n=tile_n,
        step_bytes=tile_k * bits / 8,
        warp_m=row([t.warp[0] for t in task.templates]),
        warp_n=row([t.warp[1] for t in task.templates]),
        warps=row([t.warps for t in task.templates]),
        stages=row([t.stages for t in task.templates]),
        occupancy=row([occupancy(t, task.device) for t in task.templates]),
        tiles=np.ceil(m / tile_m) * np.ceil(n / tile_n),
        steps=np.ceil(k / tile_k),
        sm_count=float(task.device.sm_count),
        l2_bytes=float(task.device.l2_bytes),
    )


def features(problems: Ints, task: Task) -> npt.NDArray[np.float32]:
    """Inputs of a learned model, float32 [P, T, F]: sizes as log2, shares and efficiencies as they are."""
    g = geometry(problems, task)
    per_sm, per_wave = g.tiles / g.sm_count, g.tiles / (g.sm_count * g.occupancy)
    columns = [
        np.log2(g.m),
        np.log2(g.n),
        np.log2(g.k),
        np.log2(g.m * g.n * g.k),
        np.log2(g.operand_bytes / g.l2_bytes),
        np.log2(g.output_bytes / g.l2_bytes),
        np.log2(g.m * g.n * g.k / (g.operand_bytes + g.output_bytes)),
        # where rows start relative to sectors, cache lines and channels
        np.log2(np.gcd(g.row_bytes.astype(np.int64), 4096)),
        np.log2(np.gcd(4 * g.n.astype(np.int64), 4096)),
        np.log2(g.tile_m),
        np.log2(g.tile_n),
        np.log2(g.step_bytes),
        np.log2(g.warp_m * g.warp_n),
        np.log2(g.warps),
        g.stages,
        g.occupancy,
        np.log2(g.tiles),
        np.log2(g.steps),
        g.steps / (g.steps + g.stages - 1),
        np.log2(per_sm),
        per_sm / np.ceil(per_sm),
        per_wave / np.ceil(per_wave),
        per_wave - np.floor(per_wave),
        np.log2(g.waves),
        g.resident,
        g.resident * g.warps,
        np.log2(g.blocks_per_busiest_sm * g.steps * g.tile_m * g.tile_n),
        g.padded_share,
        np.log2(g.tile_traffic_bytes),
        np.log2(g.tile_traffic_bytes / g.operand_bytes),
        np.log2(g.sm_count),
    ]
    shape = (len(problems), len(task.templates))
    return np.stack([np.broadcast_to(c, shape) for c in columns], axis=-1, dtype=np.float32)
