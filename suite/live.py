"""From a space and a GPU to a runner that is ready to measure: builds the kernel library and opens the card."""

from collections.abc import Sequence

from tilearena import build, space
from tilearena.device import visible_devices
from tilearena.errors import NoGpuError
from tilearena.records import BitOp, Device, Dtype, Problem
from tilearena.runner import External, GpuRunner
from tilearena.space import Space


def pick_device(ordinal: int = 0) -> Device:
    """The GPU with this number.

    Raises:
        NoGpuError: no GPU, not so many, or one that the templates do not run on.
    """
    devices = visible_devices()
    if not 0 <= ordinal < len(devices):
        raise NoGpuError(f"no GPU {ordinal}: this machine shows {len(devices)}, numbered from 0")
    device = devices[ordinal]
    if device.arch < min(build.ARCHES):
        raise NoGpuError(f"{device.product} is sm_{device.arch}; the templates need sm_80 or newer")
    return device


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
    vendor: tuple[str, External] | None = None,
    progress: build.Progress = lambda done, total, label: None,
) -> GpuRunner:
    """Build what is missing for ``device`` and open it for ``problems``.

    Raises:
        BuildError: nothing can be compiled. NoGpuError, MeasureError: the GPU cannot be opened.
        NoGpuError: the dtype has no instruction on this arch.
    """
    if space.support(dtype, bit_op, device.arch) == "unsupported":
        raise NoGpuError(f"{dtype} ({bit_op}) has no kernels for sm_{device.arch}; leave it out with --dtype")
    templates = space_.templates(dtype, bit_op)
    path, library = build.build(library_name(space_, dtype), templates, device.arch, progress=progress)
    return GpuRunner(
        path,
        library,
        templates,
        space_.default_index,
        device,
        problems,
        seed=seed,
        ordinal=ordinal,
        vendor=vendor,
    )
