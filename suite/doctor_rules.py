"""The rules of `tilearena doctor`: what each reading means for a measurement, and what the user can do about it."""

from collections.abc import Callable
from typing import Literal

import pynvml

from tilearena.device import SLOWDOWN
from tilearena.doctor_readings import Clock, GpuProcess, Readings

Level = Literal["good", "remark", "unfit"]
#: Level, the value in words, what it means for a measurement, what the user can do.
Judged = tuple[Level, str, str, str]

#: Degrees below the slowdown threshold that leave little room for the heat of a run.
MARGIN_C = 10
#: An idle card keeps a few per cent for itself; with less than this free, somebody holds memory.
FREE_SHARE = 0.9
#: NVML's clock event reasons, https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
EVENTS = {
    pynvml.nvmlClocksThrottleReasonApplicationsClocksSetting: "clocks held by a setting",
    pynvml.nvmlClocksThrottleReasonSwPowerCap: "software power cap",
    pynvml.nvmlClocksThrottleReasonHwSlowdown: "hardware slowdown",
    pynvml.nvmlClocksThrottleReasonSyncBoost: "clocks held to those of other cards",
    pynvml.nvmlClocksThrottleReasonSwThermalSlowdown: "software thermal slowdown",
    pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: "hardware thermal slowdown",
    pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "hardware power brake",
    pynvml.nvmlClocksThrottleReasonDisplayClockSetting: "clocks held by a display",
}
COMPUTE_MODES = {
    pynvml.NVML_COMPUTEMODE_DEFAULT: "shared",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "exclusive (thread)",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "prohibited",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive (process)",
}


def _unknown(meaning: str) -> Judged:
    return "remark", "unknown", meaning, "Look with nvidia-smi -q."


def _absent(meaning: str) -> Judged:
    """Not told, as by cards that lack the feature."""
    return "good", "unknown", meaning, ""


def _held(processes: tuple[GpuProcess, ...]) -> str:
    memory = ["?" if p.memory_bytes is None else f"{p.memory_bytes / 2**20:.0f}" for p in processes]
    return ", ".join(f"pid {p.pid} with {held} MiB" for p, held in zip(processes, memory, strict=True))


def _compute_processes(r: Readings) -> Judged:
    if r.compute_processes is None:
        return _unknown("Another program may compute on this GPU unseen.")
    if r.compute_processes:
        meaning = "Others compute on this GPU, and take SMs, L2 and memory bandwidth from the kernels that are timed."
        advice = "Wait until they are done, stop them if they are yours, or choose another GPU with --gpu."
        return "unfit", _held(r.compute_processes), meaning, advice
    return "good", "none of others", "Nobody else is seen to compute on this GPU.", ""


def _graphics_processes(r: Readings) -> Judged:
    if r.graphics_processes is None:
        return _unknown("A desktop may draw on this GPU unseen.")
    if r.graphics_processes:
        meaning = "What they draw between launches makes some samples slower."
        advice = "Measure without a desktop session, or on a GPU that drives no display."
        return "remark", _held(r.graphics_processes), meaning, advice
    return "good", "none of others", "Nobody else is seen to draw on this GPU.", ""


def _memory(r: Readings) -> Judged:
    if r.memory_free_bytes is None or r.memory_total_bytes is None:
        return _unknown("Problems that do not fit become failed rows.")
    value = f"{r.memory_free_bytes / 2**30:.1f} of {r.memory_total_bytes / 2**30:.1f} GiB free"
    if r.memory_free_bytes < FREE_SHARE * r.memory_total_bytes:
        meaning = "Somebody holds the rest, perhaps unseen from a container; what does not fit becomes failed rows."
        return "remark", value, meaning, "Look with nvidia-smi on the host, and wait until it is free."
    return "good", value, "Hardly any is held by others.", ""


def _clock_events(r: Readings) -> Judged:
    if r.clock_events is None:
        return _unknown("Nobody can say whether heat or power holds the clocks back now.")
    events = r.clock_events & ~pynvml.nvmlClocksThrottleReasonGpuIdle
    names = [name for bit, name in EVENTS.items() if events & bit]
    other = events & ~sum(EVENTS)
    value = ", ".join(names + ([f"reason {other:#x}"] if other else [])) or "none"
    if events & SLOWDOWN:
        meaning = "The GPU protects itself and runs slower: times would show its cooling or supply, not the templates."
        return "unfit", value, meaning, "Let it cool, look at fans, air flow and power cables, then ask again."
    if events == pynvml.nvmlClocksThrottleReasonSwPowerCap:
        meaning = "Normal for large int8 products; measure records it."
        return "remark", value, meaning, "Nothing needs to be done; where the GPU is idle, look at its power limit."
    if events:
        meaning = "Something holds the clocks below what the GPU could do; measure records it."
        return "remark", value, meaning, "To measure as shipped, an administrator can undo it (nvidia-smi -rgc, -rac)."
    return "good", value, "Nothing holds the clocks back now.", ""


def _temperature(r: Readings) -> Judged:
    margin = r.slowdown_margin_c
    if margin is None and r.temperature_c is not None and r.slowdown_c is not None:
        margin = r.slowdown_c - r.temperature_c
    now = "unknown" if r.temperature_c is None else f"{r.temperature_c} C"
    if margin is None:
        level, _, meaning, advice = _unknown("Nobody can say how near the GPU is to slowing down.")
        return level, f"{now}, slowdown threshold unknown", meaning, advice
    value = f"{now}, {margin} C below slowdown"
    if margin <= MARGIN_C:
        meaning = "A run heats the GPU, and so may soon slow it down."
        return "remark", value, meaning, "Let it cool, and look at fans and air flow."
    return "good", value, "There is room for the heat of a run.", ""


def _power_limit(r: Readings) -> Judged:
    def watts(value: float | None) -> str:
        return "unknown" if value is None else f"{value:.0f} W"

    limit, default = r.power_limit_w, r.power_limit_default_w
    value = f"limit {watts(limit)}, default {watts(default)}, drawn now {watts(r.power_w)}"
    if limit is None or default is None:
        level, _, meaning, advice = _unknown("Nobody can say whether the limit was lowered.")
        return level, value, meaning, advice
    if limit < default:
        meaning = "Large products run slower than on a GPU as shipped; measure records the limit."
        return (
            "remark",
            value,
            meaning,
            f"To measure as shipped, an administrator can run nvidia-smi -pl {default:.0f}.",
        )
    return "good", value, "The limit is not lowered.", ""


def _clock(clock: Clock) -> Judged:
    def mhz(value: int | None) -> str:
        return "unknown" if value is None else f"{value} MHz"

    at_most, now = mhz(clock.max_mhz), mhz(clock.now_mhz)
    value = f"{now} now, at most {at_most}"
    setting, default = clock.application_mhz, clock.application_default_mhz
    if setting is None or default is None:
        return "good", f"{value}, application clock unknown", "An idle GPU clocks low; measure records the clocks.", ""
    value += f", application clock {mhz(setting)} (default {mhz(default)})"
    if setting != default:
        meaning = "Times are those of a GPU with changed clocks; measure records the clocks."
        return "remark", value, meaning, "To measure as shipped, an administrator can run nvidia-smi -rac."
    return "good", value, "An idle GPU clocks low; measure records the clocks.", ""


def _compute_mode(r: Readings) -> Judged:
    if r.compute_mode is None:
        return _unknown("A GPU that forbids computing cannot be measured.")
    value = COMPUTE_MODES.get(r.compute_mode, f"mode {r.compute_mode}")
    if r.compute_mode == pynvml.NVML_COMPUTEMODE_PROHIBITED:
        return "unfit", value, "No program may compute on this GPU.", "An administrator can run nvidia-smi -c 0."
    return "good", value, "Programs may compute on this GPU.", ""


def _mig(r: Readings) -> Judged:
    if r.mig is None:
        return _absent("GPUs without MIG do not tell.")
    if r.mig:
        meaning = "What is timed is a slice that shares memory, power and counters with others, under the GPU's name."
        return "unfit", "on", meaning, "Take a GPU without MIG, or an administrator can run nvidia-smi -mig 0."
    if r.mig_pending:
        return "remark", "off, on after a reset", "Later runs will see a slice.", "Measure before the GPU is reset."
    return "good", "off", "The whole GPU is measured.", ""


def _ecc(r: Readings) -> Judged:
    if r.ecc is None:
        return _absent("GPUs without ECC do not tell.")
    value = "on" if r.ecc else "off"
    if r.ecc_pending is not None and r.ecc_pending != r.ecc:
        meaning = "After the next reset, memory bandwidth and so cold times may differ."
        return "remark", f"{value}, changed after a reset", meaning, "Reset first, or finish all recordings before."
    if not r.ecc:
        meaning = "Memory errors go unnoticed, and cold times may differ from those of GPUs with ECC on."
        return "remark", value, meaning, "To measure as others do, an administrator can run nvidia-smi -e 1."
    return "good", value, "Memory errors are seen, and those of one bit are corrected.", ""


def _ecc_errors(r: Readings) -> Judged:
    if r.ecc_uncorrected is None:
        return _absent("GPUs without ECC do not tell.")
    value = f"{r.ecc_uncorrected} uncorrected since the driver was loaded"
    if r.ecc_uncorrected:
        meaning = "The memory is damaged or worn: results may be wrong and kernels may fault."
        return "unfit", value, meaning, "An administrator can reset the GPU; have it replaced if errors come back."
    return "good", value, "The memory holds what is written to it.", ""


def _persistence(r: Readings) -> Judged:
    if r.persistence is None:
        return _unknown("The driver may unload between runs.")
    if not r.persistence:
        meaning = "The driver unloads when no program uses the GPU: each run starts slowly, and settings are lost."
        return "remark", "off", meaning, "An administrator can start nvidia-persistenced, or run nvidia-smi -pm 1."
    return "good", "on", "The driver stays loaded between runs.", ""


def _driver(r: Readings) -> Judged:
    if r.driver is None or r.driver_cuda is None:
        return _unknown("Kernels need a driver that is not older than the compiler.")
    value = f"{r.driver}, for CUDA up to {r.driver_cuda[0]}.{r.driver_cuda[1]}"
    if r.nvcc is not None and int(r.nvcc.split(".")[0]) > r.driver_cuda[0]:
        meaning = f"Kernels that nvcc {r.nvcc} compiles do not start with this driver."
        return "remark", value, meaning, "Update the driver, or put an older nvcc (12.4 or newer) on PATH."
    return "good", value, "It starts what is compiled here.", ""


def _load(r: Readings) -> Judged:
    if r.load_1min is None or r.cores is None:
        return _unknown("A busy host slows the checks and compilers, not the kernels.")
    value = f"{r.load_1min:.1f} on {r.cores} cores"
    if r.load_1min >= r.cores:
        meaning = "The host is busy: launching and compiling take longer; no sample includes them."
        return "remark", value, meaning, "Wait until other work on the host is done."
    return "good", value, "The host has cores to spare.", ""


def _toolchain(r: Readings) -> Judged:
    if r.nvcc is None:
        meaning = "Only kernels that were compiled before can be measured."
        return "remark", "not found", meaning, r.toolchain_error
    return "good", f"nvcc {r.nvcc}, CUTLASS {r.cutlass}", "Kernels can be compiled here.", ""


def _gpus(r: Readings) -> Judged:
    return "good", f"{r.n_gpus} visible, this is number {r.ordinal}", "Choose with --gpu.", ""


RULES: dict[str, Callable[[Readings], Judged]] = {
    "compute_processes": _compute_processes,
    "graphics_processes": _graphics_processes,
    "memory": _memory,
    "clock_events": _clock_events,
    "temperature": _temperature,
    "power_limit": _power_limit,
    "sm_clock": lambda r: _clock(r.sm_clock),
    "memory_clock": lambda r: _clock(r.memory_clock),
    "compute_mode": _compute_mode,
    "mig": _mig,
    "ecc": _ecc,
    "ecc_errors": _ecc_errors,
    "persistence": _persistence,
    "driver": _driver,
    "gpus": _gpus,
    "load": _load,
    "toolchain": _toolchain,
}
