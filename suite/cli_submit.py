"""Verbs around submissions: submit and check."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tilearena import bench as benches
from tilearena.check import NOT_RECOMPUTED, check
from tilearena.cli_options import Device, Dtypes, Json, Predictors, Root, TimeLimit, one_of, print_json
from tilearena.cli_score import MEMORY_LIMIT_GIB, MemoryLimit, as_bytes, evaluate_all, exit_if_failed
from tilearena.errors import SubmissionError, one_line
from tilearena.exchange.importing import imported_headers
from tilearena.judge import not_ranked
from tilearena.manifest import SEED
from tilearena.predict import TIME_LIMIT_S
from tilearena.records import PROTOCOLS
from tilearena.root import find_root
from tilearena.splits import MODELS_TRAIN_SPEC, MODELS_TRAIN_SPECS, NETWORKS, SPLITS
from tilearena.submission import prepare, require_file, require_kept


def _splits(spec: str, asked: list[str] | None) -> tuple[str, ...]:
    """The splits that were asked for, else what a submission needs; ``final`` is never taken unasked."""
    return one_of("--split", asked or ["random", *(["models"] if spec == NETWORKS else [])], SPLITS)


def submit(
    spec: Annotated[str, typer.Option("--spec", help="Name of the tested workload.")],
    device: Device,
    submitter: Annotated[str, typer.Option(help="Who submits: a name, a handle, a team.")],
    space: Annotated[
        list[str] | None, typer.Option("--space", help="Template space; repeatable. Default: paper9.")
    ] = None,
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
    time_limit: TimeLimit = TIME_LIMIT_S,
    memory_limit: MemoryLimit = MEMORY_LIMIT_GIB,
    out: Annotated[Path | None, typer.Option(help="Root to write below. Default: --root.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a submission even if it has results that are not asked for now.")
    ] = False,
    root: Root = None,
) -> None:
    """Score predictors and write one submission (JSON and Parquet) for each of them."""
    folder = find_root(root)
    spaces = list(dict.fromkeys(space or ["paper9"]))
    for name in spaces:
        if imported := next(filter(None, imported_headers(folder, device, spec, name).values()), None):
            raise SubmissionError(not_ranked(imported))
    prepare(out or folder, submitter)
    scored, refused = evaluate_all(
        folder,
        spec,
        spaces,
        device,
        dtype,
        one_of("--protocol", protocol, PROTOCOLS),
        _splits(spec, split),
        one_of("--train-spec", train_spec or [MODELS_TRAIN_SPEC], MODELS_TRAIN_SPECS),
        predictor,
        refit=refit,
        seed=SEED,
        time_limit_s=time_limit,
        memory_limit_bytes=as_bytes(memory_limit),
        roots=[out] if out else [],
    )
    if not force:
        require_kept(out or folder, scored, submitter)
    for path in benches.write_submissions(out or folder, scored, submitter):
        print(one_line(str(path)))
    exit_if_failed(refused, [s.score for s in scored])


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
