"""What the doctor reads, asked of fakes of CUDA and NVML, and the verb."""

import json
import os
import sys
from types import ModuleType, SimpleNamespace

import pynvml
import pytest
import standin

from tilearena import doctor_readings, toolchain
from tilearena.doctor_readings import Clock, GpuProcess, Readings, read
from tilearena.doctor_rules import RULES
from tilearena.errors import BuildError, NoGpuError

CARD = standin.DEVICE.model_copy(update={"product": "Synthetic device"})
UUID = bytes(range(16))


def unsupported(*arguments):
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


@pytest.fixture
def machine(monkeypatch):
    """A machine with two cards behind fakes of CUDA, NVML, the toolchain and the load; returns how to change NVML."""
    driver = ModuleType("cuda.bindings.driver")
    driver.cuDeviceGet = lambda ordinal: (0, ordinal)
    driver.cuDeviceGetUuid = lambda handle: (0, SimpleNamespace(bytes=UUID))
    driver.cuDeviceGetPCIBusId = lambda size, handle: (0, b"0000:0%d:00.0\0" % handle)
    package = ModuleType("cuda.bindings")
    package.driver = driver
    monkeypatch.setitem(sys.modules, "cuda.bindings", package)
    monkeypatch.setattr(doctor_readings, "visible_devices", lambda: [CARD, CARD])
    monkeypatch.setattr(doctor_readings, "pick_device", lambda ordinal: CARD)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.5, 1.0, 1.0), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    tools = SimpleNamespace(cuda_version="13.1.5", cutlass_version="4.2.0.0")
    monkeypatch.setattr(toolchain, "find", lambda: tools)
    ours = SimpleNamespace(pid=os.getpid(), usedGpuMemory=1 << 20)
    theirs = SimpleNamespace(pid=os.getpid() + 1, usedGpuMemory=None)
    kinds = {pynvml.NVML_CLOCK_GRAPHICS: 1, pynvml.NVML_CLOCK_SM: 2, pynvml.NVML_CLOCK_MEM: 3}
    answers = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByUUID": lambda name: name,
        "nvmlDeviceGetHandleByPciBusId": unsupported,
        "nvmlSystemGetDriverVersion": lambda: "580.1",
        "nvmlSystemGetCudaDriverVersion": lambda: 12_090,
        "nvmlDeviceGetComputeRunningProcesses": lambda card: [ours, theirs],
        "nvmlDeviceGetGraphicsRunningProcesses": lambda card: [],
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda card: 4,
        "nvmlDeviceGetTotalEccErrors": lambda card, kind, since: 0 if (kind, since) == (1, 0) else 99,
        "nvmlDeviceGetTemperature": lambda card, sensor: 31,
        "nvmlDeviceGetTemperatureThreshold": lambda card, which: 80 + which,
        "nvmlDeviceGetMarginTemperature": lambda card: 55,
        "nvmlDeviceGetPowerUsage": lambda card: 76_500,
        "nvmlDeviceGetPowerManagementLimit": lambda card: 600_000,
        "nvmlDeviceGetPowerManagementDefaultLimit": lambda card: 700_000,
        "nvmlDeviceGetMemoryInfo": lambda card: SimpleNamespace(free=5, total=8, used=3),
        "nvmlDeviceGetComputeMode": lambda card: 3,
        "nvmlDeviceGetMigMode": lambda card: [0, 1],
        "nvmlDeviceGetEccMode": lambda card: [1, 0],
        "nvmlDeviceGetPersistenceMode": lambda card: 1,
        "nvmlDeviceGetClockInfo": lambda card, kind: 300 + kinds[kind],
        "nvmlDeviceGetMaxClockInfo": lambda card, kind: 1900 + kinds[kind],
        "nvmlDeviceGetApplicationsClock": lambda card, kind: 1500 + kinds[kind],
        "nvmlDeviceGetDefaultApplicationsClock": lambda card, kind: 1600 + kinds[kind],
    }

    def _answer(changed):
        for name, answer in changed.items():
            monkeypatch.setattr(pynvml, name, answer, raising=False)

    _answer(answers)
    return SimpleNamespace(answer=_answer, names=[name for name in answers if name.startswith("nvmlDeviceGet")])


def test_card_and_host_are_read(machine):
    assert read(1) == Readings(
        product="Synthetic device",
        ordinal=1,
        n_gpus=2,
        compute_processes=(GpuProcess(pid=os.getpid() + 1),),
        graphics_processes=(),
        clock_events=4,
        compute_mode=3,
        mig=False,
        mig_pending=True,
        ecc=True,
        ecc_pending=False,
        ecc_uncorrected=0,  # uncorrected, since the driver was loaded: all others are 99
        temperature_c=31,
        slowdown_c=81,
        slowdown_margin_c=55,
        power_w=76.5,
        power_limit_w=600.0,
        power_limit_default_w=700.0,
        sm_clock=Clock(now_mhz=302, max_mhz=1902, application_mhz=1501, application_default_mhz=1601),
        memory_clock=Clock(now_mhz=303, max_mhz=1903, application_mhz=1503, application_default_mhz=1603),
        memory_free_bytes=5,
        memory_total_bytes=8,
        persistence=True,
        driver="580.1",
        driver_cuda=(12, 9),
        load_1min=0.5,
        cores=16,
        nvcc="13.1.5",
        cutlass="4.2.0.0",
    )


def test_card_that_supports_no_reading_is_unknown_and_no_crash(machine, run):
    machine.answer({name: unsupported for name in machine.names if "HandleBy" not in name})
    assert read() == Readings(
        product="Synthetic device",
        n_gpus=2,
        driver="580.1",
        driver_cuda=(12, 9),
        load_1min=0.5,
        cores=16,
        nvcc="13.1.5",
        cutlass="4.2.0.0",
    )
    assert run("doctor")[0] == 0


def test_nvml_that_is_too_old_for_a_reading_is_unknown(machine):
    def too_old(card):
        raise pynvml.NVMLLibraryMismatchError("no such function")

    machine.answer({"nvmlDeviceGetComputeRunningProcesses": too_old})
    assert read().compute_processes is None


def test_slice_of_a_card_is_found_by_its_bus(machine, run):
    machine.answer(
        {
            "nvmlDeviceGetHandleByUUID": unsupported,
            "nvmlDeviceGetHandleByPciBusId": lambda bus: bus,
            "nvmlDeviceGetMigMode": lambda card: {"0000:01:00.0": [1, 1]}[card],
        }
    )
    assert read(1).mig is True
    machine.answer({"nvmlDeviceGetComputeRunningProcesses": lambda card: []})
    code, out, _ = run("doctor", "--gpu", 1)
    assert code == 1
    assert "Synthetic device (GPU 1) and this machine: not fit" in out


def test_card_that_nvml_does_not_know_has_no_state(machine):
    machine.answer({"nvmlDeviceGetHandleByUUID": unsupported})
    readings = read()
    assert (readings.clock_events, readings.driver, readings.cores) == (None, None, 16)


def test_toolchain_that_is_missing_is_told_with_its_reason(machine, monkeypatch):
    def missing():
        raise BuildError("no nvcc on PATH; run: it")

    monkeypatch.setattr(toolchain, "find", missing)
    readings = read()
    assert (readings.nvcc, readings.cutlass, readings.toolchain_error) == (None, None, "no nvcc on PATH; run: it")


def test_doctor_prints_remarks_after_the_verdict_and_exits_with_0(machine, run):
    machine.answer({"nvmlDeviceGetComputeRunningProcesses": lambda card: []})
    code, out, err = run("doctor")
    assert (code, err) == (0, "")
    table, remarks = out.split("Synthetic device (GPU 0) and this machine: fit, with remarks\n")
    assert all(key in table for key in RULES)
    assert "- remark: power_limit: limit 600 W, default 700 W, drawn now 76 W. Large products run slower" in remarks
    assert "good" not in remarks


def test_doctor_prints_json_and_exits_with_1_when_not_fit(machine, run):
    code, out, _ = run("doctor", "--json")
    told = json.loads(out)
    assert (code, told["verdict"]) == (1, "not fit")
    assert [f["key"] for f in told["findings"]] == list(RULES)
    assert [f["key"] for f in told["findings"] if f["level"] == "unfit"] == ["compute_processes"]
    assert told["readings"]["power_limit_w"] == 600.0


def test_doctor_without_a_gpu_is_one_sentence(run, monkeypatch):
    def none(ordinal):
        raise NoGpuError("no GPU: CUDA shows no device to this process")

    monkeypatch.setattr(doctor_readings, "pick_device", none)
    assert run("doctor") == (2, "", "tilearena: no GPU: CUDA shows no device to this process\n")
    assert run("doctor", "--json")[:2] == (2, "")


def test_doctor_changes_nothing(machine, run, monkeypatch):
    changed = []
    for name in dir(pynvml):
        if name.startswith(("nvmlDeviceSet", "nvmlDeviceReset", "nvmlDeviceClear", "nvmlSystemSet")):
            monkeypatch.setattr(pynvml, name, lambda *arguments, name=name: changed.append(name))
    assert run("doctor")[0] == 1
    assert changed == []
