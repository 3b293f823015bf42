"""On a GPU: the clock against CUPTI, against DRAM counters, and against a slow host."""

import ctypes
import time

import clock_cupti
import clock_dram
import numpy as np
import pytest

from tilearena import live
from tilearena.race import measure_problem
from tilearena.records import PROTOCOLS, Problem, Protocol, ProtocolName
from tilearena.spec import load_space

pytestmark = pytest.mark.gpu


def test_events_agree_with_cupti() -> None:
    result = clock_cupti.compare(clock_cupti.PAIRS[::6])
    assert result["failed"] == 0
    assert len(result["rows"]) == 12
    assert [row for row in result["rows"] if not row["agrees"]] == []


def test_cold_launches_read_their_operands_from_dram_and_hot_ones_do_not() -> None:
    result = clock_dram.measure("1")
    assert result["passes"] == [1]
    assert [(row["protocol"], row["as_meant"]) for row in result["rows"]] == [("cold", True), ("hot", True)]


class _Gemm(ctypes.Structure):
    """ta_gemm."""

    _fields_ = (
        *((name, ctypes.c_int) for name in "mnk"),
        *((name, ctypes.c_void_p) for name in "abd"),
    )


class _Entry(ctypes.Structure):
    """ta_entry."""

    _fields_ = (
        ("id", ctypes.c_char_p),
        ("launch", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Gemm), ctypes.c_int, ctypes.c_void_p)),
    )


class Slow:
    """The library's first template, enqueued after the host was kept busy; ``once_s`` more in the next call."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s, self.once_s, self.library = delay_s, 0.0, None

    def __call__(self, a: int, b: int, d: int, m: int, n: int, k: int, launches: int, stream: int) -> int:
        time.sleep(self.delay_s + self.once_s)
        self.once_s = 0.0
        gemm = _Gemm(m, n, k, a, b, d)
        return int(_Entry.in_dll(self.library, "ta_entries").launch(ctypes.byref(gemm), launches, stream))


@pytest.mark.parametrize("name", PROTOCOLS)
def test_host_delay_is_in_no_time(name: ProtocolName) -> None:
    device, space = live.pick_device(), load_space("paper9")
    problem, protocol = Problem(dtype="s8", m=256, n=512, k=1024), Protocol(name=name, rounds=8, seed=5)
    medians = []
    for delay_s in (0.0, 0.005):
        slow = Slow(delay_s)
        with live.open_runner(device, space, "s8", None, [problem], seed=3, externals=[("slow", slow)]) as runner:
            slow.library = runner._lib
            rows = measure_problem(runner, problem, protocol, [0, len(runner.candidates) - 1])
        assert [row.reason for row in rows] == ["", ""]
        medians.append([float(np.median(row.elapsed_ns[-4:])) / row.launches for row in rows])
    for before_ns, after_ns in zip(*medians, strict=True):
        assert abs(after_ns - before_ns) < 0.03 * before_ns + 300  # 5 ms of delay would be 5,000,000


@pytest.mark.parametrize("name", PROTOCOLS)
def test_samples_are_taken_again_where_the_stream_could_not_be_held_for_so_long(name: ProtocolName) -> None:
    device, space = live.pick_device(), load_space("paper9")
    problem, protocol = Problem(dtype="s8", m=256, n=512, k=1024), Protocol(name=name, rounds=8, seed=5)
    slow = Slow(0.0)
    with live.open_runner(device, space, "s8", None, [problem], seed=3, externals=[("slow", slow)]) as runner:
        slow.library = runner._lib
        which = [0, len(runner.candidates) - 1]
        trial, other = (runner.prove(problem, protocol, which) for _ in range(2))
        trial.begin()
        slow.once_s = 0.7  # a hold lasts 0.5 s
        trial.submit(which * 8)
        other.begin()  # what follows runs meanwhile, and is not spoiled
        other.submit(which * 8)
        for times, failures in (trial.collect(), other.collect()):
            assert failures == {}
            # the 0.7 s are in no time
            assert max(times) < 2 * float(np.median(times)) + 20_000
        assert runner.retakes == 1
