"""Verbs around the GPU: devices, build, measure."""

import sys
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from tilearena import build as builder
from tilearena import dataset, live
from tilearena.cli_options import Dtypes, Json, Root, SpaceName, one_of, print_json
from tilearena.device import Telemetry, visible_devices
from tilearena.errors import MeasureError, NoGpuError, SpecError
from tilearena.measure import Session, record
from tilearena.progress import progress_bar
from tilearena.records import PROTOCOLS, Device, Dtype, ProtocolName
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


def measure(
    spec: str,
    space: SpaceName = None,
    dtype: Dtypes = None,
    protocol: Annotated[list[str] | None, typer.Option(help="cold or hot; repeatable. Default: both.")] = None,
    repeat: Annotated[bool, typer.Option("--repeat", help="Record a second, independent run, for ceilings.")] = False,
    ordinal: Annotated[int, typer.Option("--gpu", min=0, help="Number of the GPU.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace a recording that exists.")] = False,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Prove exact and time every template on every problem of SPEC, on this machine's GPU."""
    workload = load_workload(spec)
    chosen = load_space(space or workload.space)
    device = live.pick_device(ordinal)
    folder = find_root(root)
    rows = []
    for name in cast(tuple[Dtype, ...], one_of("--dtype", dtype, workload.dtypes)):
        for timing in cast(tuple[ProtocolName, ...], one_of("--protocol", protocol, PROTOCOLS)):
            path = dataset.find_path(folder, device.slug, workload.name, chosen.name, name, timing, workload.op, repeat)
            if path.exists() and not force:
                raise MeasureError(f"{path} exists; give --force to replace it, or --repeat for a second run")
            how = workload.protocol(timing, name)
            if repeat:  # other operands and another order of launches, or the two runs would not be independent
                how = how.model_copy(update={"seed": how.seed + 1})
            session = Session(workload, chosen, workload.problems_for(name), how)
            rows.append(_measure_one(session, device, ordinal, path))
    if as_json:
        print_json(rows)


def _measure_one(session: Session, device: Device, ordinal: int, path: Path) -> dict[str, Any]:
    first, protocol = session.problems[0], session.protocol
    title = f"{session.workload.name} {first.dtype} {protocol.name}"
    with progress_bar(f"build {title}") as progress:
        runner = live.open_runner(
            device,
            session.space,
            first.dtype,
            first.bit_op,
            session.problems,
            seed=protocol.seed,
            ordinal=ordinal,
            progress=progress,
        )
    with runner, progress_bar(f"measure {title}") as progress:
        telemetry = Telemetry(ordinal)
        header = record(session, runner, path, telemetry=telemetry, progress=progress)
    rows = dataset.read(path).rows
    failed = sum(status != "ok" for status in rows["status"].to_pylist())
    print(
        f"{title}: {len(rows)} rows, {failed} failed, {header.wall_time_s:.1f} s, "
        f"{len(rows) / max(header.wall_time_s, 1e-9):.0f} rows/s, noise floor {header.noise_floor}, {path}",
        file=sys.stderr,
    )
    return {"path": str(path), "rows": len(rows), "failed": failed, **header.model_dump(mode="json")}
