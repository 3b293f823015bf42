"""The verbs about what is recorded: list and verify, describe, publish."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table as RichTable

from tilearena.cli_options import Json, Root, console, print_json
from tilearena.datasheet.page import write_datasheet
from tilearena.datasheet.publish import publish as publish_to
from tilearena.errors import SpecError, one_line
from tilearena.inventory import Entry, inventory, names
from tilearena.root import find_root

app = typer.Typer()


@app.callback(invoke_without_command=True)
def recordings(
    context: typer.Context,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check every file: content, place, and what it is of.")
    ] = False,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """List the recordings: of which device, when, how many rows, how noisy, and with which fingerprint."""
    if context.invoked_subcommand is not None:
        if verify or root is not None or as_json:
            raise SpecError(f"give options after `tilearena recordings {context.invoked_subcommand}`, not before")
        return
    entries = list(inventory(find_root(root), verify=verify))
    if as_json:
        print_json([_flat(entry) for entry in entries])
    else:
        _show(entries, verify)
    if any(entry.fault for entry in entries):
        raise typer.Exit(1)


@app.command()
def datasheet(
    out: Annotated[Path, typer.Argument(metavar="OUT.md", help="Where to write it.")],
    root: Root = None,
) -> None:
    """Write the datasheet of all recordings to OUT.md, and its pictures into a folder of that name beside it."""
    for path in write_datasheet(find_root(root), out):
        print(one_line(str(path)))


@app.command()
def publish(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that does not exist yet.")],
    root: Root = None,
) -> None:
    """Write the recordings with datasheet, licence, citation and checksums to DIR, for Hugging Face and Zenodo."""
    paths = publish_to(find_root(root), folder)
    recorded = [path for path in paths if path.suffix == ".parquet"]
    others = len(paths) - len(recorded)
    print(f"{one_line(str(folder))}: {len(recorded)} recordings and {others} other files; nothing was uploaded")


def _flat(entry: Entry) -> dict[str, Any]:
    flat: dict[str, Any] = {"path": entry.path.as_posix(), "bytes": entry.n_bytes, "fault": entry.fault}
    header = entry.header
    if header is None:
        return flat
    return flat | {
        **names(header),
        "repeat": entry.is_repeat,
        "started_at": header.started_at,
        "rows": entry.n_rows,
        "problems": entry.n_problems,
        "problems_of_workload": entry.n_of,
        "noise_floor": header.noise_floor,
        "cards": sorted({batch.card for batch in header.batches if batch.card}),
        "fingerprint": header.fingerprint,
    }


def _show(entries: list[Entry], verified: bool) -> None:
    table = RichTable(
        "device", "spec", "space", "dtype", "protocol", "date", "problems", "rows", "noise", "kB", "fingerprint"
    )
    for entry in entries:
        if (header := entry.header) is not None:
            protocol = f"{header.protocol.name}{' repeat' if entry.is_repeat else ''}"
            sampled = entry.n_of is not None and entry.n_of != entry.n_problems
            problems = f"{entry.n_problems} of {entry.n_of}" if sampled else str(entry.n_problems)
            noise = "-" if header.noise_floor is None else f"{header.noise_floor:.2%}"
            what = (
                header.device.slug,
                header.spec,
                header.space,
                header.dtype,
                protocol,
                ascii(header.started_at)[1:11],
            )
            table.add_row(
                *what, problems, str(entry.n_rows), noise, f"{entry.n_bytes / 1e3:.0f}", ascii(header.fingerprint)[1:-1]
            )
    output = console()
    output.print(table)
    total = sum(entry.n_bytes for entry in entries) / 1e6
    faults = [entry for entry in entries if entry.fault]
    state = f"{len(entries) - len(faults)} of them whole and in their places" if verified else "not verified"
    output.print(f"{len(entries)} recordings, {total:.1f} MB; {state}")
    for entry in faults:
        output.print(f"{ascii(entry.path.as_posix())[1:-1]}: {entry.fault}", style="red")
