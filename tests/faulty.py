"""A kernel library of planted faults, and a runner on it; also the factory of a worker process that measures them."""

import subprocess
from pathlib import Path
from typing import Any

from tilearena import build, live, toolchain
from tilearena.build import Library
from tilearena.gpu_runner import GpuRunner
from tilearena.kernel_source import table_source
from tilearena.records import Problem, Template

#: Name -> what the reason of the failed row says; "good" has no fault.
FAULTS = {
    "good": "",
    "wrong_element": "row",
    "unwritten_tile": "row",
    "past_the_end": "outside its output",
    "before_the_start": "outside its output",
    "skipped_tail": "row",
    "wrong_later": "last timed launch",
    "stale_later": "last timed launch",
}
#: These end the process (the later one on ``LARGE`` alone), hold it up for a minute, or are refused by the driver.
FATAL = ("illegal_address", "illegal_address_later", "hang", "shared_memory")
NAMES = (*FAULTS, *FATAL)
#: K is no multiple of 64, so that a skipped tail is a fault; one problem below and one above the direct reference.
SMALL = Problem(dtype="s8", m=77, n=104, k=208)
LARGE = Problem(dtype="s8", m=333, n=504, k=1040)


class Named(Template):
    """A template whose id is its label: it stands for a kernel that is no CUTLASS template."""

    @property
    def id(self) -> str:
        return self.label


def compile_library(folder: Path) -> Path:
    """Compile all faulty kernels and the harness for this machine's GPU."""
    table = folder / "table.cu"
    table.write_text(table_source(NAMES))
    library = folder / "faulty.so"
    sources = [table, Path(__file__).with_name("faulty_kernels.cu"), build.kernel_sources() / "harness.cu"]
    code = live.pick_device().arch
    arch = f"arch=compute_{code},code=sm_{code}"
    flags = [*build.FLAGS, "-gencode", arch, f"-I{build.kernel_sources()}", "-shared", "-cudart", "static"]
    tools = toolchain.find()
    subprocess.run([tools.nvcc, *flags, *tools.link_flags, *sources, "-o", library], check=True)
    return library


def open_faulty(
    library: str, names: list[str], l2_multiple: float = 3.0, problems: list[dict[str, object]] | None = None
) -> GpuRunner:
    """A runner whose templates are the kernels of these ``names``, the first of them the default."""
    device = live.pick_device()
    shapes = {"threadblock": (16, 16, 64), "warp": (16, 16, 64), "instruction": (16, 8, 32), "stages": 2}
    templates = [Named(dtype="s8", label=name, **shapes) for name in names]
    described = Library(name="faulty", arch=device.arch, file=library, sources="", versions={})
    found = [Problem.model_validate(p) for p in problems] if problems else [SMALL, LARGE]
    return GpuRunner(Path(library), described, templates, 0, device, found, seed=11, l2_multiple=l2_multiple)


def open_for_worker(link: Any, **arguments: Any) -> GpuRunner:
    """The factory of a worker process, see `tilearena.worker_link.Opening`."""
    link.lock(live.pick_device())
    return open_faulty(**arguments)
