"""The verbs about predictors: list them, and test one against the rules of the contract."""

import sys
from contextlib import redirect_stdout
from typing import Annotated, Any

import typer
from rich.table import Table as RichTable
from rich.text import Text

from tilearena.cli_options import Json, console, print_json
from tilearena.cli_score import MEMORY_LIMIT_GIB, MemoryLimit
from tilearena.conformance import RULES
from tilearena.conformance_run import LOAD, RULE_TIME_LIMIT_S, Checked, run_rules
from tilearena.errors import PredictorError, SpecError
from tilearena.plugins import discover, load
from tilearena.progress import progress_bar

COLOURS = {"pass": "green", "fail": "red", "declined": "yellow", "not run": "dim"}

app = typer.Typer()


@app.callback(invoke_without_command=True)
def predictors(context: typer.Context, as_json: Json = False) -> None:
    """List the installed predictors and baselines."""
    if context.invoked_subcommand is not None:
        if as_json:
            raise SpecError(f"give options after `tilearena predictors {context.invoked_subcommand}`, not before")
        return
    rows = []
    for name, point in discover().items():
        version, note = _version(name)
        group = point.group.removeprefix("tilearena.").removesuffix("s")
        rows.append({"name": name, "version": version, "kind": group, "from": point.value, "error": note})
    if as_json:
        print_json(rows)
        return
    for row in rows:
        print(f"{row['name']:12} {row['version'] or '-':4} {row['kind']:10} {row['error'] or row['from']}")


def _version(name: str) -> tuple[str, str]:
    """Version of a predictor, or why it has none."""
    try:
        with redirect_stdout(sys.stderr):  # what a plugin prints is not part of the list
            return load(name).version, ""
    except PredictorError as error:
        return "", str(error)


@app.command("test")
def conform(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An installed predictor or baseline.")],
    time_limit: Annotated[
        float, typer.Option("--time-limit", min=0.1, help="Seconds that one rule may take, each in its own process.")
    ] = RULE_TIME_LIMIT_S,
    memory_limit: MemoryLimit = MEMORY_LIMIT_GIB,
    as_json: Json = False,
) -> None:
    """Test a predictor against the rules of the contract, on made-up times; exit code 1 if it breaks one."""
    memory_limit_bytes = round(memory_limit * (1 << 30))
    checked: list[Checked] = []
    try:
        with progress_bar(f"test {name}") as report:
            for one in run_rules(name, time_limit_s=time_limit, memory_limit_bytes=memory_limit_bytes, report=report):
                checked.append(one)
    except KeyboardInterrupt:  # a rule may take minutes
        rest = [Checked(rule, "not run", "interrupted", 0.0) for rule in RULES[len(checked) :]]
        _print(name, [*checked, *rest], as_json)
        raise
    _print(name, checked, as_json)
    if any(c.status == "fail" for c in checked):
        raise typer.Exit(1)


def _print(name: str, checked: list[Checked], as_json: bool) -> None:
    if as_json:
        print_json([_flat(name, c) for c in checked])
    else:
        _show(name, checked)


def _flat(name: str, checked: Checked) -> dict[str, Any]:
    return {
        "predictor": name,
        "rule": checked.rule.name,
        "says": checked.rule.says,
        "status": checked.status,
        "reason": checked.reason,
        "wall_time_s": round(checked.wall_time_s, 3),
    }


def _show(name: str, checked: list[Checked]) -> None:
    table = RichTable("rule", "what it asks", "", "why", "s", title=f"predictor {name}")
    for c in checked:
        status = Text(c.status, COLOURS[c.status])
        table.add_row(c.rule.name, c.rule.says, status, c.reason, f"{c.wall_time_s:.1f}")
    output = console()
    output.print(table)
    count = {status: sum(c.status == status for c in checked) for status in COLOURS}
    total = ", ".join(f"{n} {status}" for status, n in count.items() if n)
    asked = {c.status for c in checked if c.rule is not LOAD}
    nothing = asked == {"declined"}
    output.print(total + (": it declined whatever it was asked, so nothing but loading was tested" if nothing else ""))
