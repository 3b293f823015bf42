"""A closed-form machine model: how long the busiest SM works, from a few rates that have a physical meaning.

With r blocks resident on an SM, S stages, and (+) a smooth maximum, one wave of threadblocks takes

    block = tensor work (+) loads from L2 (+) fragment loads from shared memory          of one main-loop step
    step  = r x block (+) (latency + block) / (S - 1)
    wave  = latency + (S - 1) x fill of one stage + steps x step + r x store of one tile of D

and a problem takes launch + (whole waves and a tail wave (+) DRAM traffic). The second term of a step says when a load
is in time: it is issued when a step has freed its buffer, and waited for S - 1 steps later.

Threadblocks that share the K of a tile (split-K) are blocks with fewer steps; that their parts are added one after the
other costs a latency and a store for each, and where they add up in memory, a latency to clear it. All templates of a
generator (``mma.sync``, ``wgmma``) share the rates. Without a fit they are the documented defaults; with training times
they are fitted to them by robust least squares on log time. Emulated types (s4 on sm_90) are bound by integer
instructions that the model does not know, and a constant does better there.

Every rate starts from a published figure of an A100, so what a fit knows of the tested device it has from its training
part. The form of the model, OVERLAP and COMMON_WEIGHT were settled by hand, by mean regret within training
parts of the H200's s8 and b1 recordings. Each problem of those is in some training part, so figures on them are
slightly kind; OVERLAP from 2 to 4 and COMMON_WEIGHT from 0.1 to 1 moved each mean regret by about 0.4 points at most.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from tilearena.picker.able import unable_last
from tilearena.predictors.geometry import Geometry, geometry
from tilearena.records import Generator
from tilearena.table import Floats, Ints, Table, Task

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
#: A fit may move a rate by the factor FREEDOM. It weighs a problem's common error less than the differences of its
#: templates, and a rate's distance from its default (as log) PRIOR times as much as a row: a rate that does not show in
#: the training part, since nothing there is bound by it, stays where it was.
FREEDOM, COMMON_WEIGHT, PRIOR, MIN_PROBLEMS = 100.0, 0.3, 0.01, 10


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

    whole_waves = np.floor(g.blocks / (g.sm_count * g.occupancy))
    in_tail = np.ceil(g.blocks / g.sm_count) - whole_waves * g.occupancy
    work_ns = whole_waves * wave_ns(g.occupancy) + np.where(in_tail > 0, wave_ns(in_tail), 0.0)
    work_ns = work_ns + np.where(g.adding > 0, 0.0, (g.split_k - 1) * (latency_ns + store_ns))
    from_dram = g.operand_bytes if cold else np.maximum(g.operand_bytes - g.l2_bytes, 0.0)
    launches_ns = launch_ns + g.adding * latency_ns
    log_ns: Floats = np.log(launches_ns + overlapped(work_ns, (from_dram + g.output_bytes) / dram_bytes))
    return log_ns


@dataclass(frozen=True)
class Timed:
    """Times of templates that share rates, of one table: log of nanoseconds [P, T] where they ``worked``."""

    geometry: Geometry
    cold: bool
    log_measured: Floats
    worked: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, table: Table, columns: Ints) -> Self:
        """The templates ``columns`` of the measured problems of a table."""
        rows = np.isfinite(table.time_ns[:, columns]).any(axis=1)
        time_ns = table.time_ns[rows][:, columns]
        worked = np.isfinite(time_ns)
        g = geometry(table.problems[rows], _only(table.task, columns))
        return cls(g, table.task.protocol == "cold", np.log(np.where(worked, time_ns, 1.0)), worked)

    def residual(self, rates: Floats) -> Floats:
        """Errors of log time [R], each problem's common one at ``COMMON_WEIGHT``."""
        error = np.where(self.worked, log_time(rates, self.geometry, self.cold) - self.log_measured, 0.0)
        common = error.sum(axis=1, keepdims=True) / self.worked.sum(axis=1, keepdims=True)
        residuals: Floats = (error - (1 - COMMON_WEIGHT) * common)[self.worked]
        return residuals


def fitted(tables: Sequence[Table], columns: Ints) -> Floats:
    """Rates for the templates ``columns``; the defaults where fewer than ``MIN_PROBLEMS`` have times."""
    defaults = np.array(list(DEFAULTS.values()))
    timed = [Timed.of(table, columns) for table in tables]
    if any(table.task.labels_only for table in tables) or sum(len(one.worked) for one in timed) < MIN_PROBLEMS:
        return defaults
    start, span = np.log(defaults), np.log(FREEDOM)

    weight = np.sqrt(PRIOR * sum(one.worked.sum() for one in timed))

    def residual(log_rates: Floats) -> Floats:
        return np.concatenate([*(one.residual(np.exp(log_rates)) for one in timed), weight * (log_rates - start)])

    fit = least_squares(residual, start, bounds=(start - span, start + span), loss="soft_l1", f_scale=0.1, max_nfev=40)
    rates: Floats = np.exp(fit.x)
    return rates


class Heuristic:
    """Ranks by modelled time."""

    name = "heuristic"
    version = "3"

    def __init__(self) -> None:
        self._rates: dict[Generator, Floats] = {}

    def fit(self, train: Table, seed: int) -> None:
        """Fit the rates of each generator to the training times of all devices, if at least 10 problems have times."""
        for generator, columns in _generators(train.task):
            self._rates[generator] = fitted(train.tables, columns)

    def costs(self, problems: Ints, task: Task) -> Floats:
        """Float64 [P, T]: log of the modelled time; what cannot run is last."""
        return unable_last(self.log_ns(problems, task), problems, task.templates)

    def log_ns(self, problems: Ints, task: Task) -> Floats:
        """Log of the modelled time [P, T], as if every template could run."""
        log_ns = np.empty((len(problems), len(task.templates)))
        defaults = np.array(list(DEFAULTS.values()))
        for generator, columns in _generators(task):
            g = geometry(problems, _only(task, columns))
            log_ns[:, columns] = log_time(self._rates.get(generator, defaults), g, task.protocol == "cold")
        return log_ns


def _generators(task: Task) -> list[tuple[Generator, Ints]]:
    """Each generator, and which templates are of it."""
    of = [template.generator for template in task.templates]
    return [(g, np.array([i for i, other in enumerate(of) if other == g])) for g in dict.fromkeys(of)]


def _only(task: Task, columns: Ints) -> Task:
    return replace(task, templates=tuple(task.templates[i] for i in columns))
