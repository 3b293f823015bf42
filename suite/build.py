"""Templates + arch -> one kernel library per (arch, dtype, space), with a content-addressed cache.

Each kernel is one translation unit, see `tilearena.kernel_source`. An object is named by the hash of all that could
change it: sources, headers' version, compiler, flags. Failures are cached and reported like successes; a file lock
keeps processes apart.
"""

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

from tilearena import toolchain
from tilearena.errors import BuildError
from tilearena.feasible import WGMMA_ARCH
from tilearena.kernel_source import TEMPLATE_HEADERS, WIDE_HEADERS, Kernel, kernels_of, table_source
from tilearena.records import Record, Template
from tilearena.toolchain import Toolchain

ARCHES = (80, 86, 89, 90)
# NDEBUG: with asserts alive ptxas serialises the pipeline; relaxed constexpr: CUTLASS's host functions in device code.
FLAGS = ("-O3", "-std=c++17", "-DNDEBUG", "--expt-relaxed-constexpr", "-Xcompiler", "-fPIC")
# What a compiler says of a template: an error at a line, or one of ptxas. All else (no temporary folder, no memory, no
# space, a stage that was killed) is the machine's and may pass: not cached.
LASTING = re.compile(r"\(\d+\): error|:\d+: error|ptxas error")
PASSING = ("No space left", "died due to signal")

Progress = Callable[[int, int, str], None]


class BuildFailure(Record):
    """Why one template has no kernel."""

    id: str
    reason: str


class Library(Record):
    """A kernel library on disk and what it could not hold; ``<arch>/<name>.json`` in the cache folder."""

    name: str
    arch: int
    file: str
    sources: str
    versions: dict[str, str]
    failures: tuple[BuildFailure, ...] = ()


@dataclass(frozen=True)
class Unit:
    """One object to compile, of the templates ``ids``; ``features`` is of the arch, ``a`` in ``sm_90a``."""

    label: str
    source: str
    key: str
    ids: tuple[str, ...] = ()
    features: str = ""


def cache_folder() -> Path:
    """``TILEARENA_CACHE``, else the user's cache folder."""
    return Path(os.environ.get("TILEARENA_CACHE") or user_cache_path("tilearena"))


def kernel_sources() -> Path:
    """Folder of the CUDA sources that ship with the package."""
    return Path(str(files("tilearena.kernels")))


def build(
    name: str,
    templates: Sequence[Template],
    arch: int,
    *,
    cache: Path | None = None,
    jobs: int | None = None,
    progress: Progress = lambda done, total, label: None,
) -> tuple[Path, Library]:
    """Compile what is not cached and link it.

    Args:
        name: of the library, e.g. ``gemm.paper9.s8``.
        templates: in space order; one that does not compile is in ``Library.failures``.
        arch: 90 for ``sm_90``.
        cache: folder; default `cache_folder()`.
        jobs: compilers at a time; default the number of usable cores.
        progress: called with (done, total, label) after each unit that was not cached.

    Raises:
        BuildError: no toolchain and no prebuilt library, or not one template compiles.
    """
    cache = cache or cache_folder()
    manifest = cache / f"sm_{arch}" / f"{name}.json"
    kernels = kernels_of(templates)
    sources = sources_hash(kernels)
    try:
        tools = toolchain.find()
    except BuildError:
        prebuilt = _prebuilt(manifest, sources)
        if prebuilt is None:
            raise
        return prebuilt
    manifest.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(manifest.with_suffix(".lock")):
        library = _build_locked(name, kernels, arch, cache, sources, tools, jobs or _cores(), progress)
        _write_atomically(manifest, library.model_dump_json(indent=1))
    return cache / library.file, library


def _build_locked(
    name: str,
    kernels: Sequence[Kernel],
    arch: int,
    cache: Path,
    sources: str,
    tools: Toolchain,
    jobs: int,
    progress: Progress,
) -> Library:
    tools_key = (str(arch), *FLAGS, *tools.versions.values())
    bases = {k.headers: _hash(_headers_hash(k.headers), *tools_key) for k in kernels}
    units = [Unit(k.ids[0], k.source, _hash(bases[k.headers], k.source), k.ids, k.arch_features) for k in kernels]
    harness = _unit("harness", (kernel_sources() / "harness.cu").read_text(), _hash(_headers_hash(), *tools_key))
    results = _compile_all([*units, harness], arch, cache, tools, jobs, progress)
    if results[harness.key]:
        raise BuildError(f"the harness does not compile for sm_{arch}: {results[harness.key]}")
    built = [unit for unit in units if not results[unit.key]]
    failures = tuple(BuildFailure(id=id_, reason=results[u.key]) for u in units if results[u.key] for id_ in u.ids)
    if not built:
        raise BuildError(f"{name}: no template compiles for sm_{arch}; the first says: {failures[0].reason}")
    base = _hash(_headers_hash(TEMPLATE_HEADERS), *tools_key)
    table = _unit("table", table_source([id_ for unit in built for id_ in unit.ids]), base)
    _compile_all([table], arch, cache, tools, 1, lambda *_: None)
    key = _hash(table.key, harness.key, *(unit.key for unit in built))
    file = Path(f"sm_{arch}") / f"{name}-{key}.so"
    if not (cache / file).is_file():
        _link([_object(cache, unit.key) for unit in (table, harness, *built)], cache / file, arch, tools)
    return Library(
        name=name, arch=arch, file=file.as_posix(), sources=sources, versions=tools.versions, failures=failures
    )


def _compile_all(
    units: Sequence[Unit], arch: int, cache: Path, tools: Toolchain, jobs: int, progress: Progress
) -> dict[str, str]:
    """Key -> reason of the failure, empty for a success."""
    results: dict[str, str] = {}
    done = 0
    with ThreadPoolExecutor(jobs) as pool:
        cached = {unit.key for unit in units if _cached(unit, cache) is not None}
        futures = {pool.submit(_compile, unit, arch, cache, tools): unit for unit in units}
        try:
            for future in as_completed(futures):
                unit = futures[future]
                results[unit.key] = future.result()
                if unit.key not in cached:
                    done += 1
                    progress(done, len(futures) - len(cached), unit.label)
        except BaseException:  # Ctrl-C or a full disk: what has not begun never will
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return results


def _compile(unit: Unit, arch: int, cache: Path, tools: Toolchain) -> str:
    if unit.features and arch != WGMMA_ARCH:  # nvcc would not say which architecture it is that has them
        return f"wgmma exists on sm_{WGMMA_ARCH} alone"
    if (known := _cached(unit, cache)) is not None:
        return known
    target = _object(cache, unit.key)
    failed = target.with_suffix(".failed.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    source = target.with_suffix(f".{os.getpid()}.cu")
    scratch = target.with_suffix(f".{os.getpid()}.o")
    source.write_text(unit.source)
    command: list[str | Path] = [tools.nvcc, *FLAGS, *_target(arch, unit.features)]
    command += [f"-I{kernel_sources()}", f"-I{tools.cutlass_include}", "-c", source, "-o", scratch]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            scratch.replace(target)
            return ""
        reason = _first_error(done.stderr) if done.returncode > 0 else f"nvcc was killed by signal {-done.returncode}"
        if LASTING.search(done.stderr) and not any(passing in done.stderr for passing in PASSING):
            _write_atomically(failed, json.dumps({"id": unit.label, "reason": reason}))
        return reason
    finally:
        source.unlink(missing_ok=True)
        scratch.unlink(missing_ok=True)


def _cached(unit: Unit, cache: Path) -> str | None:
    """As `_compile` answers; None where it was not compiled yet, or its failure is damaged."""
    target = _object(cache, unit.key)
    if target.is_file():
        return ""
    try:
        return BuildFailure.model_validate_json(target.with_suffix(".failed.json").read_bytes()).reason or None
    except (OSError, ValueError):
        return None


def _link(objects: Sequence[Path], target: Path, arch: int, tools: Toolchain) -> None:
    scratch = target.with_suffix(f".{os.getpid()}.so")
    command: list[str | Path] = [tools.nvcc, "-shared", "-cudart", "static", *_target(arch)]
    done = subprocess.run(
        [*command, *tools.link_flags, *objects, "-o", scratch], capture_output=True, text=True, check=False
    )
    if done.returncode:
        scratch.unlink(missing_ok=True)
        raise BuildError(f"{target.name} does not link: {_first_error(done.stderr)}")
    scratch.replace(target)


def _prebuilt(manifest: Path, sources: str) -> tuple[Path, Library] | None:
    """A library that another environment built from the same sources into this cache."""
    try:
        library = Library.model_validate_json(manifest.read_bytes())
    except (OSError, ValueError):
        return None
    path = manifest.parent.parent / library.file
    return (path, library) if library.sources == sources and path.is_file() else None


def _target(arch: int, features: str = "") -> list[str]:
    return ["-gencode", f"arch=compute_{arch}{features},code=sm_{arch}{features}"]


def _unit(label: str, source: str, base: str) -> Unit:
    return Unit(label, source, _hash(base, source))


def _object(cache: Path, key: str) -> Path:
    return cache / "objects" / f"{key}.o"


def sources_hash(kernels: Sequence[Kernel]) -> str:
    """20 hex digits of all sources of ours that a library of ``kernels`` is made of; headers have it as ``kernels``."""
    harness = (kernel_sources() / "harness.cu").read_text()
    extra = [_headers_hash(names) for names in sorted({k.headers for k in kernels} - {TEMPLATE_HEADERS})]
    return _hash(*(kernel.source for kernel in kernels), harness, _headers_hash(), *extra)


def _headers_hash(names: Sequence[str] = ()) -> str:
    """Of the headers of these names, or of all that the harness may include."""
    found = sorted(path for path in kernel_sources().glob("*") if path.suffix in (".h", ".cuh"))
    wanted = [path for path in found if (path.name in names if names else path.name not in WIDE_HEADERS)]
    return _hash(*(path.read_text() for path in wanted))


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def _write_atomically(path: Path, text: str) -> None:
    scratch = path.with_suffix(f".{os.getpid()}.tmp")
    scratch.write_text(text)
    scratch.replace(path)


def _first_error(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[0] if lines else "no message")[:500]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
