"""The doctor's rules: what each reading is judged to be, on both sides of its threshold, and the verdict."""

import pynvml
import pytest

from tilearena.doctor import diagnose, verdict
from tilearena.doctor_readings import Clock, GpuProcess, Readings
from tilearena.doctor_rules import RULES

CLOCK = Clock(now_mhz=345, max_mhz=1980, application_mhz=1980, application_default_mhz=1980)
SOUND = Readings(
    product="Synthetic device",
    compute_processes=(),
    graphics_processes=(),
    clock_events=pynvml.nvmlClocksThrottleReasonGpuIdle,
    compute_mode=pynvml.NVML_COMPUTEMODE_DEFAULT,
    mig=False,
    mig_pending=False,
    ecc=True,
    ecc_pending=True,
    ecc_uncorrected=0,
    temperature_c=30,
    slowdown_c=90,
    power_w=75.4,
    power_limit_w=700,
    power_limit_default_w=700,
    sm_clock=CLOCK,
    memory_clock=CLOCK,
    memory_free_bytes=9 << 30,
    memory_total_bytes=10 << 30,
    persistence=True,
    driver="580.1",
    driver_cuda=(13, 0),
    load_1min=3.9,
    cores=4,
    nvcc="13.1.5",
    cutlass="4.2.0.0",
)


def finding(key, **changes):
    (found,) = [f for f in diagnose(SOUND.model_copy(update=changes)) if f.key == key]
    return found


def test_sound_machine_is_fit_without_remarks():
    findings = diagnose(SOUND)
    assert [f.key for f in findings] == list(RULES)
    assert [f.key for f in findings if f.level != "good"] == []
    assert verdict(findings) == "fit"


SOMEBODY = (GpuProcess(pid=12, memory_bytes=3 << 30), GpuProcess(pid=13))
UNFIT = [
    ("compute_processes", {"compute_processes": SOMEBODY}, "pid 12 with 3072 MiB, pid 13 with ? MiB", "take SMs"),
    ("clock_events", {"clock_events": 0x8}, "hardware slowdown", "its cooling or supply, not the templates"),
    ("clock_events", {"clock_events": 0x20}, "software thermal slowdown", "not the templates"),
    (
        "clock_events",
        {"clock_events": 0x40 | 0x4},
        "software power cap, hardware thermal slowdown",
        "not the templates",
    ),
    ("clock_events", {"clock_events": 0x80}, "hardware power brake", "not the templates"),
    ("compute_mode", {"compute_mode": 2}, "prohibited", "No program may compute"),
    ("mig", {"mig": True}, "on", "a slice that shares memory, power and counters"),
    ("ecc_errors", {"ecc_uncorrected": 1}, "1 uncorrected since the driver was loaded", "results may be wrong"),
]
REMARKS = [
    ("graphics_processes", {"graphics_processes": SOMEBODY[1:]}, "pid 13 with ? MiB", "draw between launches"),
    ("memory", {"memory_free_bytes": (9 << 30) - 1}, "9.0 of 10.0 GiB free", "Somebody holds the rest"),
    ("clock_events", {"clock_events": 0x4 | 0x1}, "software power cap", "Normal for large int8 products"),
    ("clock_events", {"clock_events": 0x2}, "clocks held by a setting", "below what the GPU could do"),
    ("clock_events", {"clock_events": 0x400}, "reason 0x400", "below what the GPU could do"),
    ("temperature", {"temperature_c": 80}, "80 C, 10 C below slowdown", "may soon slow it down"),
    ("temperature", {"slowdown_margin_c": 10}, "30 C, 10 C below slowdown", "may soon slow it down"),
    (
        "power_limit",
        {"power_limit_w": 699.0},
        "limit 699 W, default 700 W, drawn now 75 W",
        "measure records the limit",
    ),
    (
        "sm_clock",
        {"sm_clock": CLOCK.model_copy(update={"application_mhz": 1500})},
        "345 MHz now, at most 1980 MHz, application clock 1500 MHz (default 1980 MHz)",
        "changed clocks",
    ),
    (
        "memory_clock",
        {"memory_clock": CLOCK.model_copy(update={"application_default_mhz": 2000})},
        "345 MHz now, at most 1980 MHz, application clock 1980 MHz (default 2000 MHz)",
        "changed clocks",
    ),
    ("mig", {"mig_pending": True}, "off, on after a reset", "Later runs will see a slice"),
    ("ecc", {"ecc": False, "ecc_pending": False}, "off", "Memory errors go unnoticed"),
    ("ecc", {"ecc_pending": False}, "on, changed after a reset", "cold times may differ"),
    ("persistence", {"persistence": False}, "off", "The driver unloads"),
    ("driver", {"driver_cuda": (12, 9)}, "580.1, for CUDA up to 12.9", "nvcc 13.1.5 compiles do not start"),
    ("load", {"load_1min": 4.0}, "4.0 on 4 cores", "The host is busy"),
    ("toolchain", {"nvcc": None, "toolchain_error": "no nvcc; run: it"}, "not found", "compiled before"),
]
GOOD = [
    ("compute_processes", {}, "none of others"),
    ("graphics_processes", {}, "none of others"),
    ("memory", {}, "9.0 of 10.0 GiB free"),
    ("clock_events", {}, "none"),
    ("temperature", {"temperature_c": 79}, "79 C, 11 C below slowdown"),
    ("temperature", {"temperature_c": 89, "slowdown_margin_c": 11}, "89 C, 11 C below slowdown"),
    ("power_limit", {}, "limit 700 W, default 700 W, drawn now 75 W"),
    ("sm_clock", {}, "345 MHz now, at most 1980 MHz, application clock 1980 MHz (default 1980 MHz)"),
    ("sm_clock", {"sm_clock": Clock(max_mhz=1710)}, "unknown now, at most 1710 MHz, application clock unknown"),
    ("compute_mode", {}, "shared"),
    ("compute_mode", {"compute_mode": 3}, "exclusive (process)"),
    ("mig", {}, "off"),
    ("mig", {"mig": None}, "unknown"),
    ("ecc", {}, "on"),
    ("ecc", {"ecc": None}, "unknown"),
    ("ecc_errors", {}, "0 uncorrected since the driver was loaded"),
    ("ecc_errors", {"ecc_uncorrected": None}, "unknown"),
    ("persistence", {}, "on"),
    ("driver", {}, "580.1, for CUDA up to 13.0"),
    ("driver", {"nvcc": "12.4.1", "driver_cuda": (12, 2)}, "580.1, for CUDA up to 12.2"),
    ("gpus", {"n_gpus": 2, "ordinal": 1}, "2 visible, this is number 1"),
    ("load", {}, "3.9 on 4 cores"),
    ("toolchain", {}, "nvcc 13.1.5, CUTLASS 4.2.0.0"),
]
UNKNOWN = [
    ("compute_processes", "unknown"),
    ("graphics_processes", "unknown"),
    ("memory_free_bytes", "unknown"),
    ("clock_events", "unknown"),
    ("temperature_c", "unknown, slowdown threshold unknown"),
    ("slowdown_c", "30 C, slowdown threshold unknown"),
    ("power_limit_default_w", "limit 700 W, default unknown, drawn now 75 W"),
    ("compute_mode", "unknown"),
    ("persistence", "unknown"),
    ("driver", "unknown"),
    ("load_1min", "unknown"),
]


@pytest.mark.parametrize(("key", "changes", "value", "meaning"), UNFIT)
def test_rule_makes_the_machine_unfit(key, changes, value, meaning):
    found = finding(key, **changes)
    assert (found.level, found.value) == ("unfit", value)
    assert meaning in found.meaning
    assert found.advice.endswith(".")
    assert verdict(diagnose(SOUND.model_copy(update=changes))) == "not fit"


@pytest.mark.parametrize(("key", "changes", "value", "meaning"), REMARKS)
def test_rule_makes_a_remark(key, changes, value, meaning):
    found = finding(key, **changes)
    assert (found.level, found.value) == ("remark", value)
    assert meaning in found.meaning
    assert found.advice
    findings = diagnose(SOUND.model_copy(update=changes))
    assert verdict(findings) == "fit, with remarks"
    assert [f.key for f in findings if f.level != "good"] == [key]


@pytest.mark.parametrize(("key", "changes", "value"), GOOD)
def test_rule_finds_nothing(key, changes, value):
    found = finding(key, **changes)
    assert (found.level, found.value, found.advice) == ("good", value, "")


@pytest.mark.parametrize(("field", "value"), UNKNOWN)
def test_reading_that_is_not_told_is_a_remark(field, value):
    (found,) = [f for f in diagnose(SOUND.model_copy(update={field: None})) if f.level != "good"]
    assert (found.level, found.value) == ("remark", value)


def test_advice_names_what_undoes_it():
    assert finding("power_limit", power_limit_w=400.0).advice.endswith("nvidia-smi -pl 700.")
    assert finding("compute_mode", compute_mode=2).advice.endswith("nvidia-smi -c 0.")
    assert finding("toolchain", nvcc=None, toolchain_error="no nvcc; run: it").advice == "no nvcc; run: it"


def test_unfit_outweighs_remarks():
    assert verdict(diagnose(SOUND.model_copy(update={"mig": True, "persistence": False}))) == "not fit"
