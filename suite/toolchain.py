"""Where nvcc and the CUTLASS headers are: a system CUDA >= 12.4, else the PyPI wheels."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from tilearena.errors import BuildError

OLDEST_CUDA = (12, 4)
INSTALL = "pip install 'tilearena[cuda]' && pip install --no-deps nvidia-cutlass"


@dataclass(frozen=True)
class Toolchain:
    """One usable compiler and one set of headers."""

    nvcc: Path
    cuda_version: str
    cutlass_include: Path
    cutlass_version: str
    link_flags: tuple[str, ...]

    @property
    def versions(self) -> dict[str, str]:
        """For the header of a recording."""
        return {"nvcc": self.cuda_version, "cutlass": self.cutlass_version}


def find() -> Toolchain:
    """The toolchain of this environment: nvcc on ``PATH`` if it is new enough, else the wheels'.

    Raises:
        BuildError: no nvcc, only ones that are too old, no g++, or no CUTLASS headers; says what to install.
    """
    on_path, in_wheels = shutil.which("nvcc"), _wheel_nvcc()
    candidates = [nvcc for nvcc in (Path(on_path) if on_path else None, in_wheels) if nvcc is not None]
    if not candidates:
        raise BuildError(f"no nvcc on PATH nor in the Python environment; run: {INSTALL}")
    versions = {nvcc: _cuda_version(nvcc) for nvcc in candidates}
    new = [nvcc for nvcc in candidates if tuple(map(int, versions[nvcc].split(".")[:2])) >= OLDEST_CUDA]
    if not new:
        found = candidates[0]
        raise BuildError(f"{found} is CUDA {versions[found]}, but 12.4 or newer is needed; run: {INSTALL}")
    if shutil.which("g++") is None:
        raise BuildError("no g++ on PATH, and nvcc compiles host code with it; install it (Debian: apt install g++)")
    nvcc = new[0]
    include, cutlass_version = _cutlass()
    library = nvcc.parent.parent / "lib"
    link_flags = (f"-L{library}",) if nvcc == in_wheels and library.is_dir() else ()
    return Toolchain(nvcc, versions[nvcc], include, cutlass_version, link_flags)


def _wheel_nvcc() -> Path | None:
    spec = find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for candidate in sorted(Path(folder).glob("cu*/bin/nvcc"), reverse=True):
            return candidate
    return None


def _cuda_version(nvcc: Path) -> str:
    try:
        text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise BuildError(f"{nvcc} does not run ({type(error).__name__}); run: {INSTALL}") from None
    match = re.search(r"release (\d+\.\d+), V([\d.]+)", text)
    if match is None:
        raise BuildError(f"{nvcc} does not say its version; run: {INSTALL}")
    return match[2]


def _cutlass() -> tuple[Path, str]:
    spec = find_spec("cutlass_library")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        include = Path(folder) / "source" / "include"
        if (include / "cutlass" / "cutlass.h").is_file():
            try:
                return include, version("nvidia-cutlass")
            except PackageNotFoundError:
                return include, "unknown"
    raise BuildError("no CUTLASS headers in the Python environment; run: pip install --no-deps nvidia-cutlass")
