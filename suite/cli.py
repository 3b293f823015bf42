"""The command line: each verb parses, calls one function, and prints. Errors of the user are one sentence."""

import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table as RichTable

from tilearena import (
    __version__,
    cli_export,
    cli_gpu,
    cli_import,
    cli_measure,
    cli_predictors,
    cli_recordings,
    cli_score,
    cli_search,
)
from tilearena.cli_options import Json, Root, console, print_json
from tilearena.errors import Interrupted, TilearenaError, one_line
from tilearena.leaderboard import serve
from tilearena.root import find_root
from tilearena.spec import load_space, load_workload, space_names, workload_names

ABOUT = (
    "Choose CUTLASS GEMM templates for low-bit matrix products, and show on real measurements how good the choice is."
)

#: 128 + SIGINT, as a shell reports it.
INTERRUPTED = 130

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"tilearena {__version__}")
        raise typer.Exit


@app.callback(help=ABOUT)
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


app.command()(cli_gpu.devices)
app.command()(cli_gpu.doctor)
app.command()(cli_gpu.build)
app.add_typer(cli_recordings.app, name="recordings")
app.add_typer(cli_predictors.app, name="predictors")
app.command()(cli_measure.measure)
app.command("import")(cli_import.import_)
app.command()(cli_export.export)
app.command()(cli_score.score)
app.command()(cli_score.bench)
app.command()(cli_score.submit)
app.command("check")(cli_score.check_)
app.command()(cli_search.search)


@app.command()
def specs(as_json: Json = False) -> None:
    """List the workloads and template spaces that ship with tilearena."""
    rows: list[dict[str, Any]] = []
    for name in workload_names():
        workload = load_workload(name)
        counts = {dtype: len(workload.problems_for(dtype)) for dtype in workload.dtypes}
        rows.append(
            {"kind": "workload", "name": name, "problems": counts, "space": workload.space}
            | {"fingerprint": workload.fingerprint, "description": workload.description}
        )
    for name in space_names():
        space = load_space(name)
        counts = {dtype: len(space.templates(dtype, "and" if dtype == "b1" else None)) for dtype in space.dtypes}
        rows.append(
            {"kind": "space", "name": name, "templates": counts}
            | {"fingerprint": space.fingerprint, "description": space.description}
        )
    if as_json:
        print_json(rows)
        return
    table = RichTable("kind", "name", "size", "fingerprint", "what")
    for row in rows:
        size = ", ".join(f"{n} {dtype}" for dtype, n in (row.get("problems") or row["templates"]).items())
        table.add_row(row["kind"], row["name"], size, row["fingerprint"], row["description"])
    console().print(table)


@app.command()
def board(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port on this machine.")] = 8501,
    headless: Annotated[bool, typer.Option("--headless", help="Do not open a browser.")] = False,
    submissions: Annotated[
        Path | None, typer.Option(help="Root of the submissions, e.g. results after a bench. Default: --root.")
    ] = None,
    root: Root = None,
) -> None:
    """Show the leaderboard in a browser."""
    command = serve.command(find_root(root), submissions, port=port, headless=headless)
    sys.stdout.flush()
    os.execv(command[0], command)  # it takes this process's place, so that no server outlives it


def _open_standard_files() -> None:
    """Where one of the three was closed (``2>&-``), the next file that is opened would take its place."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it has the lowest number that is free
            if number == 2:
                sys.stderr = os.fdopen(2, "w")


def main() -> None:
    """Entry point: user errors become one sentence on standard error and exit code 2, or 130 after Ctrl-C."""
    _open_standard_files()
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP, and nohup ignores it
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)  # end in order, like on Ctrl-C
    try:
        app()
    except TilearenaError as error:
        print(f"tilearena: {error}", file=sys.stderr)
        sys.exit(INTERRUPTED if isinstance(error, Interrupted) else 2)
    except OSError as error:  # no space, no permission
        name = error.filename2 or error.filename  # of a copy or a renaming: what was to be written
        where = one_line(str(name or "a file or folder in use"))
        print(f"tilearena: {where}: {one_line(error.strerror or str(error))}", file=sys.stderr)
        sys.exit(2)
