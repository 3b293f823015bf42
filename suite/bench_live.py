"""The bench on a GPU: measure, fix every predictor's picks, and only then time default and picks in a fresh run."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tilearena import dataset, predict
from tilearena.anchors import anchor_problems
from tilearena.dataset import Candidate, Recording
from tilearena.errors import RecordingError
from tilearena.hands import Hand
from tilearena.measure import Progress, Session, record
from tilearena.plugins import PRIVILEGED
from tilearena.predict import Prediction
from tilearena.records import Problem
from tilearena.root import find_path, path_for
from tilearena.score import Key, Score, score
from tilearena.sources import Source
from tilearena.spec import load_workload
from tilearena.splits import MODELS_TRAIN_SPEC, Fold, Split, groups_for, models_split, random_folds
from tilearena.table import Floats, Ints, Table
from tilearena.unscreened import by_hand, times_of
from tilearena.vendor import CUBLASLT

#: The device whose recordings train where this card has none.
TRANSFER_FROM = "nvidia-h200"
#: Problems that are measured and cross-validated on a card without a recording.
CROSS_VALIDATED = 300

Trained = Literal["recorded", "cross-validated", "transfer", "first pass"]
#: Opens the GPU for the problems of a session and for the anchors.
Open = Callable[[Session], AbstractContextManager[Hand]]


@dataclass(frozen=True)
class LiveResult:
    """One predictor on one dtype: judged by the first pass, and by the fresh run that only knew the picks.

    ``table`` has the times of the first pass. ``trained`` says on what: this card's recording, cross-validation of what
    was just measured, another card (transfer), or the first pass itself (the oracle). ``vendor`` is the candidate that
    the fresh run's figures over cuBLASLt are about, torch's where it has no other, None without one. ``slowed``: some
    batch of the fresh run was slowed down by heat or hardware every time that it was measured.
    """

    trained: Trained
    prediction: Prediction
    table: Table
    first: Score
    fresh: Score
    vendor: str | None
    slowed: bool

    def flat(self) -> dict[str, Any]:
        """The first pass as `Score.flat` gives it, ``trained``, and the speedups of the fresh run."""
        fresh, vendor = self.fresh.figures["speedup_geomean"], self.fresh.figures["speedup_vs_cublaslt_geomean"]
        return self.first.flat() | {
            "trained": self.trained,
            "fresh_speedup_geomean": fresh.value,
            "fresh_speedup_geomean_lo": fresh.lo,
            "fresh_speedup_geomean_hi": fresh.hi,
            "vendor": self.vendor,
            "vendor_speedup_geomean": vendor.value,
            "vendor_speedup_geomean_lo": vendor.lo,
            "vendor_speedup_geomean_hi": vendor.hi,
            "vendor_problems": self.fresh.n_vendor,
            "fresh_slowed": self.slowed,
        }


def session_for(data: Path, slug: str, session: Session) -> Session:
    """``session``, or a few hundred problems of `MODELS_TRAIN_SPEC` where this card has no recording to train on.

    The few hundred are a workload of their own, so that their recording is not taken for one of the whole.
    """
    if _recorded(data, slug, session) is not None:
        return session
    whole = load_workload(MODELS_TRAIN_SPEC)
    draws = [source.random.model_copy(update={"count": CROSS_VALIDATED}) for source in whole.problems if source.random]
    sources = tuple(Source(random=draw) for draw in draws)
    part = whole.model_copy(update={"name": f"{whole.name}-{CROSS_VALIDATED}", "problems": sources})
    return replace(session, workload=part, problems=part.problems_for(session.problems[0].dtype))


def bench_dtype(
    data: Path,
    out: Path,
    session: Session,
    open_hand: Open,
    predictors: Sequence[str],
    *,
    seed: int = 0,
    time_limit_s: float = predict.TIME_LIMIT_S,
    memory_limit_bytes: int = predict.MEMORY_LIMIT_BYTES,
    progress: Progress = lambda done, total, label: None,
) -> list[LiveResult]:
    """Everything for one dtype on this machine's GPU, see `session_for` for its problems.

    Args:
        data: root of the recordings that train.
        out: root below which the first pass is kept as a recording.
        session: what to measure.
        open_hand: opens the GPU.
        predictors: names; the privileged oracle is judged by the first pass that it was given.
        seed: of fits and splits.
        time_limit_s: of one predictor.
        memory_limit_bytes: of each of its processes.
        progress: callback.
    """
    fit = {
        "seed": seed,
        "time_limit_s": time_limit_s,
        "memory_limit_bytes": memory_limit_bytes,
        "roots": (data, out),
    }
    first_problem = session.problems[0]
    with open_hand(session) as hand:
        path = path_for(out, session.header([hand]))
        anchors = anchor_problems(first_problem.dtype, first_problem.bit_op)
        record(session, [hand], path, anchors=anchors, progress=progress)
        first = dataset.read(path)
        found = _predict(data, session, first, predictors, progress, fit)
        fresh = fresh_run(hand, session, first, [prediction.picks for _, prediction in found], progress)
    return [_judge(first, fresh, trained, prediction) for trained, prediction in found]


@dataclass(frozen=True)
class FreshRun:
    """Median times [P, T] of the templates that took part, inf for what did not run, and the vendor's [P].

    ``vendor`` is its candidate, None without one; ``slowed`` as in `LiveResult`.
    """

    table: Table
    vendor: str | None
    vendor_ns: Floats
    slowed: bool


def vendor_index(candidates: Sequence[Candidate]) -> int | None:
    """Which of ``candidates`` is compared with: cuBLASLt called directly, else through torch; None without either."""
    vendors = [i for i, c in enumerate(candidates) if c.origin == "vendor"]
    return min(vendors, key=lambda i: candidates[i].id != CUBLASLT, default=None)


def fresh_run(hand: Hand, session: Session, first: Recording, picks: Sequence[Ints], progress: Progress) -> FreshRun:
    """Time the default, the first of ``picks`` [P, R], and the vendor's kernel if there is one.

    All take turns, and all take as many samples: nothing is screened.
    """
    problems = in_order(session, first.table.problems)
    vendors = {i for i, c in enumerate(hand.candidates) if c.origin == "vendor"}
    firsts = [{first.header.default, *(int(choice[p, 0]) for choice in picks)} - {-1} for p in range(len(problems))]
    which = [chosen | vendors for chosen in firsts]
    found = times_of(
        by_hand(hand), session.protocol, problems, which, len(hand.candidates), progress=progress, label="fresh run"
    )
    vendor = vendor_index(hand.candidates)
    templates = [i for i, c in enumerate(hand.candidates) if c.origin == "template"]
    table = Table(first.task, first.table.problems, found.time_ns[:, templates])
    if vendor is None:
        return FreshRun(table, None, np.full(len(problems), np.inf), found.slowed)
    return FreshRun(table, hand.candidates[vendor].id, found.time_ns[:, vendor], found.slowed)


def in_order(session: Session, shapes: Ints) -> tuple[Problem, ...]:
    """The problems of ``session`` in the order of ``shapes`` [P, 3], that of a recording.

    Raises:
        RecordingError: the recording has a problem that the session has not.
    """
    problems = {(p.m, p.n, p.k): p for p in session.problems}
    for m, n, k in shapes.tolist():
        if (m, n, k) not in problems:
            raise RecordingError(
                f"{m} x {n} x {k} was recorded as {session.workload.name}, which lacks it; record again"
            )
    return tuple(problems[m, n, k] for m, n, k in shapes.tolist())


def _recorded(data: Path, slug: str, session: Session) -> Table | None:
    problem = session.problems[0]
    path = find_path(
        data, slug, MODELS_TRAIN_SPEC, session.space.name, problem.dtype, session.protocol.name, problem.op
    )
    return dataset.read(path).table if path.is_file() else None


def _predict(
    data: Path,
    session: Session,
    first: Recording,
    predictors: Sequence[str],
    progress: Progress,
    fit: dict[str, Any],
) -> list[tuple[Trained, Prediction]]:
    """What each of ``predictors`` picks; ``fit`` are the options of every fit."""
    table = first.table
    # not `plan`: nothing that is measured here is locked
    folds = [Fold(table.take(train), test) for train, test in random_folds(table.problems, seed=fit["seed"])]
    home = _recorded(data, first.header.device.slug, session)
    away = None if home is not None else _recorded(data, TRANSFER_FROM, session)
    found: list[tuple[Trained, Prediction]] = []
    for done, name in enumerate(predictors):
        progress(done, len(predictors), name)
        if home is None or name == PRIVILEGED:
            prediction = predict.cross_fit(name, folds, table, **fit)
            found.append(("first pass" if name == PRIVILEGED else "cross-validated", prediction))
        train = home if home is not None else away
        if train is not None and name != PRIVILEGED:
            rows, _ = models_split(train, table)
            prediction = predict.fit_predict(name, train.take(rows), table.problems, table.task, **fit)
            found.append(("recorded" if home is not None else "transfer", prediction))
    if not found:
        raise RecordingError("no predictor was asked for")
    return found


def _judge(first: Recording, fresh: FreshRun, trained: Trained, prediction: Prediction) -> LiveResult:
    header = first.header
    split: Split = "random" if trained in ("cross-validated", "first pass") else "models"
    key = Key(
        op=header.op,
        spec=header.spec,
        space=header.space,
        dtype=header.dtype,
        protocol=header.protocol.name,
        device=header.device.slug,
        split=split,
        predictor=prediction.name,
        version=prediction.version,
        train_spec=header.spec if split == "random" else MODELS_TRAIN_SPEC,
        support=header.support,
    )

    def judged(table: Table, vendor_ns: Floats | None = None) -> Score:
        return score(
            table,
            prediction.picks,
            key=key,
            groups=groups_for(header.spec, table.problems),
            noise_floor=header.noise_floor,
            predict_us=prediction.predict_us,
            constant_picks=prediction.constant_picks,
            vendor_ns=vendor_ns,
            reason=prediction.reason,
        )

    scores = judged(first.table), judged(fresh.table, fresh.vendor_ns)
    return LiveResult(trained, prediction, first.table, *scores, fresh.vendor, fresh.slowed)
