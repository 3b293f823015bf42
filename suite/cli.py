"""The command line: each verb parses, calls one function, and prints. Errors of the user are one sentence."""

import os
import signal
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from tilearena import __version__
from tilearena.errors import Interrupted, TilearenaError, one_line
from tilearena.verbs import Verbs

ABOUT = (
    "Choose CUTLASS GEMM templates for low-bit matrix products, and show on real measurements how good the choice is."
)

#: 128 + SIGINT, as a shell reports it.
INTERRUPTED = 130

app = typer.Typer(cls=Verbs, no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)


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
    reported(app)


def reported(run: Callable[[], None]) -> None:
    """Call ``run``; what the user can act on ends this process with one sentence."""
    try:
        run()
    except TilearenaError as error:
        print(f"tilearena: {error}", file=sys.stderr)
        sys.exit(INTERRUPTED if isinstance(error, Interrupted) else 2)
    except OSError as error:  # no space, no permission
        name = error.filename2 or error.filename  # of a copy or a renaming: what was to be written
        where = one_line(str(name or "a file or folder in use"))
        print(f"tilearena: {where}: {one_line(error.strerror or str(error))}", file=sys.stderr)
        sys.exit(2)
