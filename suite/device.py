"""What GPU is here, and its state while we measure: the CUDA driver for identity, NVML for clocks and power."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import pynvml

from tilearena.errors import NoGpuError
from tilearena.records import Device, device_slug


def visible_devices() -> list[Device]:
    """The GPUs that CUDA shows to this process, in its order.

    Raises:
        NoGpuError: no driver, no GPU, or the `cuda` extra is missing.
    """
    try:
        from cuda.bindings import driver
    except ImportError:
        raise NoGpuError("no GPU can be asked: cuda-bindings is missing; run: pip install 'tilearena[cuda]'") from None
    try:
        _call(driver.cuInit(0))
        count = _call(driver.cuDeviceGetCount())
    except RuntimeError:
        raise NoGpuError("no GPU: the NVIDIA driver is missing or does not answer") from None
    if not count:
        raise NoGpuError("no GPU: CUDA shows no device to this process")
    return [_describe(driver, ordinal) for ordinal in range(count)]


def _describe(driver: Any, ordinal: int) -> Device:
    handle = _call(driver.cuDeviceGet(ordinal))
    attribute = driver.CUdevice_attribute

    def get(name: str) -> int:
        return int(_call(driver.cuDeviceGetAttribute(getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), handle)))

    product = _call(driver.cuDeviceGetName(128, handle)).split(b"\0")[0].decode()
    uuid = bytes(_call(driver.cuDeviceGetUuid(handle)).bytes)
    return Device(
        slug=device_slug(product),
        product=product,
        compute_capability=(get("COMPUTE_CAPABILITY_MAJOR"), get("COMPUTE_CAPABILITY_MINOR")),
        sm_count=get("MULTIPROCESSOR_COUNT"),
        l2_bytes=get("L2_CACHE_SIZE"),
        memory_bytes=int(_call(driver.cuDeviceTotalMem(handle))),
        smem_per_block_bytes=get("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        smem_per_sm_bytes=get("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        uuid_sha256=hashlib.sha256(uuid).hexdigest()[:16],
        **_limits(uuid),
    )


def _call(result: tuple[Any, ...]) -> Any:
    """Unpack a cuda-bindings answer: (error, value...)."""
    if int(result[0]) != 0:
        raise RuntimeError(getattr(result[0], "name", str(result[0])))
    return result[1] if len(result) > 1 else None


def _nvml_handle(uuid: bytes) -> Any | None:
    """NVML's handle of the card with this UUID; None where NVML does not know it (no NVML, or a MIG slice)."""
    text = uuid.hex()
    name = f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    try:
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetHandleByUUID(name)
    except pynvml.NVMLError:
        return None


def _read(reads: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """The answers of those readings that this card supports."""
    found = {}
    for key, read in reads.items():
        try:
            found[key] = read()
        except pynvml.NVMLError:
            continue
    return found


def _limits(uuid: bytes) -> dict[str, Any]:
    card = _nvml_handle(uuid)
    if card is None:
        return {}
    return _read(
        {
            "driver": pynvml.nvmlSystemGetDriverVersion,
            "sm_clock_max_mhz": lambda: pynvml.nvmlDeviceGetMaxClockInfo(card, pynvml.NVML_CLOCK_SM),
            "memory_clock_max_mhz": lambda: pynvml.nvmlDeviceGetMaxClockInfo(card, pynvml.NVML_CLOCK_MEM),
            "power_limit_w": lambda: pynvml.nvmlDeviceGetPowerManagementLimit(card) / 1000,
        }
    )


class Telemetry:
    """Clocks, power, temperature and throttle reasons of one card, sampled when asked."""

    def __init__(self, ordinal: int) -> None:
        from cuda.bindings import driver

        handle = _call(driver.cuDeviceGet(ordinal))
        self._card = _nvml_handle(bytes(_call(driver.cuDeviceGetUuid(handle)).bytes))
        self.samples: list[dict[str, float]] = []

    def sample(self) -> None:
        """Read once; nothing happens where NVML does not know the card."""
        card = self._card
        if card is None:
            return
        self.samples.append(
            _read(
                {
                    "sm_clock_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(card, pynvml.NVML_CLOCK_SM),
                    "memory_clock_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(card, pynvml.NVML_CLOCK_MEM),
                    "power_w": lambda: pynvml.nvmlDeviceGetPowerUsage(card) / 1000,
                    "temperature_c": lambda: pynvml.nvmlDeviceGetTemperature(card, pynvml.NVML_TEMPERATURE_GPU),
                    "throttle_reasons": lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(card),
                }
            )
        )


def summarise(samples: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Minimum, median and maximum of each reading, and all throttle reasons seen as one bit mask."""
    out: dict[str, Any] = {"n_samples": len(samples)}
    for key in ("sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c"):
        values = sorted(sample[key] for sample in samples if key in sample)
        if values:
            out[key] = {"min": values[0], "median": values[len(values) // 2], "max": values[-1]}
    reasons = 0
    for sample in samples:
        reasons |= int(sample.get("throttle_reasons", 0))
    out["throttle_reasons"] = reasons
    return out
