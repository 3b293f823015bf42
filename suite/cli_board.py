"""The verb that shows the leaderboard."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from tilearena.cli_options import Root
from tilearena.leaderboard import serve
from tilearena.root import find_root


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
