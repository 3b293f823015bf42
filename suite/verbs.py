"""The verbs by name. The module of one is imported when it is run, so that `tilearena --help` need not wait for all."""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup


class Verb(NamedTuple):
    """Where a verb is, a function or a `typer.Typer`, and the first paragraph of its help."""

    module: str
    attribute: str
    help: str


VERBS = {
    "devices": Verb("cli_gpu", "devices", "List the GPUs of this machine and the devices that have recordings."),
    "doctor": Verb(
        "cli_gpu", "doctor", "Say whether this machine is fit to measure, and change nothing; exit code 1 if it is not."
    ),
    "build": Verb(
        "cli_gpu", "build", "Compile the kernels that SPEC needs; what was compiled before is not compiled again."
    ),
    "recordings": Verb(
        "cli_recordings",
        "app",
        "List the recordings: of which device, when, how many rows, how noisy, and with which fingerprint.",
    ),
    "predictors": Verb("cli_predictors", "app", "List the installed predictors and baselines."),
    "measure": Verb(
        "cli_measure",
        "measure",
        "Prove exact and time every template on every problem of SPEC; an interrupted run goes on where it stopped.",
    ),
    "import": Verb(
        "cli_import",
        "import_",
        "Make recordings of a file of cutlass_profiler or of labels; exit code 1 if rows of it had to be left out.",
    ),
    "export": Verb(
        "cli_export",
        "export",
        "Write a recording as other tools read it, or what `tilearena.pick` knows as a C++ header.",
    ),
    "score": Verb("cli_score", "score", "Score predictors on a recording; exit code 1 if one of them failed."),
    "bench": Verb(
        "cli_score",
        "bench",
        "Score every predictor: live on this machine's GPU, else on recordings. Exit code 1 if one of them failed.",
    ),
    "submit": Verb(
        "cli_submit", "submit", "Score predictors and write one submission (JSON and Parquet) for each of them."
    ),
    "check": Verb(
        "cli_submit",
        "check_",
        "Recompute every figure of submissions from their picks and the recordings; exit code 1 if one does not hold.",
    ),
    "search": Verb(
        "cli_search",
        "search",
        "Show what k measurements reach without a model and with one; exit code 1 if a predictor failed.",
    ),
    "specs": Verb("cli_specs", "specs", "List the workloads and template spaces that ship with tilearena."),
    "board": Verb("cli_board", "board", "Show the leaderboard in a browser."),
}


class Commands(Mapping[str, Any]):
    """The whole commands by name, each made when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        if name not in VERBS:
            raise KeyError(name)
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(VERBS)

    def __len__(self) -> int:
        return len(VERBS)


class Verbs(TyperGroup):
    """A group that shows its verbs without importing them."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Any = Commands()

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the help."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """What the help shows of a verb, None for an unknown one."""
        return TyperCommand(cmd_name, help=VERBS[cmd_name].help) if cmd_name in VERBS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The verb that is to be run, whole."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and self.commands[name], rest


@cache
def _command(name: str) -> Any:
    verb = VERBS[name]
    run = getattr(import_module(f"tilearena.{verb.module}"), verb.attribute)
    group = typer.Typer(callback=lambda: None, add_completion=False)
    if isinstance(run, typer.Typer):
        group.add_typer(run, name=name)
    else:
        group.command(name)(run)
    commands: Mapping[str, Any] = typer.main.get_command(group).commands  # type: ignore[attr-defined]
    return commands[name]
