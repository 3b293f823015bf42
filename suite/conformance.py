"""The rules of the predictor contract as one function, for every registered predictor: ours and a third party's.

Runs in the caller's process, so that a debugger and tracebacks work. The times are synthetic: a small analytic model
with wave quantisation and noise, good enough to fit, and no measurement of anything.
"""

import numpy as np

from tilearena.dataset import Floats, Ints, Table, Task
from tilearena.errors import PredictorError
from tilearena.plugins import Declined, load
from tilearena.predict_child import checked
from tilearena.records import BITS, K_ALIGNMENT, BitOp, Device, Dtype, Template

#: Name -> threadblock and warp extents (m, n) of the synthetic space.
SYNTHETIC_TILES = {"large": ((128, 256), (64, 64)), "medium": ((128, 128), (64, 64)), "small": ((64, 64), (32, 32))}
STEP_BITS = 512


def synthetic_task(dtype: Dtype = "s8") -> Task:
    """Nine templates, three tiles x 2..4 stages, on a made-up device of 100 SMs."""
    step, instruction_k = STEP_BITS // BITS[dtype], 256 // BITS[dtype]
    bit_op: BitOp | None = "and" if dtype == "b1" else None
    templates = tuple(
        Template(
            dtype=dtype,
            bit_op=bit_op,
            label=f"{label}/{stages}",
            threadblock=(*block, step),
            warp=(*warp, step),
            instruction=(16, 8, instruction_k),
            stages=stages,
        )
        for label, (block, warp) in SYNTHETIC_TILES.items()
        for stages in (2, 3, 4)
    )
    device = Device(
        slug="synthetic",
        product="synthetic",
        compute_capability=(8, 0),
        sm_count=100,
        l2_bytes=40 << 20,
        memory_bytes=32 << 30,
        smem_per_block_bytes=163 << 10,
        smem_per_sm_bytes=164 << 10,
    )
    return Task("gemm", dtype, bit_op, "synthetic", templates, 1, device, "hot")


def synthetic_time_ns(problems: Ints, task: Task) -> Floats:
    """Made-up times [P, T]: whole waves x (steps + pipeline fill) x the larger of arithmetic and latency."""
    m, n, k = (problems[:, axis, None].astype(np.float64) for axis in range(3))
    tile_m, tile_n, tile_k = (np.array([t.threadblock[axis] for t in task.templates]) for axis in range(3))
    stages = np.array([t.stages for t in task.templates])
    waves = np.ceil(np.ceil(m / tile_m) * np.ceil(n / tile_n) / task.device.sm_count)
    arithmetic_ns = tile_m * tile_n / 110.0 + 20.0 * stages
    time_ns: Floats = 2000.0 + waves * (np.ceil(k / tile_k) + stages) * np.maximum(arithmetic_ns, 400.0 / (stages - 1))
    return time_ns


def synthetic_table(n_problems: int = 200, seed: int = 0, dtype: Dtype = "s8") -> Table:
    """Distinct log-uniform problems and their made-up times with 0.5 % noise; the first template fails on some."""
    rng, task = np.random.default_rng(seed), synthetic_task(dtype)
    unit = np.array([1, 8, K_ALIGNMENT[dtype]])
    upper = np.log2(np.array([16384, 16384, 16384]) / unit)
    drawn = np.unique(np.floor(2 ** (rng.random((2 * n_problems, 3)) * upper)).astype(np.int64) * unit, axis=0)
    problems = rng.permutation(drawn)[:n_problems]
    time_ns = synthetic_time_ns(problems, task) * np.exp(rng.normal(0.0, 0.005, (len(problems), len(task.templates))))
    time_ns[rng.random(len(problems)) < 0.05, 0] = np.inf
    return Table(task, problems, time_ns)


def conformance(name: str) -> None:
    """Check the installed predictor ``name`` on synthetic tables of every kind of input; declining is allowed.

    Raises:
        PredictorError: the first rule of the contract that it breaks, in one sentence.
    """
    load(name)
    dtypes: tuple[Dtype, ...] = ("s8", "s4", "b1")
    for dtype in dtypes:
        try:
            _check_costs(name, synthetic_table(dtype=dtype))
        except Declined as declined:
            if not str(declined):
                raise PredictorError(f"predictor {name!r} declined {dtype} without a reason") from None


def _check_costs(name: str, table: Table) -> None:
    train = table if getattr(load(name), "privileged", False) else table.take(np.arange(150))
    problems, time_ns, tested = train.problems.copy(), train.time_ns.copy(), table.problems[150:].copy()
    first = _costs(name, train, tested)
    if not np.isfinite(first).all():
        raise PredictorError(f"predictor {name!r} answered costs that are not finite ({table.task.dtype})")
    unchanged = np.array_equal(problems, train.problems) and np.array_equal(time_ns, train.time_ns)
    if not unchanged or not np.array_equal(tested, table.problems[150:]):
        raise PredictorError(f"predictor {name!r} changed the arrays that it was given; work on copies")
    if not np.array_equal(first, _costs(name, train, tested)):
        raise PredictorError(f"predictor {name!r} answered differently under the same seed; draw from the seed alone")
    alone = _costs(name, train, tested[:1])
    if not np.allclose(alone, first[:1], rtol=1e-3, atol=1e-5):
        raise PredictorError(f"predictor {name!r} costs a problem differently when other problems are asked with it")


def _costs(name: str, train: Table, problems: Ints) -> Floats:
    predictor = load(name)
    predictor.fit(train, 0)
    return checked(name, predictor.costs(problems, train.task), (len(problems), len(train.task.templates)))
