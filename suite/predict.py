"""Problems + templates -> picks: each fold in a process and a folder of its own, so that no plugin can harm the rest.

What one fold trains on, another tests, so nothing is carried over: no plugin remembers a time that it is judged by,
nor read one in the recordings (`tilearena.out_of_reach`). A predictor that raises, answers nonsense, crashes, or takes
too much time or memory becomes a failed ``Prediction`` with a reason; it is never dropped.
"""

import json
import re
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from tilearena import out_of_reach
from tilearena.child import run_child, scratch_folder
from tilearena.errors import PredictorError
from tilearena.plugins import PRIVILEGED, find
from tilearena.predict_child import Answer, Job, Limits, checked, write_job
from tilearena.records import SLUG
from tilearena.score import N_PICKS, constant_pick, rank
from tilearena.table import Floats, Ints, Table, Task

UNKNOWN_VERSION = "unknown"
#: Costs of 200,000 problems and 100 templates are 160 MB.
MAX_ANSWER_BYTES = 1 << 28
#: JAX with the training part of 10,000 problems takes a tenth of it.
MEMORY_LIMIT_BYTES = 4 << 30
#: For all folds of a dtype; five fits to 800 problems of 244 templates take some minutes on one core.
TIME_LIMIT_S = 900.0


class Fold(Protocol):
    """What ``tilearena.splits`` yields: a training table, and the rows of the tested table to rank."""

    @property
    def train(self) -> Table:
        """Measured problems to learn from."""

    @property
    def test_rows(self) -> npt.NDArray[np.integer[Any]]:
        """Rows of the tested table."""


@dataclass(frozen=True)
class Prediction:
    """What a predictor chose.

    ``picks`` is int64 [P, min(8, T)], best first, -1 where there is none; ``constant_picks`` is int64 [P], the best
    single template of the training part that served each problem; ``predict_us`` is the time per problem, the median
    over folds. ``isolated``: the recordings were out of its reach.
    """

    name: str
    version: str
    status: Literal["ok", "failed", "declined"]
    reason: str
    picks: Ints
    constant_picks: Ints
    predict_us: float | None
    isolated: bool


def cross_fit(
    name: str,
    folds: Sequence[Fold],
    table: Table,
    *,
    seed: int = 0,
    time_limit_s: float = TIME_LIMIT_S,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    roots: Sequence[Path] = (),
) -> Prediction:
    """Fit on each fold's training part and rank its test rows; rows of ``table`` in no fold keep -1.

    The first fold that fails or is declined fails the whole; ``time_limit_s`` is for all folds together,
    ``memory_limit_bytes`` for each process. What is recorded below ``roots`` and in the checkout is kept out of reach.

    Raises:
        PredictorError: no predictor of that name is installed.
    """
    privileged = _is_privileged(name)
    rows = [np.asarray(fold.test_rows) for fold in folds]
    jobs = [
        Job(name, seed, privileged, table if privileged else fold.train, table.problems[test], table.task)
        for fold, test in zip(folds, rows, strict=True)
    ]
    constant_picks = np.full(len(table.problems), -1, dtype=np.int64)
    for fold, test in zip(folds, rows, strict=True):
        constant_picks[test] = constant_pick(fold.train)
    return _predict(jobs, rows, constant_picks, time_limit_s, _limits(memory_limit_bytes, roots))


def fit_predict(
    name: str,
    train: Table,
    problems: Ints,
    task: Task,
    *,
    seed: int = 0,
    time_limit_s: float = TIME_LIMIT_S,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    roots: Sequence[Path] = (),
) -> Prediction:
    """Fit on one table and rank other problems (int64 [P, 3]), perhaps of another device; the rest as in `cross_fit`.

    Raises:
        PredictorError: no predictor of that name is installed, or the two tasks list different templates.
    """
    if [t.id for t in train.task.templates] != [t.id for t in task.templates]:
        raise PredictorError(
            f"predictor {name!r} cannot be moved from space {train.task.space!r} ({train.task.dtype}) "
            f"to {task.space!r} ({task.dtype}): the templates differ"
        )
    job = Job(name, seed, _is_privileged(name), train, problems, task)
    constant_picks = np.full(len(problems), constant_pick(train), dtype=np.int64)
    return _predict([job], [np.arange(len(problems))], constant_picks, time_limit_s, _limits(memory_limit_bytes, roots))


def _limits(memory_bytes: int, roots: Sequence[Path]) -> Limits:
    return Limits(memory_bytes=memory_bytes, out_of_reach=out_of_reach.places(*roots))


def _is_privileged(name: str) -> bool:
    """Whether it may be given the times of the problems that it ranks."""
    return find(name).name == PRIVILEGED


def _predict(
    jobs: Sequence[Job],
    rows: Sequence[npt.NDArray[np.integer[Any]]],
    constant_picks: Ints,
    time_limit_s: float,
    limits: Limits,
) -> Prediction:
    """One job after the other, since two at a time would disturb ``predict_us``."""
    isolated = out_of_reach.version() > 0
    name, version, times_us = jobs[0].name, UNKNOWN_VERSION, []
    picks = np.full((len(constant_picks), min(N_PICKS, len(jobs[0].task.templates))), -1, dtype=np.int64)
    deadline_s = time.monotonic() + time_limit_s
    for job, test in zip(jobs, rows, strict=True):
        own_version, answer, costs = _ask(job, deadline_s, time_limit_s, limits)
        version = own_version if version == UNKNOWN_VERSION else version
        if costs is None:
            picks[:] = -1
            return Prediction(name, version, answer.status, answer.reason, picks, constant_picks, None, isolated)
        times_us.append(answer.predict_us)
        finite = np.isfinite(costs).all(axis=1)
        picks[test[finite]] = rank(costs[finite])[:, :N_PICKS]
    return Prediction(name, version, "ok", "", picks, constant_picks, float(np.median(times_us)), isolated)


def _ask(job: Job, deadline_s: float, time_limit_s: float, limits: Limits) -> tuple[str, Answer, Floats | None]:
    """Version, answer, and the costs [P, T] of an answer that is ``ok``; the folder is gone afterwards."""
    with scratch_folder() as folder:
        write_job(folder, job, limits)
        problem = run_child(
            "tilearena.predict_child",
            folder,
            job.name,
            deadline_s=deadline_s,
            time_limit_s=time_limit_s,
            limits=limits,
        )
        version = _read_version(folder)
        if problem is not None:
            return version, Answer(status="failed", reason=problem), None
        return version, *_read_answer(folder, job)


def _read_version(folder: Path) -> str:
    try:
        version = json.loads(_small_file(folder / "version.json").read_text())
    except (OSError, ValueError):
        return UNKNOWN_VERSION
    return version if isinstance(version, str) and re.fullmatch(SLUG, version) else UNKNOWN_VERSION


def _small_file(path: Path) -> Path:
    """``path``, if it is what the child writes: a pipe would never end, and a link may lead anywhere."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_ANSWER_BYTES:
        raise ValueError(f"{path.name} is no file of at most {MAX_ANSWER_BYTES} bytes")
    return path


def _read_answer(folder: Path, job: Job) -> tuple[Answer, Floats | None]:
    """The child's answer, checked again: the plugin ran in the process that wrote it."""
    try:
        answer = Answer.model_validate_json(_small_file(folder / "answer.json").read_text())
        if answer.status != "ok":
            return answer, None
        with np.load(_small_file(folder / "costs.npz"), allow_pickle=False) as stored:
            return answer, checked(job.name, stored["costs"], (len(job.problems), len(job.task.templates)))
    except (OSError, TypeError, ValueError, KeyError, MemoryError, zipfile.BadZipFile, PredictorError) as error:
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        reason = f"predictor {job.name!r} left an unreadable answer ({first_line})"
        return Answer(status="failed", reason=reason), None
