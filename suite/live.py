"""From a space and a GPU to a runner that is ready to measure: builds the kernel library and opens the card."""

from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter

from tilearena import build, feasible
from tilearena.baselines.cublaslt import NAME as TORCH
from tilearena.baselines.cublaslt import TorchIntMm
from tilearena.device import visible_devices
from tilearena.errors import MeasureError, NoGpuError
from tilearena.gpu_runner import GpuRunner
from tilearena.records import BitOp, Device, Dtype, Problem
from tilearena.space import Space
from tilearena.vendor import External, find_cublaslt
from tilearena.worker import Link

#: Hexadecimal digits of a card's UUID hash in the slug of an instance.
INSTANCE_DIGITS = 6


def pick_device(ordinal: int = 0, sms: int | None = None, *, instance: bool = False) -> Device:
    """The GPU with this number, or a partition of so many of its SMs; with a slug of this card alone if ``instance``.

    Raises:
        NoGpuError: no GPU, not so many, or one that the templates do not run on.
        MeasureError: the card has fewer SMs.
    """
    devices = visible_devices()
    if not 0 <= ordinal < len(devices):
        raise NoGpuError(f"no GPU {ordinal}: this machine shows {len(devices)}, numbered from 0")
    device = devices[ordinal]
    if device.arch < min(build.ARCHES):
        raise NoGpuError(f"{device.product} is sm_{device.arch}; the templates need sm_80 or newer")
    if instance:
        device = device_instance(device)
    return device if sms is None else partition(device, sms)


def device_instance(device: Device) -> Device:
    """``device`` with the slug of this very card: its product's, and the first digits of the hash of its UUID."""
    assert device.uuid_sha256 is not None  # the driver always tells
    return device.model_copy(update={"slug": f"{device.slug}.{device.uuid_sha256[:INSTANCE_DIGITS]}"})


def partition(device: Device, sms: int) -> Device:
    """``device`` as a green context of ``sms`` SMs shows it; the L2 and the memory stay whole.

    Raises:
        MeasureError: the card has fewer SMs.
    """
    if not 0 < sms < device.sm_count:
        raise MeasureError(f"--sms {sms}: {device.product} has {device.sm_count} SMs; give fewer, or leave --sms out")
    change = {"slug": f"{device.slug}-sm{sms}", "sm_count": sms, "sm_total": device.sm_count}
    return device.model_copy(update=change)


def library_name(space_: Space, dtype: Dtype) -> str:
    """Name of the kernel library of one dtype of a space."""
    return f"{space_.op}.{space_.name}.{dtype}"


def open_runner(
    device: Device,
    space_: Space,
    dtype: Dtype,
    bit_op: BitOp | None,
    problems: Sequence[Problem],
    *,
    seed: int,
    ordinal: int = 0,
    externals: Sequence[tuple[str, External]] = (),
    progress: build.Progress = lambda done, total, label: None,
) -> GpuRunner:
    """Build what is missing for ``device`` and open it for ``problems``; for s8 with cuBLASLt where it is found.

    Raises:
        BuildError: nothing can be compiled. NoGpuError, MeasureError: the GPU cannot be opened.
        NoGpuError: the dtype has no instruction on this arch.
    """
    if feasible.support(dtype, bit_op, device.arch) == "unsupported":
        raise NoGpuError(f"{dtype} ({bit_op}) has no kernels for sm_{device.arch}; leave it out with --dtype")
    templates = space_.templates(dtype, bit_op)
    path, library = build.build(library_name(space_, dtype), templates, device.arch, progress=progress)
    return GpuRunner(
        path,
        library,
        templates,
        space_.default_index(dtype),
        device,
        problems,
        seed=seed,
        ordinal=ordinal,
        cublaslt=find_cublaslt() if dtype == "s8" else None,
        externals=externals,
    )


def torch_kernels(device: Device, dtype: Dtype, ordinal: int = 0) -> list[tuple[str, TorchIntMm]]:
    """``torch._int_mm`` where torch is installed and serves ``device``: it would leave a partition of the SMs."""
    if dtype != "s8" or device.sm_total:
        return []
    try:
        return [(TORCH, TorchIntMm(ordinal))]
    except NoGpuError:
        return []


def open_for_worker(
    link: Link,
    space: dict[str, Any],
    problems: list[Any],
    seed: int,
    ordinal: int = 0,
    sms: int | None = None,
    torch: bool = True,
    instance: bool = False,
) -> GpuRunner:
    """`open_runner` from JSON values, in a worker process that owns the GPU.

    Args:
        link: takes the card's lock, and tells the parent how far a build is.
        space: a `Space`.
        problems: `Problem`s of one dtype, all that will be measured.
        seed: of the operands.
        ordinal: number of the GPU.
        sms: size of a partition of its SMs.
        torch: whether ``torch._int_mm`` is a candidate where torch is installed.
        instance: whether the device has the slug of this card alone.
    """
    found = TypeAdapter(list[Problem]).validate_python(problems)
    first, device = found[0], pick_device(ordinal, sms, instance=instance)
    link.lock(device)
    kernels = torch_kernels(device, first.dtype, ordinal) if torch else []
    runner = open_runner(
        device,
        Space.model_validate(space),
        first.dtype,
        first.bit_op,
        found,
        seed=seed,
        ordinal=ordinal,
        externals=kernels,
        progress=link.building,
    )
    if kernels:
        runner.versions["torch"] = kernels[0][1].version
    return runner
