"""A closed-form machine model: how long the busiest SM works, from a few rates that have a physical meaning.

With r blocks resident on an SM, S stages, and (+) a smooth maximum, one wave of threadblocks takes

    block = tensor work (+) loads from L2 (+) fragment loads from shared memory          of one main-loop step
    step  = r x block (+) (latency + block) / (S - 1)
    wave  = latency + (S - 1) x fill of one stage + steps x step + r x store of one tile of D

and a problem takes launch + (whole waves and a tail wave (+) DRAM traffic). The second term of a step says when a load
is in time: it is issued when a step has freed its buffer, and waited for S - 1 steps later.

All templates share the rates. Without a fit they are the documented defaults; with training times they are fitted to
them by robust least squares on log time. The model is that of native ``mma.sync``; emulated types (s4 on sm_90) are
bound by integer instructions that it does not know, and a constant does better there.

Every rate starts from a published figure of an A100, so what a fit knows of the tested device it has from its training
part. The form of the model, OVERLAP and COMMON_WEIGHT were settled by hand, by mean regret within training
parts of the H200's s8 and b1 recordings. Each problem of those is in some training part, so figures on them are
slightly kind; OVERLAP from 2 to 4 and COMMON_WEIGHT from 0.1 to 1 moved each mean regret by about 0.4 points at most.
"""

import numpy as np
from scipy.optimize import least_squares

from tilearena.dataset import Floats, Ints, Table, Task
from tilearena.figures import measured
from tilearena.predictors.features import Geometry, geometry

#: Boost clock, SMs, and bytes that L2 reads in a clock (NVIDIA A100 Tensor Core GPU Architecture, white paper, 2020).
A100_GHZ, A100_SMS, A100_L2_BYTES = 1.41, 108, 5_120
L2_SHARE = A100_L2_BYTES / A100_SMS * A100_GHZ
#: Rates without a fit, for one SM, per nanosecond; ``dram_bytes`` is of the whole device. From the same white paper but
#: for the latency, the middle of the 400 to 800 clocks that the CUDA C Programming Guide gave for global memory (5.0,
#: section 5.2.3, before compute capability 3.0), and the launch, of which only the order of magnitude is meant.
DEFAULTS = {
    "launch_ns": 2_000.0,
    "latency_ns": 600 / A100_GHZ,
    "tensor_bits": 2_048 * 8 * A100_GHZ,  # bit products: 2,048 s8 multiply-adds a clock
    "l2_bytes": L2_SHARE,
    "smem_bytes": 128 * A100_GHZ,
    "fill_bytes": L2_SHARE,  # of one block; loads outside of the matrices cost the same, they write zeros
    "store_bytes": L2_SHARE,
    "dram_bytes": 1_555.0,
}
#: Exponent of the smooth maximum: 1 would add (no overlap at all), infinity is the plain maximum (perfect overlap).
OVERLAP = 3.0
#: A fit may move a rate by this factor; it weighs a problem's common error less than the differences of its templates.
FREEDOM, COMMON_WEIGHT, MIN_PROBLEMS = 100.0, 0.3, 10


def overlapped(*parts_ns: Floats) -> Floats:
    """Smooth maximum of times that overlap."""
    total: Floats = sum(part**OVERLAP for part in parts_ns) ** (1 / OVERLAP)
    return total


def log_time(rates: Floats, g: Geometry, cold: bool) -> Floats:
    """Log of the modelled time in nanoseconds [P, T]; ``rates`` are in the order of ``DEFAULTS``."""
    launch_ns, latency_ns, tensor_bits, l2_bytes, smem_bytes, fill_bytes, store_bytes, dram_bytes = rates
    rows, columns = np.minimum(g.tile_m, g.m), np.minimum(g.tile_n, g.n)
    block_ns = overlapped(
        g.tile_m * g.tile_n * g.step_bytes * 8 / tensor_bits,
        (rows + columns) * g.step_bytes / l2_bytes,
        g.warps * (g.warp_m + g.warp_n) * g.step_bytes / smem_bytes,
    )
    in_time_ns = (latency_ns + block_ns) / (g.stages - 1)
    fill_ns = latency_ns + (g.stages - 1) * (g.tile_m + g.tile_n) * g.step_bytes / fill_bytes
    store_ns = 4 * rows * columns / store_bytes

    def wave_ns(resident: Floats) -> Floats:
        total_ns: Floats = fill_ns + g.steps * overlapped(resident * block_ns, in_time_ns) + resident * store_ns
        return total_ns

    whole_waves = np.floor(g.tiles / (g.sm_count * g.occupancy))
    in_tail = np.ceil(g.tiles / g.sm_count) - whole_waves * g.occupancy
    work_ns = whole_waves * wave_ns(g.occupancy) + np.where(in_tail > 0, wave_ns(in_tail), 0.0)
    from_dram = g.operand_bytes if cold else np.maximum(g.operand_bytes - g.l2_bytes, 0.0)
    log_ns: Floats = np.log(launch_ns + overlapped(work_ns, (from_dram + g.output_bytes) / dram_bytes))
    return log_ns


class Heuristic:
    """Ranks by modelled time."""

    name = "heuristic"
    version = "1"

    def __init__(self) -> None:
        self._rates = np.array(list(DEFAULTS.values()))

    def fit(self, train: Table, seed: int) -> None:
        """Fit the rates to the training times, if there are times, of at least 10 problems."""
        train = train.take(measured(train))
        if len(train.problems) < MIN_PROBLEMS or train.task.labels_only:
            return
        worked, g = np.isfinite(train.time_ns), geometry(train.problems, train.task)
        log_measured = np.log(np.where(worked, train.time_ns, 1.0))

        def residual(log_rates: Floats) -> Floats:
            error = np.where(worked, log_time(np.exp(log_rates), g, train.task.protocol == "cold") - log_measured, 0.0)
            common = error.sum(axis=1, keepdims=True) / worked.sum(axis=1, keepdims=True)
            residuals: Floats = (error - (1 - COMMON_WEIGHT) * common)[worked]
            return residuals

        start, span = np.log(self._rates), np.log(FREEDOM)
        fit = least_squares(
            residual, start, bounds=(start - span, start + span), loss="soft_l1", f_scale=0.1, max_nfev=40
        )
        self._rates = np.exp(fit.x)

    def costs(self, problems: Ints, task: Task) -> Floats:
        """Float64 [P, T]: log of the modelled time."""
        return log_time(self._rates, geometry(problems, task), task.protocol == "cold")
