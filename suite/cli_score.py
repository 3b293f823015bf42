"""Verbs around recordings: score, submit, check, bench."""

import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from tilearena import bench as benches
from tilearena import live
from tilearena.check import NOT_RECOMPUTED, check
from tilearena.cli_options import Device, Dtypes, Json, Predictors, Root, Seed, TimeLimit, console, one_of, print_json
from tilearena.errors import NoGpuError, SubmissionError, TilearenaError, one_line
from tilearena.evaluate import Subject, evaluate_each
from tilearena.exchange.importing import imported_headers
from tilearena.judge import not_ranked
from tilearena.manifest import SEED
from tilearena.plugins import discover
from tilearena.predict import MEMORY_LIMIT_BYTES
from tilearena.records import PROTOCOLS, Dtype, ProtocolName
from tilearena.report import device_title, failures, score_table
from tilearena.root import find_path, find_root
from tilearena.score import Score
from tilearena.spec import load_space, load_workload
from tilearena.splits import MODELS_TRAIN_SPEC, MODELS_TRAIN_SPECS, NETWORKS, SPLITS, Split
from tilearena.submission import Scored, prepare, require_file, require_kept

MEMORY_LIMIT_GIB = MEMORY_LIMIT_BYTES / (1 << 30)
MemoryLimit = Annotated[
    float, typer.Option("--memory-limit", min=0.1, help="GiB of its own that each process of a predictor may take.")
]


def _evaluate(
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
) -> tuple[list[Scored], list[TilearenaError]]:
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


def _splits(spec: str, asked: list[str] | None) -> tuple[str, ...]:
    """The splits that were asked for, else what a submission needs; ``final`` is never taken unasked."""
    return one_of("--split", asked or ["random", *(["models"] if spec == NETWORKS else [])], SPLITS)


def _bytes(gib: float) -> int:
    return round(gib * (1 << 30))


def _exit_if_failed(refused: list[TilearenaError], scores: list[Score]) -> None:
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
    time_limit: TimeLimit = 300.0,
    memory_limit: MemoryLimit = MEMORY_LIMIT_GIB,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Score predictors on a recording; exit code 1 if one of them failed."""
    scored, refused = _evaluate(
        find_root(root),
        spec,
        space,
        device,
        dtype,
        one_of("--protocol", [protocol], PROTOCOLS),
        one_of("--split", [split], SPLITS),
        one_of("--train-spec", [train_spec], MODELS_TRAIN_SPECS),
        predictor,
        refit=refit,
        seed=seed,
        time_limit_s=time_limit,
        memory_limit_bytes=_bytes(memory_limit),
    )
    scores = [s.score for s in scored]
    if as_json:
        print_json([s.score.flat() | {"origin": s.origin, "isolated": s.isolated} for s in scored])
    else:
        where = device_title(device, [s.origin for s in scored])
        console().print(score_table(scores, f"{spec} on {where}, split {split}"))
    _exit_if_failed(refused, scores)


def submit(
    spec: Annotated[str, typer.Option("--spec", help="Name of the tested workload.")],
    device: Device,
    submitter: Annotated[str, typer.Option(help="Who submits: a name, a handle, a team.")],
    space: Annotated[str, typer.Option("--space", help="Template space.")] = "paper9",
    protocol: Annotated[list[str] | None, typer.Option(help="cold or hot; repeatable. Default: both.")] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(help="As of `tilearena score`; repeatable. Default: random, and models of networks."),
    ] = None,
    train_spec: Annotated[
        list[str] | None, typer.Option(help="What models trains on; repeatable. Default: lowbit-random.")
    ] = None,
    dtype: Dtypes = None,
    predictor: Predictors = None,
    refit: Annotated[bool, typer.Option("--refit", help="Train even where stored picks fit.")] = False,
    time_limit: TimeLimit = 300.0,
    memory_limit: MemoryLimit = MEMORY_LIMIT_GIB,
    out: Annotated[Path | None, typer.Option(help="Root to write below. Default: --root.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a submission even if it has results that are not asked for now.")
    ] = False,
    root: Root = None,
) -> None:
    """Score predictors and write one submission (JSON and Parquet) for each of them."""
    folder = find_root(root)
    if imported := next(filter(None, imported_headers(folder, device, spec, space).values()), None):
        raise SubmissionError(not_ranked(imported))
    prepare(out or folder, submitter)
    scored, refused = _evaluate(
        folder,
        spec,
        space,
        device,
        dtype,
        one_of("--protocol", protocol, PROTOCOLS),
        _splits(spec, split),
        one_of("--train-spec", train_spec or [MODELS_TRAIN_SPEC], MODELS_TRAIN_SPECS),
        predictor,
        refit=refit,
        seed=SEED,
        time_limit_s=time_limit,
        memory_limit_bytes=_bytes(memory_limit),
    )
    if not force:
        require_kept(out or folder, scored, submitter)
    for path in benches.write_submissions(out or folder, scored, submitter):
        print(one_line(str(path)))
    _exit_if_failed(refused, [s.score for s in scored])


def check_(files: list[Path], root: Root = None, as_json: Json = False) -> None:
    """Recompute every figure of submissions from their picks and the recordings; exit code 1 if one does not hold."""
    folder = find_root(root)
    for path in files:  # a path that leads nowhere was mistyped: no submission was refused
        require_file(path)
    rows: list[dict[str, Any]] = []
    for path in files:
        try:
            findings, error = check(path, folder), ""
        except SubmissionError as problem:
            findings, error = [], str(problem)
        rows.append(
            {
                "path": str(path),
                "ok": not findings and not error,
                "error": error,
                "findings": [
                    {"result": f.result, "field": f.field, "claimed": f.claimed, "recomputed": f.recomputed}
                    for f in findings
                ],
            }
        )
        if as_json:
            continue
        print(
            error
            or "\n".join(map(str, findings))
            or f"{one_line(str(path))}: every figure follows from its picks (not checked: {', '.join(NOT_RECOMPUTED)})"
        )
    if as_json:
        print_json(rows)
    if not all(row["ok"] for row in rows):
        raise typer.Exit(1)


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
    time_limit: TimeLimit = 300.0,
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
        memory_limit_bytes=_bytes(memory_limit),
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
