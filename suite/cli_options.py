"""Options that several verbs share, and how values are printed."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tilearena.errors import SpecError

Root = Annotated[Path | None, typer.Option("--root", help="Folder of recordings and submissions.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Dtypes = Annotated[list[str] | None, typer.Option("--dtype", help="s8, s4 or b1; repeatable. Default: all.")]
SpaceName = Annotated[str | None, typer.Option("--space", help="Template space. Default: the workload's.")]

Device = Annotated[str, typer.Option("--device", help="Device slug, see `tilearena devices`.")]
Predictors = Annotated[
    list[str] | None, typer.Option("--predictor", help="Predictor or baseline; repeatable. Default: all.")
]
TimeLimit = Annotated[
    float, typer.Option("--time-limit", min=0.1, help="Seconds that one predictor may take on one dtype.")
]
Seed = Annotated[int, typer.Option(min=0, max=(1 << 32) - 1, help="Seed of folds and fits.")]


def one_of(option: str, given: list[str] | None, known: tuple[str, ...]) -> tuple[str, ...]:
    """The values of a repeatable option, all of them known; everything where nothing was given."""
    for value in given or ():
        if value not in known:
            raise SpecError(f"{option} {value!r} is unknown; choose from {', '.join(known)}")
    return tuple(dict.fromkeys(given)) if given else known


def print_json(value: Any) -> None:
    """Indented JSON on standard output; NaN is refused."""
    print(json.dumps(value, indent=1, allow_nan=False))


def console() -> Console:
    """Standard output; wide enough for tables where it is no terminal. Brackets and colons of names are plain text."""
    output = Console(markup=False, emoji=False)
    if not output.file.isatty():  # it may also be closed
        output.width = 200
    return output
