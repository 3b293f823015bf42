"""On a GPU: planted faults are caught before and after timing, and real templates are proved and timed."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tilearena import build, live
from tilearena.baselines.cublaslt import TorchIntMm
from tilearena.errors import MeasureError, NoGpuError
from tilearena.gpu_runner import GpuRunner
from tilearena.race import measure_problem, measure_problems
from tilearena.records import Problem, Protocol, Status
from tilearena.spec import load_space

pytestmark = pytest.mark.gpu

from faulty import FAULTS, LARGE, SMALL, compile_library, open_faulty  # noqa: E402

PROTOCOLS = [Protocol(name=name, rounds=4, seed=5) for name in ("cold", "hot")]


@pytest.fixture(scope="module")
def faulty_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_library(tmp_path_factory.mktemp("faulty"))


@pytest.fixture(scope="module")
def faulty(faulty_library: Path) -> Iterator[GpuRunner]:
    with open_faulty(str(faulty_library), list(FAULTS)) as runner:
        yield runner


def test_stale_output_is_caught_where_slots_come_round(faulty_library: Path) -> None:
    """Rings of two slots: a launch has operands and output of the last but one, whose product is still there."""
    with open_faulty(str(faulty_library), list(FAULTS), l2_multiple=0.0) as runner:
        stale = list(FAULTS).index("stale_later")
        runner.prove(LARGE, PROTOCOLS[0], [0, stale]).begin()  # a kernel's first launch loads it, and would count
        runner._lib.ta_forget_calls()
        row = measure_problem(runner, LARGE, PROTOCOLS[0], [0, stale])[1]
    assert row.status is Status.WRONG_RESULT
    assert FAULTS["stale_later"] in row.reason


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: p.name)
@pytest.mark.parametrize("problem", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_caught(faulty: GpuRunner, fault: str, problem: Problem, protocol: Protocol) -> None:
    which = [list(FAULTS).index(fault)]
    faulty.prove(problem, protocol, which).begin()  # a kernel's first launch loads it, and would count as a call
    faulty._lib.ta_forget_calls()
    row = measure_problem(faulty, problem, protocol, which)[0]
    if fault == "good":
        assert row.status is Status.OK
        assert len(row.elapsed_ns) == 2 + 4
    else:
        assert row.status is Status.WRONG_RESULT
        assert FAULTS[fault] in row.reason
        assert row.elapsed_ns == ()


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: p.name)
def test_faults_stay_with_their_problem_while_two_are_under_way(faulty: GpuRunner, protocol: Protocol) -> None:
    names = [name for name in FAULTS if not name.endswith("_later")]
    which = [list(FAULTS).index(name) for name in names]
    tasks = [(SMALL, which), (LARGE, which[:1]), (SMALL, which[1:]), (LARGE, which), (SMALL, which[:1])]
    measured = list(measure_problems(faulty, protocol, tasks))
    assert [[row.candidate for row in rows] for rows in measured] == [list(which) for _, which in tasks]
    for (problem, _), rows in zip(tasks, measured, strict=True):
        assert {row.m for row in rows} == {problem.m}
        assert [row.candidate for row in rows if row.status is Status.OK] == [0] * (rows[0].candidate == 0)
        assert all(FAULTS[list(FAULTS)[row.candidate]] in row.reason for row in rows)


def test_templates_are_exact_on_odd_shapes() -> None:
    device, space = live.pick_device(), load_space("paper9")
    for dtype, bit_op, k in (("s8", None, 272), ("s4", None, 416), ("b1", "and", 1152)):
        problems = [Problem(dtype=dtype, bit_op=bit_op, m=m, n=n, k=k) for m, n in ((1, 8), (77, 136), (300, 1000))]
        with live.open_runner(device, space, dtype, bit_op, problems, seed=3) as runner:
            for problem in problems:
                for protocol in PROTOCOLS:
                    rows = measure_problem(runner, problem, protocol, range(len(runner.candidates)))
                    assert {row.status for row in rows} == {Status.OK}, rows
                    assert all(1_000 < time < 10**9 for row in rows for time in row.elapsed_ns)


def test_xor_stub_is_no_time() -> None:
    """On sm_90 CUTLASS compiles b1 xor to a kernel that multiplies nothing: it must not be measured."""
    device = live.pick_device()
    if device.arch != 90:
        pytest.skip("the stub exists on sm_90 only")
    space = load_space("paper9")
    problem = Problem(dtype="b1", bit_op="xor", m=64, n=64, k=512)
    with pytest.raises(NoGpuError, match="no kernels for sm_90"):
        live.open_runner(device, space, "b1", "xor", [problem], seed=1)
    templates = space.templates("b1", "xor")
    path, library = build.build("gemm.paper9.b1xor", templates[-1:], device.arch)
    runner = GpuRunner(path, library, templates[-1:], 0, device, [problem], seed=1)
    runner._refusal = lambda problem, candidate: None  # type: ignore[method-assign]
    with runner:
        rows = measure_problem(runner, problem, PROTOCOLS[0], [0])
    assert rows[0].status is Status.WRONG_RESULT


def test_vendor_takes_turns_with_templates_and_is_proved_exact() -> None:
    device, space = live.pick_device(), load_space("paper9")
    problems = [Problem(dtype="s8", m=m, n=512, k=1024) for m in (8, 512)]
    torch = [("torch._int_mm", TorchIntMm())]
    with live.open_runner(device, space, "s8", None, problems, seed=3, externals=torch) as runner:
        assert [c.id for c in runner.candidates[10:]] == ["cublaslt", "torch._int_mm"]
        assert int(runner.versions["cublaslt"]) > 110_000
        for protocol in PROTOCOLS:
            small, large = (measure_problem(runner, p, protocol, [0, 10, 11]) for p in problems)
            assert [row.status for row in small] == [Status.OK, Status.OK, Status.INFEASIBLE]
            assert [row.status for row in large] == [Status.OK, Status.OK, Status.OK], large
            # one library behind both: torch may choose another of its kernels, but not one that is twice as slow
            direct, torch_ns = (float(np.median(row.elapsed_ns)) / row.launches for row in large[1:])
            assert 0.5 < direct / torch_ns < 2


def test_partition_of_the_sms_is_slower_as_its_size_says() -> None:
    whole = live.pick_device()
    part = live.pick_device(sms=whole.sm_count // 2 // 8 * 8)
    assert (part.slug, part.sm_total) == (f"{whole.slug}-sm{part.sm_count}", whole.sm_count)
    problem, space, medians = Problem(dtype="s8", m=8192, n=8192, k=4096), load_space("paper9"), []
    for device in (whole, part):
        with live.open_runner(device, space, "s8", None, [problem], seed=3) as runner:
            row = measure_problem(runner, problem, PROTOCOLS[1], [4])[0]
            medians.append(float(np.median(row.elapsed_ns)))
    # compute bound: half of the SMs take at least half as long again, even where the whole card is at its power limit
    assert 1.4 < medians[1] / medians[0] < 2.6
    with pytest.raises(MeasureError, match=r"a partition of 3 of \d+ SMs cannot be had"):
        live.open_runner(live.pick_device(sms=3), space, "s8", None, [problem], seed=3)


@pytest.mark.parametrize("k", [64, 1024, 16384])
def test_hot_samples_fill_their_time_and_templates_share_the_number_of_launches(k: int) -> None:
    device, space, hot = live.pick_device(), load_space("paper9"), PROTOCOLS[1]
    problem = Problem(dtype="s8", m=64, n=512, k=k)
    torch = [("torch._int_mm", TorchIntMm())]
    with live.open_runner(device, space, "s8", None, [problem], seed=3, externals=torch) as runner:
        # the very first problem, on which all kernels are loaded, too
        for _ in range(2):
            rows = measure_problem(runner, problem, hot, range(len(runner.candidates)))
            assert len({row.launches for row in rows[:10]}) == 1
            groups = [rows[:10], *([row] for row in rows[10:])]  # a kernel of the vendor has a number of its own
            for group in groups:
                fastest_ns = min(float(np.median(row.elapsed_ns)) for row in group)
                assert group[0].launches == hot.hot_max_launches or fastest_ns >= 0.95 * hot.hot_fill_ns
