"""Inputs of the learned models, the same for every space and device: docs/features.md says what each of them is.

Sizes are log2; shares and efficiencies are as they are. None names a template or counts SMs: what a template does to a
problem on a device is told by ratios, so that one model serves templates and devices that it never saw.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tilearena.predictors.geometry import Geometry, geometry, row
from tilearena.records import Schedule
from tilearena.table import Floats, Ints, Task

#: How many of a threadblock's warp groups multiply, or take turns.
SCHEDULES: dict[Schedule, int] = {"multistage": 0, "warp_specialized": 1, "pingpong": 2, "cooperative": 3}


def named_features(problems: Ints, task: Task, columns: Ints | None = None) -> dict[str, Floats]:
    """Every feature by name, broadcastable to [P, T], or [P, C] where ``columns`` [C] says of which templates."""
    some = task if columns is None else replace(task, templates=tuple(task.templates[i] for i in columns))
    g = geometry(problems, some)
    named = _of_problem(g) | _of_template(g, some) | _of_both(g, some)
    for name, every in _compared(geometry(problems, task), task).items():
        named[f"{name}_over_least"] = named[name] - every.min(axis=1, keepdims=True)
    return named


def features(problems: Ints, task: Task, columns: Ints | None = None) -> npt.NDArray[np.float32]:
    """Float32 [P, T, F] or [P, C, F], in the order of `named_features`."""
    shape = (len(problems), len(task.templates if columns is None else columns))
    named = named_features(problems, task, columns).values()
    return np.stack([np.broadcast_to(c, shape) for c in named], axis=-1, dtype=np.float32)


def _of_problem(g: Geometry) -> dict[str, Floats]:
    return {
        "m": np.log2(g.m),
        "n": np.log2(g.n),
        "k": np.log2(g.k),
        "macs": np.log2(g.m * g.n * g.k),
        "operand_l2s": np.log2(g.operand_bytes / g.l2_bytes),
        "output_l2s": np.log2(g.output_bytes / g.l2_bytes),
        "intensity": np.log2(g.m * g.n * g.k / (g.operand_bytes + g.output_bytes)),
        # where rows start relative to sectors, cache lines and channels
        "operand_pitch": np.log2(np.gcd(g.row_bytes.astype(np.int64), 4096)),
        "output_pitch": np.log2(np.gcd(4 * g.n.astype(np.int64), 4096)),
    }


def _of_template(g: Geometry, task: Task) -> dict[str, Floats]:
    return {
        "tile_m": np.log2(g.tile_m),
        "tile_n": np.log2(g.tile_n),
        "step_bytes": np.log2(g.step_bytes),
        "warp_area": np.log2(g.warp_m * g.warp_n),
        "warps": np.log2(g.warps),
        "stages": g.stages,
        "occupancy": g.occupancy,
        "smem_bytes": np.log2(row(task, lambda t: t.smem_bytes)),
        "split_k": np.log2(g.split_k),
        "adding": row(task, lambda t: t.adding),
        "stream_k": row(task, lambda t: t.stream_k),
        "swapped": row(task, lambda t: t.swapped),
        "wgmma": row(task, lambda t: t.generator == "cutlass3"),
        "schedule": row(task, lambda t: SCHEDULES[t.schedule]),
        "cluster_m": row(task, lambda t: t.cluster[0]),
        "cluster_n": row(task, lambda t: t.cluster[1]),
        "swizzle": row(task, lambda t: t.swizzle),
    }


def _compared(g: Geometry, task: Task) -> dict[str, Floats]:
    """Sizes that are also given relative to the least of all templates on the problem: the choice is between these."""
    # stream-K shares out tiles in parts, so that no SM is busier than another
    stream_k = row(task, lambda t: t.stream_k) > 0
    steps = np.where(stream_k, g.blocks / g.sm_count, g.blocks_per_busiest_sm) * g.steps
    return {
        "work": np.log2(steps * g.tile_m * g.tile_n * g.step_bytes),
        "traffic": np.log2(g.tile_traffic_bytes),
        "sm_bytes": np.log2((g.tile_m + g.tile_n) * g.step_bytes * steps),
        "steps": np.log2(g.steps),
    }


def _of_both(g: Geometry, task: Task) -> dict[str, Floats]:
    per_sm, per_wave = g.blocks / g.sm_count, g.blocks / (g.sm_count * g.occupancy)
    compared = _compared(g, task)
    return compared | {
        "tiles": np.log2(g.tiles),
        "blocks": np.log2(g.blocks),
        "pipeline": g.steps / (g.steps + g.stages - 1),
        "per_sm": np.log2(per_sm),
        "sm_fill": per_sm / g.blocks_per_busiest_sm,
        "wave_fill": per_wave / g.waves,
        "tail": per_wave - np.floor(per_wave),
        "waves": np.log2(g.waves),
        "resident": g.resident,
        "resident_warps": g.resident * g.warps,
        "work_per_byte": compared["work"] - np.log2(g.operand_bytes + g.output_bytes),
        "padded_share": g.padded_share,
        "m_fill": g.m / (np.ceil(g.m / g.tile_m) * g.tile_m),
        "n_fill": g.n / (np.ceil(g.n / g.tile_n) * g.tile_n),
        "k_fill": g.k / (np.ceil(g.k / g.tile_k) * g.tile_k),
        "rows": np.log2(np.minimum(g.m, g.tile_m)),
        "columns": np.log2(np.minimum(g.n, g.tile_n)),
        "reuse": np.log2(g.tile_traffic_bytes / g.operand_bytes),
        "in_flight": np.log2(
            np.minimum(g.blocks, g.sm_count * g.occupancy) * g.stages * (g.tile_m + g.tile_n) * g.step_bytes
        ),
    }
