"""What `tilearena doctor` looks at: the state of one GPU by NVML, and of the host. Nothing is changed by reading it."""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pynvml

from tilearena import toolchain
from tilearena.device import nvml_card, read_supported, visible_devices
from tilearena.errors import BuildError
from tilearena.live import pick_device
from tilearena.records import Record


class GpuProcess(Record):
    """A process with a context on the GPU; ``memory_bytes`` is what it holds there, None where that is not told."""

    pid: int
    memory_bytes: int | None = None


class Clock(Record):
    """One clock of the card in MHz: now, its maximum, and the application clock as set and as shipped."""

    now_mhz: int | None = None
    max_mhz: int | None = None
    application_mhz: int | None = None
    application_default_mhz: int | None = None


class Readings(Record):
    """All that was read; None is what the card, the driver or the system does not tell.

    Processes are those of others. ``clock_events`` and ``compute_mode`` are NVML's numbers, ``load_1min`` the mean
    number of runnable host processes over one minute, ``toolchain_error`` the sentence that says why nothing can be
    compiled.
    """

    product: str
    ordinal: int = 0
    n_gpus: int = 1
    compute_processes: tuple[GpuProcess, ...] | None = None
    graphics_processes: tuple[GpuProcess, ...] | None = None
    clock_events: int | None = None
    compute_mode: int | None = None
    mig: bool | None = None
    mig_pending: bool | None = None
    ecc: bool | None = None
    ecc_pending: bool | None = None
    ecc_uncorrected: int | None = None
    temperature_c: int | None = None
    slowdown_c: int | None = None
    slowdown_margin_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    power_limit_default_w: float | None = None
    sm_clock: Clock = Clock()
    memory_clock: Clock = Clock()
    memory_free_bytes: int | None = None
    memory_total_bytes: int | None = None
    persistence: bool | None = None
    driver: str | None = None
    driver_cuda: tuple[int, int] | None = None
    load_1min: float | None = None
    cores: int | None = None
    nvcc: str | None = None
    cutlass: str | None = None
    toolchain_error: str = ""


def read(ordinal: int = 0) -> Readings:
    """Look at GPU ``ordinal`` of this machine, and at the host.

    Raises:
        NoGpuError: no GPU, not so many, or one that the templates do not run on.
    """
    product, n_gpus = pick_device(ordinal).product, len(visible_devices())
    card, found = nvml_card(ordinal), _host()
    if card is not None:
        found |= read_supported(_system() | _activity(card) | _settings(card))
        found |= {"sm_clock": _clock(card, "SM"), "memory_clock": _clock(card, "MEM")}
    return Readings(product=product, ordinal=ordinal, n_gpus=n_gpus, **found)


def _system() -> dict[str, Callable[[], Any]]:
    def cuda() -> tuple[int, int]:
        major, rest = divmod(pynvml.nvmlSystemGetCudaDriverVersion(), 1000)
        return major, rest // 10

    return {"driver": pynvml.nvmlSystemGetDriverVersion, "driver_cuda": cuda}


def _activity(card: Any) -> dict[str, Callable[[], Any]]:
    """What changes by itself."""

    def others(processes: list[Any]) -> tuple[GpuProcess, ...]:
        return tuple(GpuProcess(pid=p.pid, memory_bytes=p.usedGpuMemory) for p in processes if p.pid != os.getpid())

    reads: dict[str, Callable[[], Any]] = {
        "compute_processes": lambda: others(pynvml.nvmlDeviceGetComputeRunningProcesses(card)),
        "graphics_processes": lambda: others(pynvml.nvmlDeviceGetGraphicsRunningProcesses(card)),
        "clock_events": lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(card),
        "ecc_uncorrected": lambda: pynvml.nvmlDeviceGetTotalEccErrors(
            card, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        ),
        "temperature_c": lambda: pynvml.nvmlDeviceGetTemperature(card, pynvml.NVML_TEMPERATURE_GPU),
        "slowdown_c": lambda: pynvml.nvmlDeviceGetTemperatureThreshold(
            card, pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
        ),
        "power_w": lambda: pynvml.nvmlDeviceGetPowerUsage(card) / 1000,
        "memory_free_bytes": lambda: pynvml.nvmlDeviceGetMemoryInfo(card).free,
        "memory_total_bytes": lambda: pynvml.nvmlDeviceGetMemoryInfo(card).total,
    }
    margin = getattr(pynvml, "nvmlDeviceGetMarginTemperature", None)  # 12.560, the oldest that we allow, has it not
    return reads | ({"slowdown_margin_c": lambda: margin(card)} if margin else {})


def _settings(card: Any) -> dict[str, Callable[[], Any]]:
    """What an administrator sets."""
    return {
        "compute_mode": lambda: pynvml.nvmlDeviceGetComputeMode(card),
        "mig": lambda: bool(pynvml.nvmlDeviceGetMigMode(card)[0]),
        "mig_pending": lambda: bool(pynvml.nvmlDeviceGetMigMode(card)[1]),
        "ecc": lambda: bool(pynvml.nvmlDeviceGetEccMode(card)[0]),
        "ecc_pending": lambda: bool(pynvml.nvmlDeviceGetEccMode(card)[1]),
        "power_limit_w": lambda: pynvml.nvmlDeviceGetPowerManagementLimit(card) / 1000,
        "power_limit_default_w": lambda: pynvml.nvmlDeviceGetPowerManagementDefaultLimit(card) / 1000,
        "persistence": lambda: bool(pynvml.nvmlDeviceGetPersistenceMode(card)),
    }


def _clock(card: Any, name: str) -> Clock:
    """One of NVML's clocks. Locked clocks cannot be read; where they hold, ``clock_events`` says so."""
    kind = getattr(pynvml, f"NVML_CLOCK_{name}")
    # application clocks of the SMs go by the name of the graphics clock
    application = pynvml.NVML_CLOCK_GRAPHICS if name == "SM" else kind
    return Clock(
        **read_supported(
            {
                "now_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(card, kind),
                "max_mhz": lambda: pynvml.nvmlDeviceGetMaxClockInfo(card, kind),
                "application_mhz": lambda: pynvml.nvmlDeviceGetApplicationsClock(card, application),
                "application_default_mhz": lambda: pynvml.nvmlDeviceGetDefaultApplicationsClock(card, application),
            }
        )
    )


def _host() -> dict[str, Any]:
    found: dict[str, Any] = {"cores": os.cpu_count()}  # of the whole machine, as the load average is
    if hasattr(os, "getloadavg"):  # not on Windows
        with suppress(OSError):
            found["load_1min"] = os.getloadavg()[0]
    try:
        tools = toolchain.find()
    except BuildError as error:
        return found | {"toolchain_error": str(error)}
    return found | {"nvcc": tools.cuda_version, "cutlass": tools.cutlass_version}
