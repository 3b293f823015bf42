"""The verb that compares predictors with searches that measure as often, and measures a predictor's picks."""

import json
import sys
from pathlib import Path
from typing import Annotated, cast

import typer

from tilearena import search_run
from tilearena.atomic import replacing
from tilearena.cli_options import Device, Json, Root, Seed, TimeLimit, console, one_of, print_json
from tilearena.errors import SpecError
from tilearena.evaluate import Subject
from tilearena.plugins import discover
from tilearena.predict import TIME_LIMIT_S
from tilearena.records import DTYPES, PROTOCOLS, Dtype, ProtocolName
from tilearena.report import failures
from tilearena.root import find_root
from tilearena.score import N_PICKS
from tilearena.search_curve import STRATEGIES, TPE
from tilearena.search_report import Report
from tilearena.spec import is_path, load_space, load_workload
from tilearena.splits import SPLITS, Split

#: Problems that are looked at where Optuna takes part, which needs milliseconds for a measurement.
SAMPLE = 200


def search(
    spec: Annotated[str, typer.Option("--spec", help="Name of the workload.")],
    device: Device,
    dtype: Annotated[str, typer.Option("--dtype", help="s8, s4 or b1.")],
    space: Annotated[str, typer.Option("--space", help="Template space.")] = "paper9",
    protocol: Annotated[str, typer.Option("--protocol", help="cold or hot.")] = "cold",
    split: Annotated[str, typer.Option("--split", help="What predictors and constant-k train on.")] = "random",
    strategy: Annotated[
        list[str] | None, typer.Option("--strategy", help="random, tpe or constant-k; repeatable. Default: all.")
    ] = None,
    predictor: Annotated[
        list[str] | None, typer.Option("--predictor", help="Predictor or baseline; repeatable. Default: gbdt.")
    ] = None,
    by_repeat: Annotated[
        bool, typer.Option("--by-repeat", help="Reward by the repeat recording: no winner's curse.")
    ] = False,
    trials: Annotated[int, typer.Option(min=1, help="Measurements of one study of Optuna's.")] = 32,
    runs: Annotated[int, typer.Option(min=1, help="Studies of a problem, which are averaged.")] = 3,
    sample: Annotated[
        int | None,
        typer.Option(min=1, help=f"Only so many problems, evenly spaced. Default: {SAMPLE} with tpe, else all."),
    ] = None,
    live: Annotated[
        int | None,
        typer.Option("--live", min=1, max=N_PICKS, help="Measure this many picks on the GPU, and keep the fastest."),
    ] = None,
    use_recordings: Annotated[
        bool, typer.Option("--replay", help="With --live: take the recorded screen samples, no GPU.")
    ] = False,
    refit: Annotated[bool, typer.Option("--refit", help="Train even where stored picks fit.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Also write it to this .md or .json file.")] = None,
    seed: Seed = 0,
    time_limit: TimeLimit = TIME_LIMIT_S,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Show what k measurements reach without a model and with one; exit code 1 if a predictor failed."""
    if out is not None and out.suffix not in (".md", ".json"):
        raise SpecError(f"--out {out}: give it a name that ends in .md or .json")
    if use_recordings and live is None:
        raise SpecError("--replay says where the samples of --live come from; give --live, too")
    strategies = one_of("--strategy", strategy, STRATEGIES)
    if live is None and TPE in strategies and sample is None:
        sample = SAMPLE
    names = one_of("--predictor", predictor or ["gbdt"], tuple(discover()))
    workload = load_workload(spec) if is_path(spec) else None
    templates = load_space(space) if is_path(space) else None
    subject = Subject(
        spec=workload.name if workload else spec,
        space=templates.name if templates else space,
        dtype=cast(Dtype, one_of("--dtype", [dtype], DTYPES)[0]),
        protocol=cast(ProtocolName, one_of("--protocol", [protocol], PROTOCOLS)[0]),
        device=device,
        split=cast(Split, one_of("--split", [split], SPLITS)[0]),
    )
    folder = find_root(root)
    asked = search_run.prepare(
        folder,
        subject,
        strategies,
        names,
        workload=workload,
        space=templates,
        sample=sample,
        refit=refit,
        seed=seed,
        time_limit_s=time_limit,
    )
    if live is None:
        report = search_run.on_recording(asked, trials=trials, runs=runs, by_repeat=by_repeat)
    else:
        report = search_run.measured(asked, live, use_recordings=use_recordings, notice=_notice)
    _show(report, out, as_json)
    for sentence in (failed := failures([s.score for s in asked.scored])):
        print(f"tilearena: {sentence}", file=sys.stderr)
    if failed:
        raise typer.Exit(1)


def _notice(text: str) -> None:
    print(text, file=sys.stderr)


def _show(report: Report, out: Path | None, as_json: bool) -> None:
    if out is not None:
        text = json.dumps(report.json(), indent=1, allow_nan=False) + "\n" if out.suffix == ".json" else ""
        with replacing(out) as scratch:
            scratch.write_text(text or report.markdown(), encoding="utf-8")
    if as_json:
        print_json(report.json())
        return
    terminal = console()
    terminal.print(report.title, style="bold", soft_wrap=True, highlight=False)
    terminal.print(report.rich())
    for note in report.notes:
        terminal.print(note, soft_wrap=True, highlight=False)
