"""Identity and state of a GPU, asked of fakes of the CUDA driver and of NVML."""

import hashlib
import re
import sys
import uuid
from types import ModuleType, SimpleNamespace

import pynvml
import pytest

from tilearena.device import Sensors, summarise, visible_devices
from tilearena.errors import NoGpuError
from tilearena.live import pick_device
from tilearena.provenance import Range, Telemetry
from tilearena.records import SLUG, device_slug

UUID = bytes(range(16))
ATTRIBUTES = {
    "COMPUTE_CAPABILITY_MAJOR": 8,
    "COMPUTE_CAPABILITY_MINOR": 6,
    "MULTIPROCESSOR_COUNT": 68,
    "L2_CACHE_SIZE": 5 << 20,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 99 << 10,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 100 << 10,
}


class FakeDriver(ModuleType):
    """`cuda.bindings.driver` with ``count`` equal GPUs, or failing in ``cuInit``."""

    def __init__(self, count=1, init=0):
        super().__init__("cuda.bindings.driver")
        self.count, self.init = count, init
        self.CUdevice_attribute = SimpleNamespace(**{f"CU_DEVICE_ATTRIBUTE_{name}": name for name in ATTRIBUTES})

    def cuInit(self, flags):  # noqa: N802
        return (self.init,)

    def cuDeviceGetCount(self):  # noqa: N802
        return 0, self.count

    def cuDeviceGet(self, ordinal):  # noqa: N802
        return 0, ordinal

    def cuDeviceGetAttribute(self, name, handle):  # noqa: N802
        return 0, ATTRIBUTES[name]

    def cuDeviceGetName(self, size, handle):  # noqa: N802
        return 0, b"NVIDIA GeForce RTX 3080\0\0\0"

    def cuDeviceGetUuid(self, handle):  # noqa: N802
        return 0, SimpleNamespace(bytes=UUID)

    def cuDeviceTotalMem(self, handle):  # noqa: N802
        return 0, 10 << 30


@pytest.fixture
def use_driver(monkeypatch):
    def _use(driver):
        package = None
        if driver is not None:
            package = ModuleType("cuda.bindings")
            package.driver = driver
        monkeypatch.setitem(sys.modules, "cuda.bindings", package)

    return _use


@pytest.fixture
def nvml(monkeypatch):
    """NVML that knows the card, but not its power limit."""

    def unsupported(card):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    names, clocks = [], {pynvml.NVML_CLOCK_SM: 1710, pynvml.NVML_CLOCK_MEM: 9501}
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda name: names.append(name) or "card")
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: "580.1")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMaxClockInfo", lambda card, kind: clocks[kind])
    monkeypatch.setattr(pynvml, "nvmlDeviceGetPowerManagementLimit", unsupported)
    now = {pynvml.NVML_CLOCK_SM: 1500, pynvml.NVML_CLOCK_MEM: 9501}
    uuids = {"other": "GPU-" + "0" * 8 + "-0000" * 3 + "-" + "0" * 12, "card": f"GPU-{uuid.UUID(bytes=UUID)}"}
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: len(uuids))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: list(uuids)[index])
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda card: uuids[card])
    monkeypatch.setattr(pynvml, "nvmlDeviceGetClockInfo", lambda card, kind: {"card": now}[card][kind])
    monkeypatch.setattr(pynvml, "nvmlDeviceGetPowerUsage", lambda card: 212_500)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCurrentClocksThrottleReasons", lambda card: 4)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTemperature", lambda card, kind: unsupported(card))
    return names


@pytest.fixture
def no_nvml(monkeypatch):
    def missing():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", missing)


def test_device_has_identity_and_limits_of_the_card(use_driver, nvml):
    use_driver(FakeDriver())
    (card,) = visible_devices()
    assert (card.slug, card.product) == ("nvidia-geforce-rtx-3080", "NVIDIA GeForce RTX 3080")
    assert (card.compute_capability, card.arch, card.sm_count, card.l2_bytes) == ((8, 6), 86, 68, 5 << 20)
    assert (card.memory_bytes, card.smem_per_block_bytes, card.smem_per_sm_bytes) == (10 << 30, 99 << 10, 100 << 10)
    assert (card.driver, card.sm_clock_max_mhz, card.memory_clock_max_mhz) == ("580.1", 1710, 9501)
    assert card.power_limit_w is None
    assert nvml == ["GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"]


def test_device_keeps_a_hash_of_the_uuid_and_not_the_uuid(use_driver, nvml):
    use_driver(FakeDriver())
    (card,) = visible_devices()
    assert card.uuid_sha256 == hashlib.sha256(UUID).hexdigest()[:16]
    assert UUID.hex()[:8] not in card.model_dump_json()


def test_device_is_described_without_nvml(use_driver, no_nvml):
    use_driver(FakeDriver(count=2))
    first, second = visible_devices()
    assert first == second
    assert (first.sm_count, first.driver, first.power_limit_w) == (68, None, None)


@pytest.mark.parametrize(
    ("driver", "sentence"),
    [
        (None, "no GPU can be asked: cuda-bindings is missing; run: pip install 'tilearena[cuda]'"),
        (FakeDriver(init=100), "no GPU: the NVIDIA driver is missing or does not answer"),
        (FakeDriver(count=0), "no GPU: CUDA shows no device to this process"),
    ],
)
def test_machine_without_a_gpu_says_why(use_driver, driver, sentence):
    use_driver(driver)
    with pytest.raises(NoGpuError) as caught:
        visible_devices()
    assert str(caught.value) == sentence


def test_gpu_that_is_not_there_or_too_old_is_refused(use_driver, no_nvml, monkeypatch):
    use_driver(FakeDriver())
    assert pick_device(0).sm_count == 68
    with pytest.raises(NoGpuError, match="no GPU 1: this machine shows 1"):
        pick_device(1)
    monkeypatch.setitem(ATTRIBUTES, "COMPUTE_CAPABILITY_MAJOR", 7)
    monkeypatch.setitem(ATTRIBUTES, "COMPUTE_CAPABILITY_MINOR", 5)
    with pytest.raises(NoGpuError, match="is sm_75; the templates need sm_80 or newer"):
        pick_device(0)


def test_slug_of_an_instance_names_its_card_and_the_partition_comes_last(use_driver, no_nvml):
    use_driver(FakeDriver())
    digits = hashlib.sha256(UUID).hexdigest()[:6]
    assert pick_device(0, instance=True).slug == f"nvidia-geforce-rtx-3080.{digits}"
    part = pick_device(0, 24, instance=True)
    assert (part.slug, part.sm_count, part.sm_total) == (f"nvidia-geforce-rtx-3080.{digits}-sm24", 24, 68)
    assert re.fullmatch(SLUG, part.slug)
    assert pick_device(0).slug == "nvidia-geforce-rtx-3080"


def test_sensors_of_the_card_with_this_uuid_are_read_as_far_as_it_supports_them(nvml):
    assert Sensors(hashlib.sha256(UUID).hexdigest()[:16]).read() == {
        "sm_clock_mhz": 1500,
        "memory_clock_mhz": 9501,
        "power_w": 212.5,
        "throttle_reasons": 4,
    }


@pytest.mark.parametrize("uuid_sha256", [None, "0123456789abcdef"])
def test_sensors_of_a_card_that_nvml_does_not_know_say_nothing(nvml, uuid_sha256):
    assert Sensors(uuid_sha256).read() == {}


def test_sensors_without_nvml_say_nothing(no_nvml):
    assert Sensors(hashlib.sha256(UUID).hexdigest()[:16]).read() == {}


def test_telemetry_summary_has_extremes_median_and_all_throttle_reasons():
    telemetry = summarise(
        [
            {"sm_clock_mhz": 1500, "power_w": 200.0, "throttle_reasons": 1},
            {"sm_clock_mhz": 1200, "power_w": 300.0, "throttle_reasons": 4},
            {},
            {"sm_clock_mhz": 1980, "throttle_reasons": 0},
        ]
    )
    assert telemetry == Telemetry(
        n_samples=3,
        sm_clock_mhz=Range(min=1200, median=1500, max=1980),
        power_w=Range(min=200, median=250, max=300),
        throttle_reasons=5,
    )


def test_telemetry_of_no_readings_is_empty():
    assert summarise([{}, {}]) == summarise([]) == Telemetry(n_samples=0)


def test_slug_is_the_product_in_lower_case_with_dashes():
    assert device_slug("NVIDIA H200") == "nvidia-h200"
    assert device_slug("NVIDIA GeForce RTX 3080 (10 GB)") == "nvidia-geforce-rtx-3080-10-gb"
