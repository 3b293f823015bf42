"""The main job: score every predictor on recordings, or on this machine's GPU, and leave submissions behind."""

import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from tilearena import bench_live, bench_timings, submission
from tilearena.bench_live import LiveResult
from tilearena.bench_timings import Kernel, Subjects, timed_predictors
from tilearena.errors import MeasureError, TilearenaError
from tilearena.evaluate import Subject, evaluate_each
from tilearena.hands import Hand
from tilearena.judge import Sources
from tilearena.measure import Session, opening
from tilearena.plugins import PRIVILEGED
from tilearena.progress import progress_bar
from tilearena.records import Device, Dtype, ProtocolName
from tilearena.report import failures, live_table, score_table
from tilearena.score import Score
from tilearena.spec import load_space, load_workload
from tilearena.submission import Scored
from tilearena.worker_hand import WorkerHand

REPLAYED = ("quick", "lowbit-random")
LIVE = "quick"
SUBMITTER = "tilearena bench"
#: Problems of each dtype whose kernels are also timed through pytest-benchmark.
TIMED_PROBLEMS = 12


@dataclass(frozen=True)
class Options:
    """What the two kinds of bench share."""

    data: Path
    out: Path
    predictors: Sequence[str]
    protocol: ProtocolName
    space: str
    seed: int
    time_limit_s: float
    memory_limit_bytes: int

    @property
    def fit(self) -> dict[str, Any]:
        """Options of every fit."""
        return {name: getattr(self, name) for name in ("seed", "time_limit_s", "memory_limit_bytes")}


@dataclass(frozen=True)
class Outcome:
    """A flat row for each score, of JSON's types, and whether nothing failed."""

    rows: list[dict[str, Any]]
    good: bool


def replay(options: Options, device: str, specs: Sequence[str], console: Console) -> Outcome:
    """Train and score all predictors on the recordings of ``device``."""
    space = load_space(options.space)
    scored: list[Scored] = []
    refused: list[TilearenaError] = []
    for workload in map(load_workload, specs):
        found = evaluate_each(
            options.data,
            [Subject(workload.name, space.name, d, options.protocol, device, "random") for d in workload.dtypes],
            options.predictors,
            done=lambda s: console.print(
                f"trained and scored {len(options.predictors)} predictors on {s.spec} {s.dtype}"
            ),
            workload=workload,
            space=space,
            refit=True,
            roots=[options.out],
            **options.fit,
        )
        scored += found[0]
        refused += found[1]
    header = Sources.open(options.data, scored[-1].score.key).test.header
    title = f"{header.device.product}, recorded {header.started_at[:10]}, driver {header.device.driver}; 5-fold"
    key = scored[0].score.key
    subjects = Subjects(
        Sources.open(options.data, key).test.table, key, timed_predictors(_ranked([s.score for s in scored]))
    )
    good = bench_timings.run(subjects, options.out / "benchmarks", "replay")
    paths = write_submissions(options.out, scored, SUBMITTER)
    console.print(score_table([s.score for s in scored], title))
    _print_failures(console, [*refused, *failures([s.score for s in scored])])
    console.print(f"{len(paths)} submissions are below {submission.folder(options.out)}; to browse them:")
    command = Path(sys.executable).with_name("tilearena")
    where = f"--root {options.data.absolute()} --submissions {options.out.absolute()}"
    console.print(f"  {command} board {where}", soft_wrap=True)
    good = good and not refused and not failures([s.score for s in scored])
    return Outcome([s.score.flat() for s in scored], good)


def _ranked(scores: Sequence[Score]) -> list[str]:
    """Predictors that ranked what the first score is of."""
    first = scores[0].key
    return [
        s.key.predictor for s in scores if s.status == "ok" and (s.key.spec, s.key.dtype) == (first.spec, first.dtype)
    ]


def _print_failures(console: Console, sentences: Iterable[object]) -> None:
    for sentence in sentences:
        # a plugin's message may hold brackets, which are no markup of ours
        console.print(f"failed: {sentence}", style="red", markup=False)


def write_submissions(out: Path, scored: Sequence[Scored], submitter: str) -> list[Path]:
    """One submission for each (device, spec, predictor, version) among ``scored``."""
    subjects: dict[tuple[str, str, str, str], list[Scored]] = {}
    for s in scored:
        key = s.score.key
        subjects.setdefault((key.device, key.spec, key.predictor, key.version), []).append(s)
    now = datetime.now(UTC)
    return [submission.write(out, group, submitter=submitter, created_at=now) for group in subjects.values()]


class Gpu:
    """Opens this machine's first GPU for one dtype at a time, in a worker process."""

    def __init__(self, device: Device, space: str, console: Console) -> None:
        self.device, self.space, self._console = device, load_space(space), console

    def __call__(self, session: Session) -> AbstractContextManager[Hand]:
        """See `tilearena.bench_live.Open`."""
        return closing(WorkerHand(opening(session), notice=self._say))

    def _say(self, sentence: str) -> None:
        self._console.print(sentence, markup=False)


def on_gpu(options: Options, gpu: Gpu, spec: str, console: Console) -> Outcome:
    """Measure ``spec`` here, fix the picks, time them afresh."""
    workload = load_workload(spec)
    results: list[LiveResult] = []
    kernels: list[Kernel] = []
    failed: list[Dtype] = []
    sessions: dict[Dtype, Session] = {}
    for dtype in workload.dtypes:
        protocol = gpu.space.screened(workload.protocol(options.protocol, dtype))
        session = Session(workload, gpu.space, workload.problems_for(dtype), protocol)
        session = bench_live.session_for(options.data, gpu.device.slug, session)
        try:
            with progress_bar(f"{session.workload.name} {dtype}") as progress:
                found = bench_live.bench_dtype(
                    options.data,
                    options.out,
                    session,
                    gpu,
                    options.predictors,
                    progress=progress,
                    **options.fit,
                )
        except MeasureError as error:  # the other dtypes may still be measured, or are already
            console.print(f"failed: {dtype}: {error}", style="red", markup=False)
            failed.append(dtype)
            continue
        results += found
        sessions[dtype] = session
        kernels += timed_kernels(session, found)
    if not results:
        return Outcome([], good=False)
    device = gpu.device
    title = f"{device.product}, driver {device.driver}, measured {datetime.now(UTC):%Y-%m-%d}, {options.protocol} L2"
    subjects = Subjects(
        results[0].table,
        results[0].first.key,
        timed_predictors(_ranked([r.first for r in results])),
        kernels,
        sessions,
        gpu,
    )
    good = bench_timings.run(subjects, options.out / "benchmarks", device.slug)
    vendors = {r.vendor for r in results if r.vendor}
    console.print(live_table(results, " or ".join(sorted(vendors)) or "the vendor", title))
    if slowed := sorted({r.first.key.dtype for r in results if r.slowed}):
        sentence = (
            f"the fresh run was slowed down by heat or its hardware ({', '.join(slowed)}): cool the card, run again"
        )
        console.print(sentence, style="red", markup=False)
    _print_failures(console, failures([r.first for r in results]))
    console.print(f"Recordings of this run are below {options.out}; two runs compare with:")
    console.print(f"  pytest-benchmark --storage file://{options.out / 'benchmarks'} compare", soft_wrap=True)
    return Outcome([r.flat() for r in results], good and not failed and not failures([r.first for r in results]))


def timed_kernels(session: Session, found: Sequence[LiveResult]) -> list[Kernel]:
    """The default and the pick of the best predictor, on some problems of one dtype."""
    best = max(
        (r for r in found if r.first.status == "ok" and r.prediction.name != PRIVILEGED),
        key=lambda r: r.fresh.figures["speedup_geomean"].value or 0.0,
        default=None,
    )
    problems = bench_live.in_order(session, found[0].table.problems)
    templates = session.space.templates(problems[0].dtype, problems[0].bit_op)
    default = session.space.default_index(problems[0].dtype)
    kernels = []
    for p in np.unique(np.linspace(0, len(problems) - 1, TIMED_PROBLEMS).astype(int)):
        picks = {default} | ({int(best.prediction.picks[p, 0])} - {-1} if best else set())
        kernels += [Kernel(problems[p], session.protocol, c, templates[c].label) for c in sorted(picks)]
    return kernels
