"""How time and memory grow with the rows of a recording; synthetic ones, in a folder that is removed.

``pytest tests/bench_growth.py --benchmark-enable --benchmark-json=growth.json``, then ``python tests/test_growth.py
growth.json`` for the table of docs/growth.md. It needs 1 GB of disk, 4 GB of memory, and five to ten minutes.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import growing
import pytest

SIZES = (1_000_000, 3_000_000, 10_000_000)
STEPS = ("append", "load", "filter", "score")


class ChildClock:
    """A timer in seconds that stands still except for the CPU time that child processes say they took."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        """Seconds so far."""
        return self.seconds


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every step at every size; a size's recording is there once it was appended."""
    cases = []
    for n_rows in SIZES:
        for step in STEPS:
            clock = ChildClock()
            mark = pytest.mark.benchmark(timer=clock, group=step)
            cases.append(pytest.param(step, n_rows, clock, marks=mark, id=f"{step}-{n_rows}"))
    metafunc.parametrize(("step", "n_rows", "clock"), cases)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the recordings lie."""
    return tmp_path_factory.mktemp("growth")


def test_growth(benchmark: Any, folder: Path, step: str, n_rows: int, clock: ChildClock) -> None:
    """Once, in a process of its own, so that its peak of memory is the step's."""
    n_problems = n_rows // growing.N_CANDIDATES
    command = [sys.executable, growing.__file__, step, str(folder), str(n_problems)]

    def child() -> dict[str, Any]:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found: dict[str, Any] = json.loads(done.stdout)
        clock.seconds += found["seconds"]
        return found

    found = benchmark.pedantic(child, rounds=1)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    benchmark.extra_info.update(found, step=step, n_rows=n_rows, memory_bytes=memory)
    if n_rows == SIZES[-1] and step == STEPS[-1]:
        (folder / f"{n_problems}.parquet").unlink()
