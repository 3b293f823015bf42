"""A closed-form machine model: how long the busiest SM works, in terms of a few rates that have a physical meaning.

    time = launch + max(work of the busiest SM, DRAM traffic / DRAM rate)
    work = sum over its waves of (steps + stages - 1) x step(r) + r x tile of D / store rate
    step(r) = max(r x multiply-adds / tensor rate, r x tile loads / L2 rate, r x fragment loads / shared-memory rate,
                  latency / (stages - 1))         with r blocks resident on the SM

All templates share the rates. They start from documented values and, if there are training times, are fitted to them
by robust least squares on log time.
"""

import numpy as np
from scipy.optimize import least_squares

from tilearena.dataset import Floats, Ints, Table, Task
from tilearena.predictors.features import Geometry, geometry

#: name -> value without a fit. Rates are per SM and nanosecond, except DRAM: whole device, bytes a nanosecond.
DEFAULTS = {
    # an empty kernel, start to end
    "launch_ns": 2_000.0,
    # bit products: 2,048 s8 multiply-adds a clock and SM by mma.sync on sm_80 (A100 white paper), 1.4 GHz
    "tensor_bits": 2_048 * 8 * 1.4,
    # 64 bytes a clock and SM (A100 white paper)
    "l2_bytes": 64 * 1.4,
    # 128 bytes a clock and SM (CUDA C++ Programming Guide)
    "smem_bytes": 128 * 1.4,
    # a load that misses L1, about 600 clocks
    "latency_ns": 430.0,
    "store_bytes": 32 * 1.4,
    # HBM2e of an A100 80 GB
    "dram_bytes": 2_000.0,
}
MIN_PROBLEMS = 10


#: How far a fit may move a rate from its default, as a factor.
FREEDOM = 30.0


def log_time(rates: Floats, g: Geometry, cold: bool) -> Floats:
    """Log of the modelled time in nanoseconds [P, T]; ``rates`` are in the order of ``DEFAULTS``."""
    launch_ns, tensor_bits, l2_bytes, smem_bytes, latency_ns, store_bytes, dram_bytes = rates
    multiply_bits = g.tile_m * g.tile_n * g.step_bytes * 8
    load_bytes = (np.minimum(g.tile_m, g.m) + np.minimum(g.tile_n, g.n)) * g.step_bytes
    fragment_bytes = g.warps * (g.warp_m + g.warp_n) * g.step_bytes
    block_ns = np.maximum(np.maximum(multiply_bits / tensor_bits, load_bytes / l2_bytes), fragment_bytes / smem_bytes)
    store_ns = 4 * g.tile_m * g.tile_n / store_bytes

    def wave_ns(resident: Floats) -> Floats:
        step_ns = np.maximum(resident * block_ns, latency_ns / (g.stages - 1))
        total_ns: Floats = (g.steps + g.stages - 1) * step_ns + resident * store_ns
        return total_ns

    whole_waves = np.floor(g.tiles / (g.sm_count * g.occupancy))
    resident_in_tail = np.ceil(g.tiles / g.sm_count) - whole_waves * g.occupancy
    work_ns = whole_waves * wave_ns(g.occupancy) + np.where(resident_in_tail > 0, wave_ns(resident_in_tail), 0.0)
    from_dram = g.operand_bytes if cold else np.maximum(g.operand_bytes - g.l2_bytes, 0.0)
    log_ns: Floats = np.log(launch_ns + np.maximum(work_ns, (from_dram + g.output_bytes) / dram_bytes))
    return log_ns


class Heuristic:
    """Ranks by modelled time; answers without a fit, from the documented rates."""

    name = "heuristic"
    version = "1"

    def __init__(self) -> None:
        self._rates = np.array(list(DEFAULTS.values()))

    def fit(self, train: Table, seed: int) -> None:
        """Fit the rates to the training times, if there are at least 10 measured problems."""
        measured = np.isfinite(train.time_ns).any(axis=1)
        if measured.sum() < MIN_PROBLEMS:
            return
        g, cold = geometry(train.problems[measured], train.task), train.task.protocol == "cold"
        time_ns = train.time_ns[measured]
        worked = np.isfinite(time_ns)
        log_measured = np.log(time_ns[worked])

        def residual(log_rates: Floats) -> Floats:
            return log_time(np.exp(log_rates), g, cold)[worked] - log_measured

        start, span = np.log(self._rates), np.log(FREEDOM)
        fit = least_squares(residual, start, bounds=(start - span, start + span), loss="soft_l1", f_scale=0.1)
        self._rates = np.exp(fit.x)

    def costs(self, problems: Ints, task: Task) -> Floats:
        """Float64 [P, T]: log of the modelled time."""
        return log_time(self._rates, geometry(problems, task), task.protocol == "cold")
