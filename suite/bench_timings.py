"""Times that go through pytest-benchmark, so that ``pytest-benchmark compare`` works between two benches.

`run` starts pytest on this very file with a plugin that knows what to time. Predicting and scoring are timed on the
host; kernels by a clock that advances by device time alone.
"""

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tilearena import plugins
from tilearena.bench_live import Open
from tilearena.errors import MeasureError
from tilearena.hands import Hand, Order
from tilearena.measure import Session
from tilearena.records import Dtype, Problem, Protocol, Status
from tilearena.score import Key, rank, score
from tilearena.table import Table


class DeviceClock:
    """A timer in seconds that stands still except for the device time that is added to it."""

    def __init__(self) -> None:
        self.elapsed_ns = 0.0

    def __call__(self) -> float:
        """Device seconds so far."""
        return self.elapsed_ns * 1e-9


@dataclass(frozen=True)
class Kernel:
    """One template on one problem, to be timed live."""

    problem: Problem
    protocol: Protocol
    candidate: int
    label: str

    @property
    def id(self) -> str:
        """Name of the benchmark."""
        p = self.problem
        return f"{p.dtype}-{p.m}x{p.n}x{p.k}-{self.protocol.name}-{self.label}"


@dataclass
class Subjects:
    """The pytest plugin: what is timed, as parameters and fixtures of the functions below."""

    table: Table
    key: Key
    predictors: Sequence[str]
    kernels: Sequence[Kernel] = ()
    sessions: dict[Dtype, Session] = field(default_factory=dict)
    open_hand: Open | None = None
    clock: DeviceClock = field(default_factory=DeviceClock)
    _stack: ExitStack = field(default_factory=ExitStack)
    _open: tuple[Dtype, Hand] | None = None

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Hook of pytest: one test for each predictor and each kernel."""
        if "predictor" in metafunc.fixturenames:
            metafunc.parametrize("predictor", self.predictors)
        if "kernel" in metafunc.fixturenames:
            mark = pytest.mark.benchmark(timer=self.clock, group="kernels (device time)")
            metafunc.parametrize("kernel", [pytest.param(k, marks=mark, id=k.id) for k in self.kernels])

    @pytest.fixture
    def subjects(self) -> "Subjects":
        """This plugin itself."""
        return self

    def hand(self, dtype: Dtype) -> Hand:
        """The GPU, opened for one dtype at a time."""
        if self._open is None or self._open[0] != dtype:
            assert self.open_hand is not None
            self.close()
            self._open = dtype, self._stack.enter_context(self.open_hand(self.sessions[dtype]))
        return self._open[1]

    def close(self) -> None:
        """Give the GPU back."""
        self._stack.close()
        self._open = None


def run(subjects: Subjects, storage: Path, name: str) -> bool:
    """Time everything and save the result as ``name`` below ``storage``; True if nothing failed."""
    flags = [
        "--benchmark-only",
        f"--benchmark-storage=file://{storage.absolute()}",
        f"--benchmark-save={name}",
        "--benchmark-columns=median,iqr,rounds",
        "--benchmark-sort=name",
        "--quiet",
        "--no-header",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        f"--rootdir={Path(__file__).parent}",
    ]
    # what is meant for another pytest around this one, e.g. xdist's, is not for this
    outer = {variable: os.environ.pop(variable) for variable in list(os.environ) if variable.startswith("PYTEST_")}
    try:
        code = pytest.main([__file__, *flags], plugins=[subjects])
    finally:
        os.environ.update(outer)
        subjects.close()
    if code == pytest.ExitCode.INTERRUPTED:  # pytest keeps Ctrl-C to itself
        raise KeyboardInterrupt
    return code == 0


@pytest.mark.benchmark(group="predict (host time, whole table)", max_time=0.5)
def test_predict(benchmark: Callable[..., Any], predictor: str, subjects: Subjects) -> None:
    """Rank every problem of the table, features included, fitting not."""
    instance = plugins.load(predictor)
    instance.fit(subjects.table, 0)
    costs = benchmark(instance.costs, subjects.table.problems, subjects.table.task)
    assert costs.shape == subjects.table.time_ns.shape


@pytest.mark.benchmark(group="score (host time, whole table)", max_time=0.5)
def test_score(benchmark: Callable[..., Any], subjects: Subjects) -> None:
    """All figures with their intervals."""
    picks = rank(subjects.table.time_ns)[:, :8]
    result = benchmark(score, subjects.table, picks, key=subjects.key)
    assert result.figures["regret_max"].value == 0


def test_kernel(benchmark: Any, kernel: Kernel, subjects: Subjects) -> None:
    """One proved sample a round, timed between two events on the device."""
    hand = subjects.hand(kernel.problem.dtype)
    once = kernel.protocol.model_copy(update={"rounds": 1, "reference_rounds": 1, "screen_rounds": 0})
    order = Order((kernel.problem,), once, ((kernel.candidate,),))

    def launch() -> None:
        row = hand.measure(order, threading.Event()).rows[0]
        if row.status is not Status.OK:
            raise MeasureError(f"{kernel.id}: {row.reason}")
        subjects.clock.elapsed_ns += row.elapsed_ns[0] / row.launches

    benchmark.pedantic(launch, rounds=kernel.protocol.rounds, warmup_rounds=1)


def timed_predictors(names: Sequence[str]) -> list[str]:
    """Those whose ranking can be timed in this process: installed with tilearena, and not given the answers."""
    return [n for n in names if plugins.find(n).module.startswith("tilearena.") and n != plugins.PRIVILEGED]
