"""The program that times the same launches by events and by CUPTI, on a GPU that is a formula."""

import ctypes
import json
from pathlib import Path

import clock_cupti
import clock_setup
import pytest
from cupti_records import Kernel
from formula import EMPTY_NS, GAP_NS, LAUNCH_NS, FormulaRunner, FormulaTrial


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
