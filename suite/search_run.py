"""Recordings -> a report: searches and predictors on the same problems, by recorded times or on this machine's GPU."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tilearena import live, search, search_curve, search_report
from tilearena.bench_live import in_order
from tilearena.errors import MeasureError, NoGpuError
from tilearena.evaluate import Subject, evaluate
from tilearena.judge import Sources
from tilearena.measure import Session, opening
from tilearena.measured_k import FirstSamples, measured_k
from tilearena.predict import TIME_LIMIT_S, Fold
from tilearena.progress import progress_bar
from tilearena.records import Template
from tilearena.search_curve import CONSTANT, RANDOM, TPE, Course
from tilearena.search_report import Report
from tilearena.space import Space
from tilearena.spec import Workload, load_space, load_workload
from tilearena.splits import groups_for
from tilearena.submission import Scored
from tilearena.table import Ints
from tilearena.unscreened import Measure, by_hand, by_runner
from tilearena.worker_hand import WorkerHand


@dataclass(frozen=True)
class Search:
    """What is compared on what: ``strategies`` by name, and predictors with their out-of-fold picks.

    ``workload`` and ``space`` are what the subject's names mean; what ships under them unless given.
    """

    subject: Subject
    sources: Sources
    folds: Sequence[Fold]
    strategies: tuple[str, ...]
    scored: list[Scored]
    sample: int | None
    seed: int
    workload: Workload | None = None
    space: Space | None = None

    @property
    def templates(self) -> tuple[Template, ...]:
        """Of the space."""
        return self.sources.test.table.task.templates

    def course(self, *, by_repeat: bool = False) -> Course:
        """See `tilearena.search_curve.course`."""
        groups = groups_for(self.subject.spec, self.sources.test.table.problems)
        return search_curve.course(self.sources, self.folds, groups, by_repeat=by_repeat, sample=self.sample)

    def picks(self, depth: int) -> dict[str, Ints]:
        """Templates [problems of the recording, ``depth`` or fewer] of all that ranks them before it measures."""
        found = {}
        if CONSTANT in self.strategies:
            found[CONSTANT] = search.constant_picks(self.folds, len(self.sources.test.table.problems), depth)
        return found | {s.score.key.predictor: s.picks[:, :depth] for s in self.scored if s.score.status == "ok"}

    def head(self, course: Course) -> dict[str, Any]:
        """What the rows of a report are about, of JSON's types."""
        names = ("spec", "space", "dtype", "protocol", "device", "split")
        counts = {"n_problems": len(course.rows), "n_of": course.n_of, "n_templates": len(self.templates)}
        return {name: getattr(self.subject, name) for name in names} | counts | {"seed": self.seed}


def prepare(
    root: Path,
    subject: Subject,
    strategies: tuple[str, ...],
    predictors: tuple[str, ...],
    *,
    workload: Workload | None = None,
    space: Space | None = None,
    sample: int | None = None,
    refit: bool = False,
    seed: int = 0,
    time_limit_s: float = TIME_LIMIT_S,
) -> Search:
    """Read the recordings, and let ``predictors`` rank what they were not trained on; stored picks serve if they fit.

    ``workload`` and ``space`` as of `Search`, the options as of `tilearena.evaluate.evaluate`.

    Raises:
        RecordingError, SpecError: see `tilearena.evaluate.evaluate`.
    """
    key = subject.key("any", "any")
    sources = Sources.open(root, key)
    sources.require(workload, space)
    scored: list[Scored] = []
    if predictors:
        with progress_bar(subject.spec) as progress:
            scored = evaluate(
                root,
                subject,
                predictors,
                workload=workload,
                space=space,
                refit=refit,
                seed=seed,
                time_limit_s=time_limit_s,
                progress=progress,
            )
    folds = sources.folds(key, seed)
    return Search(subject, sources, folds, strategies, scored, sample, seed, workload, space)


def on_recording(asked: Search, *, trials: int, runs: int, by_repeat: bool = False) -> Report:
    """Curves of all that was asked for; Optuna's over ``runs`` studies of up to ``trials`` measurements.

    Raises:
        RecordingError, SpecError: see `tilearena.search_curve.course`. PredictorError: Optuna is not installed.
    """
    course, ks, curves = asked.course(by_repeat=by_repeat), search.counts(len(asked.templates)), []
    notes = []
    if RANDOM in asked.strategies:
        curves.append(search_curve.of_random(course, ks))
        notes.append("random: the expectation over all draws without replacement")
    if TPE in asked.strategies:
        few = search.counts(len(asked.templates), trials)
        with progress_bar(asked.subject.spec) as progress:
            curves.append(search_curve.of_tpe(course, few, runs=runs, seed=asked.seed, progress=progress))
        studies = f"the mean of {runs} studies" if runs > 1 else "one study"
        notes.append(f"tpe: Optuna's TPESampler, {studies} of {few[-1]} measurements for each problem")
    for name, picks in asked.picks(len(asked.templates)).items():
        curves.append(search_curve.of_picks(name, course, picks[course.rows], ks))
    head = asked.head(course) | {"reward": "repeat" if by_repeat else "recording", "runs": runs, "trials": trials}
    return search_report.of_curves(head, search_curve.rows(curves, course.groups, asked.seed), notes)


def measured(
    asked: Search, k: int, *, use_recordings: bool = False, notice: Callable[[str], None] = lambda text: None
) -> Report:
    """Each one's first ``k`` picks measured on this machine's GPU, or given back by the recording; the fastest is kept.

    ``notice`` is called with a sentence about waiting, building and restarts.

    Raises:
        NoGpuError, MeasureError: no GPU, another one than the recording's, or other kernels.
        RecordingError, SpecError: see `tilearena.search_curve.course`.
    """
    course = asked.course()
    session = _session(asked, course)
    rows = []
    with _replayed(asked) if use_recordings else _on_gpu(asked, session, notice) as (measure, rounds):
        for name, picks in asked.picks(k).items():
            protocol = session.protocol.model_copy(update={"rounds": rounds})
            with progress_bar(f"{asked.subject.spec} {name}") as progress:
                found = measured_k(
                    measure,
                    protocol,
                    session.problems,
                    picks[course.rows],
                    course.table,
                    fresh=not use_recordings,
                    progress=progress,
                )
            rows.append({"predictor": name} | found.flat(course.groups, asked.seed))
    if use_recordings:  # a replay takes no time of a GPU
        rows = [row | {"seconds_per_problem": None} for row in rows]
    head = asked.head(course) | {"k": k, "samples": rounds, "replayed": use_recordings}
    notes = [f"{rounds} samples of each pick choose; first pick and best of k are judged by the recorded medians"]
    if use_recordings:
        notes.append("replayed: the samples are those of the recorded screen")
    if any(row["slowed"] for row in rows):
        notes.append("the GPU was slowed down by heat or its hardware: cool the card, run again")
    return search_report.of_measured(head, rows, notes)


def _session(asked: Search, course: Course) -> Session:
    """The problems of ``course``, in its order."""
    subject, workload = asked.subject, asked.workload or load_workload(asked.subject.spec)
    protocol = workload.protocol(subject.protocol, subject.dtype)
    whole = Session(workload, asked.space or load_space(subject.space), workload.problems_for(subject.dtype), protocol)
    return replace(whole, problems=in_order(whole, course.table.problems))


@contextmanager
def _replayed(asked: Search) -> Iterator[tuple[Measure, int]]:
    runner = FirstSamples(asked.sources.test)
    yield by_runner(runner), runner.rounds


@contextmanager
def _on_gpu(asked: Search, session: Session, notice: Callable[[str], None]) -> Iterator[tuple[Measure, int]]:
    recorded = asked.subject.device
    try:
        device = live.pick_device()
    except NoGpuError as error:
        raise NoGpuError(f"{error}; with --replay the samples are the recorded ones") from None
    instance = recorded != device.slug
    if instance and live.device_instance(device).slug != recorded:
        raise MeasureError(
            f"this machine's GPU is {device.slug}, and picks are made for {recorded}; give the --device that is here"
        )
    with WorkerHand(opening(session, torch=False, instance=instance), notice=notice) as hand:
        ids = [candidate.id for candidate in hand.candidates if candidate.origin == "template"]
        if ids != [template.id for template in asked.templates]:
            spec, space = session.workload.name, session.space.name
            raise MeasureError(f"space {space!r} has other templates than when {spec} was recorded; measure it again")
        yield by_hand(hand), session.protocol.rounds
