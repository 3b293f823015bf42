"""Verbs that score predictors: score and bench."""

import sys
from collections.abc import Iterable
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from tilearena import bench as benches
from tilearena import live
from tilearena.cli_options import Device, Dtypes, Json, Predictors, Root, Seed, TimeLimit, console, one_of, print_json
from tilearena.errors import NoGpuError, TilearenaError
from tilearena.evaluate import Subject, evaluate_each
from tilearena.exchange.importing import imported_headers
from tilearena.plugins import discover
from tilearena.predict import MEMORY_LIMIT_BYTES, TIME_LIMIT_S
from tilearena.records import PROTOCOLS, Dtype, ProtocolName
from tilearena.report import device_title, failures, score_table
from tilearena.root import find_path, find_root
from tilearena.score import Score
from tilearena.spec import load_space, load_workload
from tilearena.splits import MODELS_TRAIN_SPEC, MODELS_TRAIN_SPECS, SPLITS, Split
from tilearena.submission import Scored, prepare

#: Results, and why there are not more.
Evaluated = tuple[list[Scored], list[TilearenaError]]
MEMORY_LIMIT_GIB = MEMORY_LIMIT_BYTES / (1 << 30)
MemoryLimit = Annotated[
    float,
    typer.Option(
        "--memory-limit", min=0.1, max=1 << 20, help="GiB of its own that each process of a predictor may take."
    ),
]


def evaluate_all(folder: Path, spec: str, spaces: Iterable[str], *args: Any, **options: Any) -> Evaluated:
    """`_evaluate_space` of each space, once; raises the first reason only where nothing could be scored."""
    scored: list[Scored] = []
    refused: list[TilearenaError] = []
    for space in _distinct(spaces):
        try:
            found = _evaluate_space(folder, spec, space, *args, **options)
        except TilearenaError as error:
            refused.append(error)
        else:
            scored += found[0]
            refused += found[1]
    if refused and not scored:
        raise refused[0]
    return scored, refused


def _distinct(spaces: Iterable[str]) -> Iterable[str]:
    """Each space under the first of its names or paths; what cannot be read stays, for its evaluation to say why."""
    found: dict[str, str] = {}
    for space in spaces:
        try:
            found.setdefault(load_space(space).fingerprint, space)
        except TilearenaError:
            found.setdefault(space, space)
    return found.values()


def _evaluate_space(
    folder: Path,
    spec: str,
    space: str,
    device: str,
    dtypes: list[str] | None,
    protocols: tuple[str, ...],
    splits: tuple[str, ...],
    train_specs: tuple[str, ...],
    predictors: list[str] | None,
    **options: Any,
) -> Evaluated:
    imported = imported_headers(folder, device, spec, space)
    # a name means what was imported under it, or else a workload
    workload, templates = (None, None) if imported else (load_workload(spec), load_space(space))
    known = workload.dtypes if workload else tuple(dict.fromkeys(dtype for dtype, _ in imported))
    spec, space = workload.name if workload else spec, templates.name if templates else space
    names = one_of("--predictor", predictors, tuple(discover()))
    subjects = [
        Subject(
            spec,
            space,
            cast(Dtype, dtype),
            cast(ProtocolName, protocol),
            device,
            cast(Split, split),
            train_spec=train_spec,
        )
        for protocol in protocols
        for dtype in _recorded_dtypes(folder, device, spec, space, protocol, known, dtypes)
        for split in splits
        for train_spec in (train_specs if split == "models" else (None,))
    ]
    return evaluate_each(folder, subjects, names, workload=workload, space=templates, **options)


def _recorded_dtypes(
    folder: Path, device: str, spec: str, space: str, protocol: str, known: tuple[str, ...], asked: list[str] | None
) -> tuple[str, ...]:
    """The dtypes that were asked for, else those that are recorded; all of them where none is, for the error to say."""
    known = one_of("--dtype", asked, known)
    paths = {d: find_path(folder, device, spec, space, d, protocol) for d in known}
    return known if asked else tuple(d for d in known if paths[d].is_file()) or known


def as_bytes(gib: float) -> int:
    """Of ``--memory-limit``."""
    return round(gib * (1 << 30))


def exit_if_failed(refused: list[TilearenaError], scores: list[Score]) -> None:
    """Say what was refused and what failed, and leave with exit code 1 if anything was."""
    for sentence in (failed := [*map(str, refused), *failures(scores)]):
        print(f"tilearena: {sentence}", file=sys.stderr)
    if failed:
        raise typer.Exit(1)


def score(
    spec: Annotated[str, typer.Option("--spec", help="Name of the tested workload.")],
    device: Device,
    space: Annotated[str, typer.Option("--space", help="Template space.")] = "paper9",
    protocol: Annotated[str, typer.Option("--protocol", help="cold or hot.")] = "cold",
    split: Annotated[
        str, typer.Option("--split", help="random, models, final, extrapolate or device; docs/fair-play.md.")
    ] = "random",
    train_spec: Annotated[
        str, typer.Option("--train-spec", help="What models trains on: lowbit-random or lowbit-full.")
    ] = MODELS_TRAIN_SPEC,
    dtype: Dtypes = None,
    predictor: Predictors = None,
    refit: Annotated[bool, typer.Option("--refit", help="Train even where stored picks fit.")] = False,
    seed: Seed = 0,
    time_limit: TimeLimit = TIME_LIMIT_S,
    memory_limit: MemoryLimit = MEMORY_LIMIT_GIB,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Score predictors on a recording; exit code 1 if one of them failed."""
    scored, refused = evaluate_all(
        find_root(root),
        spec,
        [space],
        device,
        dtype,
        one_of("--protocol", [protocol], PROTOCOLS),
        one_of("--split", [split], SPLITS),
        one_of("--train-spec", [train_spec], MODELS_TRAIN_SPECS),
        predictor,
        refit=refit,
        seed=seed,
        time_limit_s=time_limit,
        memory_limit_bytes=as_bytes(memory_limit),
    )
    scores = [s.score for s in scored]
    if as_json:
        print_json([s.score.flat() | {"origin": s.origin, "isolated": s.isolated} for s in scored])
    else:
        where = device_title(device, [s.origin for s in scored])
        console().print(score_table(scores, f"{spec} on {where}, split {split}"))
    exit_if_failed(refused, scores)


def bench(
    spec: Annotated[
        str | None, typer.Argument(help="Workload. Default: quick, and lowbit-random from recordings.")
    ] = None,
    device: Annotated[
        str, typer.Option("--device", help="Whose recordings are replayed without a GPU.")
    ] = "nvidia-h200",
    protocol: Annotated[str, typer.Option("--protocol", help="cold or hot.")] = "cold",
    space: Annotated[str, typer.Option("--space", help="Template space.")] = "paper9",
    predictor: Predictors = None,
    use_recordings: Annotated[bool, typer.Option("--replay", help="Use recordings even where there is a GPU.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for what this run writes.")] = Path("results"),
    seed: Seed = 0,
    time_limit: TimeLimit = TIME_LIMIT_S,
    memory_limit: MemoryLimit = MEMORY_LIMIT_GIB,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Score every predictor: live on this machine's GPU, else on recordings. Exit code 1 if one of them failed."""
    one_of("--protocol", [protocol], PROTOCOLS)
    options = benches.Options(
        data=find_root(root),
        out=out,
        predictors=one_of("--predictor", predictor, tuple(discover())),
        protocol=cast(ProtocolName, protocol),
        space=space,
        seed=seed,
        time_limit_s=time_limit,
        memory_limit_bytes=as_bytes(memory_limit),
    )
    prepare(out, benches.SUBMITTER)
    # what people read, pytest's output too, makes way for the JSON
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        outcome = _bench(options, spec, device, use_recordings)
    if as_json:
        print_json(outcome.rows)
    if not outcome.good:
        raise typer.Exit(1)


def _bench(options: benches.Options, spec: str | None, device: str, use_recordings: bool) -> benches.Outcome:
    terminal = console()
    if not use_recordings:
        try:
            gpu = benches.Gpu(live.pick_device(), options.space, terminal)
        except NoGpuError as error:
            terminal.print(f"{error}; replaying the recordings of {device}")
        else:
            return benches.on_gpu(options, gpu, spec or benches.LIVE, terminal)
    return benches.replay(options, device, [spec] if spec else benches.REPLAYED, terminal)
