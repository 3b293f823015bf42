"""The verb that takes recordings from files of other tools."""

import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from tilearena.cli_options import Device, Json, Root, one_of, print_json
from tilearena.errors import RecordingError, one_line
from tilearena.exchange.foreign_csv import Faults
from tilearena.exchange.importing import Imported, Target, import_file
from tilearena.exchange.known_device import known_device
from tilearena.inventory import names
from tilearena.records import PROTOCOLS, ProtocolName
from tilearena.root import find_root
from tilearena.spec import load_space


def import_(
    file: Annotated[Path, typer.Argument(help="CSV of cutlass_profiler (GEMM), or of labels.")],
    spec: Annotated[str, typer.Option("--spec", help="Name for its problems; none of a workload that ships.")],
    device: Device,
    protocol: Annotated[str, typer.Option("--protocol", help="cold or hot: how its times were taken.")],
    space: Annotated[
        str, typer.Option("--space", help="Template space of labels; of kernels it tells the default.")
    ] = "paper9",
    device_file: Annotated[
        Path | None, typer.Option(help="JSON that describes the device. Default: a recording of it.")
    ] = None,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Make recordings of a file of cutlass_profiler or of labels; exit code 1 if rows of it had to be left out."""
    folder = find_root(root)
    (name,) = one_of("--protocol", [protocol], PROTOCOLS)
    target = Target(
        root=folder,
        spec=spec,
        space=load_space(space),
        device=known_device(folder, device, device_file, *_checkout()),
        protocol=cast(ProtocolName, name),
        imported_at=datetime.now(UTC),
    )
    faults = Faults(file)
    try:
        imported = import_file(file, target, faults)
    finally:
        _print_faults(faults)
    if as_json:
        print_json(_flat(imported, faults))
    else:
        _show(imported, faults)
    if faults.count:
        raise typer.Exit(1)


def _checkout() -> tuple[Path, ...]:
    """Whose recordings say what the devices of the project are, whatever --root is."""
    with suppress(RecordingError):
        return (find_root(),)
    return ()


def _print_faults(faults: Faults) -> None:
    for sentence in faults.sentences:
        print(f"tilearena: {sentence}", file=sys.stderr)
    if faults.spans:
        lines = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in faults.spans)
        print(f"tilearena: {one_line(str(faults.path))}: left out, too: lines {lines}", file=sys.stderr)


def _flat(imported: Imported, faults: Faults) -> dict[str, Any]:
    found = [
        {
            "path": str(path),
            **names(header),
            "problems": n_problems,
            "templates": len(header.candidates),
            "fingerprint": header.fingerprint,
        }
        for path, header, n_problems in imported.recordings
    ]
    return {"recordings": found, "rows_left_out": faults.count, "rows_of_other_devices": imported.n_others}


def _show(imported: Imported, faults: Faults) -> None:
    for path, header, n_problems in imported.recordings:
        what = (
            f"{n_problems} problems of {header.dtype}, {len(header.candidates)} templates, imported ({header.origin})"
        )
        print(f"{what}: {one_line(str(path))}")
    header = imported.recordings[0][1]
    if imported.n_others:
        print(f"{imported.n_others} rows are of other devices than {header.device.slug}")
    print(f"{faults.count} rows are left out; to score predictors on the others:")
    asked = f"--spec {header.spec} --device {header.device.slug} --space {header.space}"
    print(f"  tilearena score {asked} --protocol {header.protocol.name}")
