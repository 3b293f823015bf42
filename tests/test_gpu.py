"""On a GPU: planted faults are caught before and after timing, and real templates are proved and timed."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tilearena import build, live, toolchain
from tilearena.baselines.cublaslt import TorchIntMm
from tilearena.build import Library
from tilearena.errors import NoGpuError
from tilearena.measure import measure_problem
from tilearena.records import Problem, Protocol, Status, Template
from tilearena.runner import GpuRunner
from tilearena.spec import load_space

pytestmark = pytest.mark.gpu

FAULTS = {
    "good": "",
    "wrong_element": "row",
    "unwritten_tile": "row",
    "past_the_end": "outside its output",
    "before_the_start": "outside its output",
    "skipped_tail": "row",
    "wrong_later": "last timed launch",
    "stale_later": "last timed launch",
}
#: K is no multiple of 64, so that a skipped tail is a fault; one problem below and one above the direct reference.
SMALL = Problem(dtype="s8", m=77, n=104, k=208)
LARGE = Problem(dtype="s8", m=333, n=504, k=1040)
PROTOCOLS = [Protocol(name=name, rounds=4, seed=5) for name in ("cold", "hot")]


class Named(Template):
    """A template whose id is its label: it stands for a kernel that is no CUTLASS template."""

    @property
    def id(self) -> str:
        return self.label


@pytest.fixture(scope="module")
def faulty_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faulty")
    table = folder / "table.cu"
    table.write_text(build.table_source(list(FAULTS)))
    library = folder / "faulty.so"
    sources = [table, Path(__file__).with_name("faulty_kernels.cu"), build.kernel_sources() / "harness.cu"]
    code = live.pick_device().arch
    arch = f"arch=compute_{code},code=sm_{code}"
    flags = [*build.FLAGS, "-gencode", arch, f"-I{build.kernel_sources()}", "-shared", "-cudart", "static"]
    tools = toolchain.find()
    subprocess.run([tools.nvcc, *flags, *tools.link_flags, *sources, "-o", library], check=True)
    return library


def open_faulty(library: Path, l2_multiple: float) -> GpuRunner:
    device = live.pick_device()
    shapes = {"threadblock": (16, 16, 64), "warp": (16, 16, 64), "instruction": (16, 8, 32), "stages": 2}
    templates = [Named(dtype="s8", label=name, **shapes) for name in FAULTS]
    described = Library(name="faulty", arch=device.arch, file=library.name, sources="", versions={})
    problems = [SMALL, LARGE]
    return GpuRunner(library, described, templates, 0, device, problems, seed=11, l2_multiple=l2_multiple)


@pytest.fixture(scope="module")
def faulty(faulty_library: Path) -> Iterator[GpuRunner]:
    with open_faulty(faulty_library, 3.0) as runner:
        yield runner


def test_stale_output_is_caught_where_slots_come_round(faulty_library: Path) -> None:
    """Rings of two slots: a launch has operands and output of the last but one, whose product is still there."""
    with open_faulty(faulty_library, 0.0) as runner:
        stale = list(FAULTS).index("stale_later")
        runner._lib.ta_forget_calls()
        row = measure_problem(runner, LARGE, PROTOCOLS[0], [0, stale])[1]
    assert row.status is Status.WRONG_RESULT
    assert FAULTS["stale_later"] in row.reason


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: p.name)
@pytest.mark.parametrize("problem", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_caught(faulty: GpuRunner, fault: str, problem: Problem, protocol: Protocol) -> None:
    faulty._lib.ta_forget_calls()
    row = measure_problem(faulty, problem, protocol, [list(FAULTS).index(fault)])[0]
    if fault == "good":
        assert row.status is Status.OK
        assert len(row.elapsed_ns) == 4
    else:
        assert row.status is Status.WRONG_RESULT
        assert FAULTS[fault] in row.reason
        assert row.elapsed_ns == ()


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


def test_cublaslt_takes_turns_with_templates() -> None:
    pytest.importorskip("torch")
    device, space = live.pick_device(), load_space("paper9")
    problems = [Problem(dtype="s8", m=m, n=512, k=1024) for m in (8, 512)]
    with live.open_runner(
        device, space, "s8", None, problems, seed=3, vendor=("torch._int_mm", TorchIntMm())
    ) as runner:
        vendor = len(runner.candidates) - 1
        for protocol in PROTOCOLS:
            small, large = (measure_problem(runner, p, protocol, [0, vendor]) for p in problems)
            assert [row.status for row in small] == [Status.OK, Status.INFEASIBLE]
            assert [row.status for row in large] == [Status.OK, Status.OK], large


class Slow:
    """Enqueues the same work after keeping the host busy."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s, self.enqueue = delay_s, TorchIntMm()

    def __call__(self, *arguments: int) -> int:
        time.sleep(self.delay_s)
        return self.enqueue(*arguments)


def test_host_delay_is_not_in_the_times() -> None:
    pytest.importorskip("torch")
    device, space = live.pick_device(), load_space("paper9")
    problem = Problem(dtype="s8", m=256, n=512, k=1024)
    medians = []
    for delay_s in (0.0, 0.005):
        with live.open_runner(device, space, "s8", None, [problem], seed=3, vendor=("slow", Slow(delay_s))) as runner:
            vendor = len(runner.candidates) - 1
            rows = measure_problem(runner, problem, PROTOCOLS[0], [4, vendor])
            medians.append([float(np.median(row.elapsed_ns)) for row in rows])
    for before, after in zip(*medians, strict=True):
        assert abs(after - before) < 0.2 * before + 1_000  # 5 ms of delay would be 5,000,000


@pytest.mark.parametrize("k", [64, 1024, 16384])
def test_hot_samples_fill_their_time_and_candidates_share_the_number_of_launches(k: int) -> None:
    device, space = live.pick_device(), load_space("paper9")
    problem = Problem(dtype="s8", m=64, n=512, k=k)
    with live.open_runner(device, space, "s8", None, [problem], seed=3) as runner:
        rows = measure_problem(runner, problem, PROTOCOLS[1], range(len(runner.candidates)))
    assert len({row.launches for row in rows}) == 1
    fill_ns = PROTOCOLS[1].hot_fill_ns
    assert rows[0].launches == PROTOCOLS[1].hot_max_launches or min(np.median(r.elapsed_ns) for r in rows) >= fill_ns
