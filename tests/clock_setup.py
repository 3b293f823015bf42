"""What the programs that prove the clock share: where and when they ran, a warm GPU, and how their results are written.

Run ``clock_cupti.py``, ``clock_dram.py`` and ``clock_profiler.py`` on an otherwise idle GPU; docs/measuring.md shows
what they found.
"""

import json
import platform
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tilearena.gpu_runner import GpuRunner
from tilearena.records import Problem, Protocol, ProtocolName
from tilearena.spec import load_workload

SPACE = "paper9"
SEED = 20260301
WARM_UP_S = 0.5


def about(runner: GpuRunner) -> dict[str, Any]:
    """Device, driver, versions and date of a result."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "device": runner.device.model_dump(mode="json", exclude={"uuid_sha256"}),
        "clock": runner.clock().model_dump(),
        "versions": dict(runner.versions) | {"python": platform.python_version()},
    }


def protocol(name: ProtocolName) -> Protocol:
    """The shipped protocol of s8, with a seed of its own."""
    return load_workload("lowbit-random").protocol(name, "s8").model_copy(update={"seed": SEED})


#: Launches that are not timed before what is submitted, see Problem::submit in kernels/problem.cuh.
WARM_UP: dict[ProtocolName, int] = {"cold": 0, "hot": 1}


def warm_up(runner: GpuRunner, problem: Problem) -> None:
    """Half a second of work, thrown away, so that the clocks are up before the first sample."""
    trial = runner.prove(problem, protocol("cold"), [runner.default])
    trial.begin()
    end = time.perf_counter() + WARM_UP_S
    while time.perf_counter() < end:
        trial.sample([runner.default] * 8)


def templates(runner: GpuRunner) -> list[int]:
    """Indices of the templates among the candidates, in space order."""
    return [i for i, candidate in enumerate(runner.candidates) if candidate.origin == "template"]


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Smallest, quartiles and largest, to 4 decimal places."""
    ordered = sorted(values)
    names = ("min", "p25", "p50", "p75", "max")
    return {name: round(ordered[(len(ordered) - 1) * i // 4], 4) for i, name in enumerate(names)}


def write(path: Path, result: dict[str, Any]) -> None:
    """JSON with one row a line."""
    rows = result.pop("rows")
    head = json.dumps(result, indent=1, allow_nan=False)[:-2]
    body = ",\n".join(f"  {json.dumps(row, allow_nan=False)}" for row in rows)
    path.write_text(f'{head},\n "rows": [\n{body}\n ]\n}}\n')
