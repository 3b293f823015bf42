"""The programs that prove the clock, on a GPU that is a formula; no time here is a measurement."""

import ctypes
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import clock_cupti
import clock_dram
import clock_profiler
import clock_setup
import numpy as np
import pytest
import standin
from cupti_records import Kernel

from tilearena import live
from tilearena.dataset import Candidate
from tilearena.provenance import Clock
from tilearena.records import Device, Problem, Protocol, Status, Template
from tilearena.runner import Begun, Failure, Trial
from tilearena.spec import load_space

EMPTY_NS, LAUNCH_NS, GAP_NS = 1_000, 10_000, 500
DEVICE = standin.DEVICE.model_copy(update={"slug": "formula", "product": "Formula"})


class FormulaRunner:
    """Every launch of template t takes LAUNCH_NS * (1 + t); an interval adds EMPTY_NS; CUPTI sees the same launches."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        templates: tuple[Template, ...] = load_space("paper9").templates(problems[0].dtype, problems[0].bit_op)
        self.candidates = tuple(Candidate(id=t.id, template=t) for t in templates)
        self.device, self.default, self.versions = DEVICE, 1, {"cuda": "0"}
        self.kernels, self.proved, self.now_ns = [], [], 0

    def __enter__(self) -> "FormulaRunner":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def clock(self) -> Clock:
        self.run("_ZN9tilearena10do_nothingEv", 2 * EMPTY_NS)
        return Clock(empty_interval_ns=EMPTY_NS, empty_launch_ns=3 * EMPTY_NS, resolution_ns=1)

    def prove(
        self, problem: Problem, protocol: Protocol, which: Sequence[int], *, launches: int = 0, held: bool = True
    ) -> "FormulaTrial":
        self.proved.append((protocol.name, tuple(which), launches, held))
        return FormulaTrial(self, problem, protocol, which, launches or (5 if protocol.name == "hot" else 1))

    def run(self, name: str, time_ns: int) -> None:
        self.kernels.append(Kernel(self.now_ns, self.now_ns + time_ns, name))
        self.now_ns += time_ns


class FormulaTrial(Trial):
    """Candidates ``wrong`` fail the proof on a problem."""

    wrong: frozenset[tuple[Problem, int]] = frozenset()

    def __init__(
        self, runner: FormulaRunner, problem: Problem, protocol: Protocol, which: Sequence[int], launches: int
    ) -> None:
        self._runner, self._which, self._launches = runner, which, launches
        self._failed = [i for i in which if (problem, i) in self.wrong]
        self._warm_up = clock_setup.WARM_UP[protocol.name]

    def begin(self) -> Begun:
        failure = Failure(Status.WRONG_RESULT, "row 3 of the output is wrong")
        launches = {i: self._launches for i in self._which if i not in self._failed}
        return Begun(launches, dict.fromkeys(self._failed, failure))

    def submit(self, order: Sequence[int]) -> None:
        self._out: list[int] = []
        for _ in range(self._warm_up):
            self._runner.run("_ZN7cutlass6KernelE", 7)
        for template in order:
            self._runner.run("_ZN9tilearena10spoil_rowsEPiii", 100)
            first = self._runner.now_ns
            for repeat in range(self._launches):
                self._runner.now_ns += GAP_NS if repeat else 0
                self._runner.run("_ZN7cutlass6KernelE", LAUNCH_NS * (1 + template))
            self._out.append(self._runner.now_ns - first + EMPTY_NS)

    def collect(self) -> tuple[list[int], dict[int, Failure]]:
        return self._out, {}


class FormulaRecorder:
    """In place of CUPTI: what the runners launched meanwhile."""

    version, runners = 130000, []

    def __enter__(self) -> "FormulaRecorder":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @contextmanager
    def recording(self) -> Iterator[list[Any]]:
        seen: list[Any] = []
        before = [len(runner.kernels) for runner in self.runners]
        yield seen
        for runner, count in zip(self.runners, before, strict=True):
            seen += runner.kernels[count:]


@pytest.fixture
def formula(monkeypatch: pytest.MonkeyPatch) -> list[FormulaRunner]:
    """Opens formula runners instead of a GPU; the list has those that were opened."""
    opened: list[FormulaRunner] = []

    def _open(device: Device, space: Any, dtype: str, bit_op: Any, problems: Any, *, seed: int) -> FormulaRunner:
        opened.append(FormulaRunner(problems))
        return opened[-1]

    monkeypatch.setattr(live, "pick_device", lambda: DEVICE)
    monkeypatch.setattr(live, "open_runner", _open)
    monkeypatch.setattr(clock_setup, "WARM_UP_S", 0.0)
    monkeypatch.setattr(FormulaRecorder, "runners", opened)
    monkeypatch.setattr(clock_cupti, "Recorder", FormulaRecorder)
    return opened


def test_pairs_are_enough_and_cover_all_templates_and_three_decades() -> None:
    pairs = clock_cupti.PAIRS
    assert len(pairs) >= 30
    assert {pair.problem.dtype for pair in pairs} == {"s8", "b1"}
    assert {pair.template for pair in pairs} == set(range(9))
    macs = sorted(pair.problem.macs * (1 if pair.problem.dtype == "s8" else 0.25) for pair in pairs)
    assert macs[0] < 2e6 < 1e12 < macs[-1]


@pytest.mark.parametrize(("ours_ns", "agrees"), [(10_300, True), (10_301, False), (9_700, True), (9_699, False)])
def test_short_times_agree_within_300_ns(ours_ns: int, agrees: bool) -> None:
    assert clock_cupti.agree(ours_ns, 10_000) is agrees


@pytest.mark.parametrize(("ours_ns", "agrees"), [(103_000, True), (103_001, False)])
def test_long_times_agree_within_3_percent(ours_ns: int, agrees: bool) -> None:
    assert clock_cupti.agree(ours_ns, 100_000) is agrees


def test_a_span_goes_from_the_first_start_to_the_last_end() -> None:
    kernels = [Kernel(0, 9, "spoil"), *(Kernel(t, t + 10, "_ZN7cutlassE") for t in (100, 112, 200, 215))]
    assert clock_cupti.spans(kernels, 2, 2, 0) == [22, 25]
    assert clock_cupti.spans(kernels, 1, 4, 0) == [10] * 4
    assert clock_cupti.spans(kernels, 1, 3, 1) == [10] * 3


def test_spans_of_the_last_attempt_count() -> None:
    kernels = [Kernel(t, t + length, "cutlass") for t, length in ((0, 1), (10, 2), (20, 3), (30, 4))]
    assert clock_cupti.spans(kernels, 1, 2, 0) == [3, 4]
    assert clock_cupti.spans(kernels, 1, 1, 1) == [4]


def test_missing_records_are_refused() -> None:
    with pytest.raises(RuntimeError, match="CUPTI has 3 records of the templates' kernels, 4 were launched"):
        clock_cupti.spans([Kernel(0, 1, "cutlass")] * 3, 2, 2, 0)


def test_both_clocks_agree_on_a_formula(formula: list[FormulaRunner], tmp_path: Path) -> None:
    chosen = [*clock_cupti.PAIRS[:2], clock_cupti.PAIRS[-1]]
    result = clock_cupti.compare(chosen)
    assert [runner.candidates[0].template.dtype for runner in formula] == ["s8", "b1"]
    assert result["failed"] == 0
    for name in ("cold", "hot"):
        summary = result["summary"][name]
        assert (summary["n"], summary["agrees"], summary["bare_agrees"]) == (3, 1.0, 1.0)
        assert summary["difference_ns"] == dict.fromkeys(("min", "p25", "p50", "p75", "max"), EMPTY_NS)
        assert summary["agrees_less_empty_interval"] == 1.0
        assert summary["disturbed"]["max"] == 0
    assert result["empty_launch"] == {"event_ns": 3 * EMPTY_NS, "cupti_ns": 2 * EMPTY_NS, "adds_ns": EMPTY_NS}
    cold, hot = result["rows"][:2]
    time_ns = LAUNCH_NS * (1 + chosen[0].template)
    assert (cold["cupti_ns"], cold["event_ns"]) == (time_ns, time_ns + EMPTY_NS)
    assert hot["cupti_ns"] == 5 * time_ns + 4 * GAP_NS
    assert hot["added_ns"] == EMPTY_NS - GAP_NS  # 2 I(n) - I(2 n), where n launches have n - 1 gaps
    out = tmp_path / "cupti.json"
    rows = len(result["rows"])
    clock_setup.write(out, result)
    assert len(json.loads(out.read_text())["rows"]) == rows == 6


def test_a_pair_that_fails_is_counted_and_loses_no_other(
    formula: list[FormulaRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = clock_cupti.PAIRS[1]
    monkeypatch.setattr(FormulaTrial, "wrong", frozenset({(wrong.problem, wrong.template)}))
    result = clock_cupti.compare(clock_cupti.PAIRS[:3])
    assert (result["failed"], len(result["rows"])) == (2, 4)


def test_kernel_record_is_read_at_its_offsets() -> None:
    record, name = ctypes.create_string_buffer(208), ctypes.create_string_buffer(b"_ZN7cutlassE")
    address = ctypes.addressof(record)
    ctypes.c_uint64.from_address(address + 16).value = 1_000
    ctypes.c_uint64.from_address(address + 24).value = 1_750
    ctypes.c_uint64.from_address(address + 104).value = ctypes.addressof(name)
    assert Kernel.at(address) == Kernel(1_000, 1_750, "_ZN7cutlassE")


LOG = """==PROF== Connected to process 7 (/usr/bin/python3)
==PROF== Profiling "Kernel" - 0: 0%....50%....100% - 1 pass
==PROF== Profiling "Kernel" - 1: 0%....50%....100% - 2 passes
==PROF== Disconnected from process 7
"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"
"0","7","void cutlass::Kernel<a, b>(T1::Params)","x","dram__bytes_read.sum","byte","8,388,608"
"0","7","void cutlass::Kernel<a, b>(T1::Params)","x","gpu__time_duration.sum","ns","31,456.5"
"1","7","void cutlass::Kernel<a, b>(T1::Params)","x","dram__bytes_read.sum","byte","0"
"1","7","void cutlass::Kernel<a, b>(T1::Params)","x","gpu__time_duration.sum","ns","21,000"
"""


def test_nsight_computes_table_is_read() -> None:
    assert clock_dram.passes(LOG) == [1, 2]
    assert clock_dram.parse(LOG) == [
        {"dram__bytes_read.sum": 8_388_608.0, "gpu__time_duration.sum": 31_456.5},
        {"dram__bytes_read.sum": 0.0, "gpu__time_duration.sum": 21_000.0},
    ]


def test_nsight_computes_scaled_units_and_missing_table_are_refused() -> None:
    with pytest.raises(ValueError, match=r"dram__bytes_read.sum is in Mbyte"):
        clock_dram.parse(LOG.replace('"byte"', '"Mbyte"'))
    with pytest.raises(ValueError, match="No kernels were profiled"):
        clock_dram.parse("==WARNING== No kernels were profiled.\n")


def test_dram_rows_compare_reads_with_the_operands() -> None:
    sizes = {"operand_bytes": 1_000, "output_bytes": 500}
    groups = [
        sizes | {"protocol": "cold", "warm_up": 0, "launches": 3},
        sizes | {"protocol": "hot", "warm_up": 1, "launches": 1},
    ]
    launches = [{clock_dram.READ: float(read)} for read in (1_100, 990, 1_000, 800, 10)]
    cold, hot = clock_dram.rows(groups, launches)
    assert (cold["read_of_operands"], cold[clock_dram.READ]) == (1.0, [1_100, 990, 1_000])
    assert hot["read_of_operands"] == 0.01
    with pytest.raises(ValueError, match="5 launches were made, Nsight Compute counted 4"):
        clock_dram.rows(groups, launches[1:])


@pytest.mark.parametrize(
    ("name", "operand_bytes", "ratio", "meant"),
    [
        ("cold", 100, 0.95, True),
        ("cold", 100, 0.94, False),
        ("hot", 100, 0.05, True),
        ("hot", 100, 0.06, False),
        ("hot", 600, 0.9, None),
    ],
)
def test_protocols_are_judged_by_dram_reads(name: str, operand_bytes: int, ratio: float, meant: bool | None) -> None:
    row = {"protocol": name, "operand_bytes": operand_bytes, "output_bytes": 0, "read_of_operands": ratio}
    assert clock_dram.as_meant(row, 1_000) is meant


def test_nsight_compute_leaves_caches_and_clocks_alone() -> None:
    command = clock_dram.ncu_command("ncu", Path("report"), Path("plan"), [clock_dram.READ])
    text = " ".join(command)
    assert "--cache-control none --clock-control none" in text
    assert "--profile-from-start off" in text
    assert command[-2:] == ["--inside", "plan"]


def test_dram_problems_lie_well_below_below_and_above_the_l2() -> None:
    sizes = [(p.operand_bytes + p.output_bytes) / (60 << 20) for p in clock_dram.PROBLEMS]
    assert sizes == sorted(sizes)
    assert sizes[0] <= 0.5  # of which clock_dram.as_meant asks that nothing is read
    assert sum(0.5 < size < 0.9 for size in sizes) == 3
    assert sizes[-1] > 4


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
