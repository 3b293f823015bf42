"""Tables of made-up times on a made-up device, and their scores."""

import math
from typing import Any

import numpy as np

from tilearena.records import Device, Template
from tilearena.score import Key, Score, rank, score
from tilearena.table import Floats, Ints, Table, Task

INF = math.inf
KEY = Key(
    op="gemm",
    spec="quick",
    space="paper9",
    dtype="s8",
    protocol="cold",
    device="test-card",
    split="random",
    predictor="toy",
    version="1",
    train_spec="quick",
    support="native",
)
DEVICE = Device(
    slug="test-card",
    product="Test card",
    compute_capability=(9, 0),
    sm_count=4,
    l2_bytes=1,
    memory_bytes=1,
    smem_per_block_bytes=1,
    smem_per_sm_bytes=1,
)


def template(stages: int) -> Template:
    return Template(
        dtype="s8",
        label=f"small/{stages}",
        threadblock=(64, 64, 64),
        warp=(32, 32, 64),
        instruction=(16, 8, 32),
        stages=stages,
    )


def table(times: Any, rows: Any = None, default: int = 1) -> Table:
    time_ns = np.array(times, dtype=np.float64)
    templates = tuple(template(2 + i) for i in range(time_ns.shape[1]))
    rows = np.arange(len(time_ns)) if rows is None else np.array(rows)
    problems = np.stack([1 + rows, 8 + 0 * rows, 16 + 0 * rows], axis=1).astype(np.int64)
    return Table(Task("gemm", "s8", None, "test", templates, default, DEVICE, "cold"), problems, time_ns)


def judged(times: Any, picks: Any, **options: Any) -> Score:
    return score(table(times), np.array(picks, dtype=np.int64), key=KEY, **options)


def values(result: Score) -> dict[str, float | None]:
    return {name: figure.value for name, figure in result.figures.items()}


def random_case(n_problems: int, seed: int = 0) -> tuple[Floats, Ints]:
    rng = np.random.default_rng(seed)
    times = np.exp(rng.normal(10, 1, (n_problems, 1)) + rng.normal(0, 0.3, (n_problems, 4)))
    return times, rank(times * np.exp(rng.normal(0, 0.2, times.shape)))
