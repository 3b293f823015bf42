"""The program that compares our method with the CUTLASS profiler's, on a GPU that is a formula."""

import clock_profiler
import numpy as np
import pytest
from formula import EMPTY_NS, GAP_NS, LAUNCH_NS, FormulaRunner

from tilearena.records import Problem


def test_profilers_method_sleeps_warms_up_and_takes_a_mean_unheld(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(clock_profiler.time, "sleep", slept.append)
    problems = [Problem(dtype="s8", m=64, n=128, k=128), Problem(dtype="s8", m=65, n=128, k=128)]
    runner = FormulaRunner(problems)
    time_ns = clock_profiler.profiler_pass(runner, problems)
    assert slept == [0.05] * 18
    assert runner.proved[:2] == [("cold", (0,), 10, False), ("cold", (0,), 100, False)]
    launch_ns = LAUNCH_NS * np.arange(1, 10) + (99 * GAP_NS + EMPTY_NS) / 100
    assert time_ns == pytest.approx(np.tile(launch_ns, (2, 1)))


def test_repeat_is_judged_by_the_second_pass() -> None:
    first = np.array([[1.0, 2, 3], [3, 1, 2], [1, 2, 3], [np.inf] * 3])
    second = np.array([[1.0, 2, 3], [3, 1.5, 1], [2, 2, 1], [1, 2, 3]])
    found = clock_profiler.repeated(first, second)
    assert found == {"top1": 0.3333, "top2": 0.6667, "regret_mean": 0.5, "regret_max": 1.0}


def test_our_pass_has_the_medians_of_the_templates() -> None:
    problems = [Problem(dtype="s8", m=64, n=128, k=128)]
    runner = FormulaRunner(problems)
    time_ns = clock_profiler.our_pass("cold", 7)(runner, problems)
    assert time_ns.tolist() == [[LAUNCH_NS * (1 + t) + EMPTY_NS for t in range(9)]]
    found = clock_profiler.twice(runner, problems, "ours", (clock_profiler.our_pass("hot", 7),) * 2)
    assert (found["rows"], found["failed"], found["top1"], found["regret_max"]) == (18, 0, 1.0, 0.0)
