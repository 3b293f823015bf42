"""What GPU is here, and its state while we measure: the CUDA driver for identity, NVML for clocks and power."""

import hashlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import pynvml

from tilearena import provenance
from tilearena.errors import NoGpuError
from tilearena.provenance import Range
from tilearena.records import Device, device_slug

#: What the sensors of a card say at one moment: sm_clock_mhz, memory_clock_mhz, power_w, temperature_c and
#: throttle_reasons (NVML's bit mask), as far as the card supports them.
Reading = dict[str, float]
#: Too hot, or short of power: what is timed then is the cooling or the supply.
SLOWDOWN = (
    pynvml.nvmlClocksThrottleReasonHwSlowdown
    | pynvml.nvmlClocksThrottleReasonSwThermalSlowdown
    | pynvml.nvmlClocksThrottleReasonHwThermalSlowdown
    | pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown
)
#: How far apart the readings of a `Sampler` are.
READING_S = 0.1


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
        uuid_sha256=_uuid_sha256(uuid),
        **_limits(uuid),
    )


def _uuid_sha256(uuid: bytes) -> str:
    return hashlib.sha256(uuid).hexdigest()[:16]


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


def nvml_card(ordinal: int) -> Any | None:
    """NVML's handle of CUDA's GPU ``ordinal``, or of the whole card that this is a MIG slice of; None without NVML."""
    from cuda.bindings import driver

    handle = _call(driver.cuDeviceGet(ordinal))
    card = _nvml_handle(bytes(_call(driver.cuDeviceGetUuid(handle)).bytes))
    if card is not None:
        return card
    bus_id = _call(driver.cuDeviceGetPCIBusId(32, handle)).split(b"\0")[0].decode()
    try:
        return pynvml.nvmlDeviceGetHandleByPciBusId(bus_id)
    except pynvml.NVMLError:
        return None


def read_supported(reads: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """The answers of those readings that this card supports."""
    found = {}
    for key, read in reads.items():
        try:
            found[key] = read()
        except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError):  # or a driver that is too old to be asked
            continue
    return found


def _limits(uuid: bytes) -> dict[str, Any]:
    card = _nvml_handle(uuid)
    if card is None:
        return {}
    return read_supported(
        {
            "driver": pynvml.nvmlSystemGetDriverVersion,
            "sm_clock_max_mhz": lambda: pynvml.nvmlDeviceGetMaxClockInfo(card, pynvml.NVML_CLOCK_SM),
            "memory_clock_max_mhz": lambda: pynvml.nvmlDeviceGetMaxClockInfo(card, pynvml.NVML_CLOCK_MEM),
            "power_limit_w": lambda: pynvml.nvmlDeviceGetPowerManagementLimit(card) / 1000,
        }
    )


class Sensors:
    """Clocks, power, temperature and throttle reasons of one card, read through NVML: no CUDA context is opened."""

    def __init__(self, uuid_sha256: str | None) -> None:
        self._card = _card_of(uuid_sha256)

    def read(self) -> Reading:
        """What is supported; nothing where NVML does not know the card."""
        card = self._card
        if card is None:
            return {}
        return read_supported(
            {
                "sm_clock_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(card, pynvml.NVML_CLOCK_SM),
                "memory_clock_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(card, pynvml.NVML_CLOCK_MEM),
                "power_w": lambda: pynvml.nvmlDeviceGetPowerUsage(card) / 1000,
                "temperature_c": lambda: pynvml.nvmlDeviceGetTemperature(card, pynvml.NVML_TEMPERATURE_GPU),
                "throttle_reasons": lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(card),
            }
        )


class Sampler:
    """Reads the sensors about every ``READING_S`` while it is ``on``, and at once after `restart`."""

    def __init__(self, read: Callable[[], Reading]) -> None:
        self._read = read
        self.restart()

    def restart(self) -> None:
        """Forget what was read, and be off."""
        self.readings: list[Reading] = []
        self.on, self._next = False, 0.0

    def tick(self) -> None:
        """Read them if it is time to; to be called often."""
        now = time.monotonic()
        if self.on and now >= self._next:
            self.readings.append(self._read())
            self._next = now + READING_S


def _card_of(uuid_sha256: str | None) -> Any | None:
    """NVML's handle of the card whose UUID has this hash."""
    try:
        pynvml.nvmlInit()
        for index in range(pynvml.nvmlDeviceGetCount()):
            card = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = pynvml.nvmlDeviceGetUUID(card).removeprefix("GPU-").replace("-", "")
            if _uuid_sha256(bytes.fromhex(uuid)) == uuid_sha256:
                return card
    except pynvml.NVMLError:
        return None
    return None


def summarise(readings: Sequence[Reading]) -> provenance.Telemetry:
    """Smallest, median and largest of each reading, and all throttle reasons seen as one bit mask."""
    readings = [reading for reading in readings if reading]
    ranges = {}
    for key in ("sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c"):
        if values := [reading[key] for reading in readings if key in reading]:
            ranges[key] = Range(min=min(values), median=statistics.median(values), max=max(values))
    reasons = 0
    for reading in readings:
        reasons |= int(reading.get("throttle_reasons", 0))
    return provenance.Telemetry(n_samples=len(readings), throttle_reasons=reasons, **ranges)
