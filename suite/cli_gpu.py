"""Verbs around the GPU: devices, build, measure."""

from typing import Annotated, Any, cast

import typer

from tilearena import build as builder
from tilearena import doctor_readings, live
from tilearena.cli_options import Dtypes, Json, Root, SpaceName, console, one_of, print_json
from tilearena.device import visible_devices
from tilearena.doctor import diagnose, show, verdict
from tilearena.errors import NoGpuError, SpecError
from tilearena.progress import progress_bar
from tilearena.records import Dtype
from tilearena.root import find_root, recorded_devices
from tilearena.spec import load_space, load_workload


def devices(root: Root = None, as_json: Json = False) -> None:
    """List the GPUs of this machine and the devices that have recordings."""
    try:
        here = [d.model_dump(mode="json") for d in visible_devices()]
        note = ""
    except NoGpuError as error:
        here, note = [], str(error)
    recordings = recorded_devices(find_root(root))
    if as_json:
        print_json({"here": here, "recorded": recordings})
        return
    for d in here:
        print(f"here: {d['slug']}  ({d['product']}, {d['sm_count']} SMs, driver {d['driver']})")
    if note:
        print(f"here: {note}")
    print(f"recorded: {', '.join(recordings) or 'none'}")


def build(
    spec: str,
    space: SpaceName = None,
    dtype: Dtypes = None,
    arch: Annotated[int | None, typer.Option(help="80, 86, 89 or 90. Default: this machine's GPU.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Compilers at a time. Default: all cores.")] = None,
    as_json: Json = False,
) -> None:
    """Compile the kernels that SPEC needs; what was compiled before is not compiled again."""
    workload = load_workload(spec)
    chosen = load_space(space or workload.space)
    if arch is None:
        arch = live.pick_device().arch
    if arch not in builder.ARCHES:
        raise SpecError(f"--arch {arch} is unknown; choose from {', '.join(map(str, builder.ARCHES))}")
    built: list[dict[str, Any]] = []
    for name in cast(tuple[Dtype, ...], one_of("--dtype", dtype, workload.dtypes)):
        templates = chosen.templates(name, workload.bit_op if name == "b1" else None)
        with progress_bar(f"build sm_{arch} {name}") as progress:
            path, library = builder.build(
                live.library_name(chosen, name), templates, arch, jobs=jobs, progress=progress
            )
        built.append({"dtype": name, "arch": arch, "library": str(path), **library.model_dump(mode="json")})
    if as_json:
        print_json(built)
    for row in [] if as_json else built:
        print(f"{row['dtype']} sm_{arch}: {row['library']}, {len(row['failures'])} failed")
        for failure in row["failures"]:
            print(f"  {failure['id']}: {failure['reason']}")
    if any(row["failures"] for row in built):
        raise typer.Exit(1)


def doctor(
    ordinal: Annotated[int, typer.Option("--gpu", min=0, help="Number of the GPU.")] = 0,
    as_json: Json = False,
) -> None:
    """Say whether this machine is fit to measure, and change nothing; exit code 1 if it is not, 2 without a GPU."""
    readings = doctor_readings.read(ordinal)
    findings = diagnose(readings)
    if as_json:
        found = [finding.model_dump(mode="json") for finding in findings]
        print_json({"verdict": verdict(findings), "findings": found, "readings": readings.model_dump(mode="json")})
    else:
        show(readings, findings, console())
    if verdict(findings) == "not fit":
        raise typer.Exit(1)
