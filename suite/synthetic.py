"""Made-up templates, problems and times to try predictors on.

The times come of a small analytic model with wave quantisation and noise, good enough to fit; nothing was measured.
"""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from tilearena.records import BITS, K_ALIGNMENT, MAX_EXTENT, N_ALIGNMENT, BitOp, Device, Dtype, Template
from tilearena.table import Floats, Ints, Table, Task

#: Name -> threadblock and warp extents (m, n) of the synthetic space.
SYNTHETIC_TILES = {"large": ((128, 256), (64, 64)), "medium": ((128, 128), (64, 64)), "small": ((64, 64), (32, 32))}
#: Tiles and variants that the synthetic space lacks.
OTHER_TILES = {
    "wide": ((64, 256), (32, 64)),
    "tall": ((256, 64), (64, 32)),
    "narrow": ((16, 128), (16, 32)),
    "thin": ((128, 32), (32, 32)),
}
OTHER_VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"split_k": 2},
    {"split_k": 4},
    {"split_k": 8},
    {"swizzle": 2},
    {"split_k": 4, "swizzle": 2},
)
#: What the templates of the other generator, of s8, have of their own.
HOPPER: tuple[dict[str, Any], ...] = (
    {"schedule": "pingpong", "cluster": (2, 1)},
    {"schedule": "cooperative", "stream_k": True},
    {"schedule": "warp_specialized", "swapped": True},
    {"schedule": "warp_specialized", "swapped": True, "split_k": 4, "adding": True},
)
STEP_BITS = 512
DEVICE = Device(
    slug="synthetic",
    product="synthetic",
    compute_capability=(8, 0),
    sm_count=100,
    l2_bytes=40 << 20,
    memory_bytes=32 << 30,
    smem_per_block_bytes=163 << 10,
    smem_per_sm_bytes=164 << 10,
)


def _bit_op(dtype: Dtype) -> BitOp | None:
    return "and" if dtype == "b1" else None


def _templates(dtype: Dtype, tiles: dict[str, Any], stages: tuple[int, ...], **variant: Any) -> tuple[Template, ...]:
    """CUTLASS 2.x templates on ``mma.sync`` of 256 bits of K."""
    step, bit_op = STEP_BITS // BITS[dtype], _bit_op(dtype)
    suffix = "".join(f"/{key}" for key in variant)
    return tuple(
        Template(
            dtype=dtype,
            bit_op=bit_op,
            label=f"{label}/{count}{suffix}",
            threadblock=(*block, step),
            warp=(*warp, step),
            instruction=(16, 8, 256 // BITS[dtype]),
            stages=count,
            **variant,
        )
        for (label, (block, warp)), count in product(tiles.items(), stages)
    )


def _hopper_templates() -> tuple[Template, ...]:
    """CUTLASS 3.x templates on ``wgmma``, of which a warp group multiplies 64 rows."""
    return tuple(
        Template(
            generator="cutlass3",
            dtype="s8",
            label=f"{label}/{kind['schedule']}" + "/k4" * ("adding" in kind),
            threadblock=(m, n, 128),
            warp=(64, n, 128),
            instruction=(64, n, 32),
            stages=4,
            **kind,
        )
        for (label, ((m, n), _)), kind in product(SYNTHETIC_TILES.items(), HOPPER)
    )


def synthetic_task(dtype: Dtype = "s8") -> Task:
    """Nine templates, three tiles x 2..4 stages, on a made-up device of 100 SMs."""
    templates = _templates(dtype, SYNTHETIC_TILES, (2, 3, 4))
    return Task("gemm", dtype, _bit_op(dtype), "synthetic", templates, 1, DEVICE, "hot")


def wide_task(dtype: Dtype = "s8", stages: tuple[int, ...] = (3, 5)) -> Task:
    """A space that holds the nine and others: more tiles, split-K, swizzles, and for s8 CUTLASS 3.x templates."""
    task = synthetic_task(dtype)
    others = [t for variant in OTHER_VARIANTS for t in _templates(dtype, OTHER_TILES, stages, **variant)]
    if dtype == "s8":
        others += _hopper_templates()
    # the nine are not the first ones, so their places tell nothing
    templates = (*others, *task.templates)
    return replace(task, space="synthetic-wide", templates=templates, default=len(others) + task.default)


def synthetic_time_ns(problems: Ints, task: Task) -> Floats:
    """Made-up times [P, T]: whole waves x (steps + pipeline fill) x the larger of arithmetic and latency."""
    m, n, k = (problems[:, axis, None].astype(np.float64) for axis in range(3))
    tile_m, tile_n, tile_k = (np.array([t.threadblock[axis] for t in task.templates]) for axis in range(3))
    stages = np.array([t.stages for t in task.templates])
    slices = np.array([t.split_k for t in task.templates])
    waves = np.ceil(slices * np.ceil(m / tile_m) * np.ceil(n / tile_n) / task.device.sm_count)
    steps = np.ceil(k / tile_k / slices)
    arithmetic_ns = tile_m * tile_n / 110.0 + 20.0 * stages
    time_ns: Floats = 2000.0 + waves * (steps + stages) * np.maximum(arithmetic_ns, 400.0 / (stages - 1))
    return time_ns


def synthetic_table(n_problems: int = 200, seed: int = 0, dtype: Dtype = "s8", task: Task | None = None) -> Table:
    """Distinct log-uniform problems and their made-up times with 0.5 % noise; the first template fails on some."""
    rng, task = np.random.default_rng(seed), task or synthetic_task(dtype)
    unit = np.array([1, N_ALIGNMENT, K_ALIGNMENT[task.dtype]])
    upper = np.log2(np.array([16384, 16384, 16384]) / unit)
    drawn = np.unique(np.floor(2 ** (rng.random((2 * n_problems, 3)) * upper)).astype(np.int64) * unit, axis=0)
    problems = rng.permutation(drawn)[:n_problems]
    time_ns = synthetic_time_ns(problems, task) * np.exp(rng.normal(0.0, 0.005, (len(problems), len(task.templates))))
    time_ns[rng.random(len(problems)) < 0.05, 0] = np.inf
    return Table(task, problems, time_ns)


def extreme_problems(dtype: Dtype) -> Ints:
    """Every mixture of the least, a ragged and the largest extent of M, N and K: int64 [27, 3]."""
    unit = (1, N_ALIGNMENT, K_ALIGNMENT[dtype])
    extents = ((1, 4099, MAX_EXTENT), *((u, 517 * u, MAX_EXTENT) for u in unit[1:]))
    return np.array(list(product(*extents)), dtype=np.int64)


def failing_table(dtype: Dtype) -> Table:
    """The synthetic table where half of the times are missing: one template never worked, and on 20 problems none."""
    table = synthetic_table(dtype=dtype)
    failed = np.random.default_rng(1).random(table.time_ns.shape) < 0.5
    failed[:, 4] = True
    failed[:20] = True
    return replace(table, time_ns=np.where(failed, np.inf, table.time_ns))
