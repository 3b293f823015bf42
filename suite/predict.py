"""Problems + templates -> picks: runs any predictor in a process of its own, so that no plugin can harm the rest.

A predictor that raises, answers nonsense, crashes or takes too long becomes a failed ``Prediction`` with a reason; it
is never dropped.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from tilearena.dataset import Floats, Ints, Table, Task
from tilearena.errors import PredictorError
from tilearena.plugins import discover
from tilearena.predict_child import Answer, Job, Part, checked, write_job
from tilearena.score import N_PICKS, constant_pick, rank

#: Only this entry point may be given the times of the problems that it ranks.
PRIVILEGED = ("tilearena.baselines", "tilearena.baselines.oracle")
#: One thread, no GPU: ``predict_us`` is a figure of one core, and the GPU may be busy measuring.
CHILD_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "NPROC": "1",
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
}
UNKNOWN_VERSION = "unknown"


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
    single template of the training part that served each problem; ``predict_us`` is the time per problem.
    """

    name: str
    version: str
    status: Literal["ok", "failed", "declined"]
    reason: str
    picks: Ints
    constant_picks: Ints
    predict_us: float | None


def cross_fit(
    name: str, folds: Sequence[Fold], table: Table, *, seed: int = 0, time_limit_s: float = 300.0
) -> Prediction:
    """Fit on each fold's training part and rank its test rows; rows of ``table`` in no fold keep -1.

    Raises:
        PredictorError: no predictor of that name is installed.
    """
    privileged = _is_privileged(name)
    rows = [np.asarray(fold.test_rows) for fold in folds]
    parts = tuple(
        Part(table if privileged else fold.train, table.problems[test], table.task)
        for fold, test in zip(folds, rows, strict=True)
    )
    constant_picks = np.full(len(table.problems), -1, dtype=np.int64)
    for fold, test in zip(folds, rows, strict=True):
        constant_picks[test] = constant_pick(fold.train)
    return _predict(Job(name, seed, privileged, parts), rows, constant_picks, len(table.task.templates), time_limit_s)


def fit_predict(
    name: str, train: Table, problems: Ints, task: Task, *, seed: int = 0, time_limit_s: float = 300.0
) -> Prediction:
    """Fit on one table and rank other problems (int64 [P, 3]), perhaps of another device.

    Raises:
        PredictorError: no predictor of that name is installed, or the two tasks list different templates.
    """
    if [t.id for t in train.task.templates] != [t.id for t in task.templates]:
        raise PredictorError(
            f"predictor {name!r} cannot be moved from space {train.task.space!r} ({train.task.dtype}) "
            f"to {task.space!r} ({task.dtype}): the templates differ"
        )
    job = Job(name, seed, _is_privileged(name), (Part(train, problems, task),))
    constant_picks = np.full(len(problems), constant_pick(train), dtype=np.int64)
    return _predict(job, [np.arange(len(problems))], constant_picks, len(task.templates), time_limit_s)


def _is_privileged(name: str) -> bool:
    points = discover()
    if name not in points:
        raise PredictorError(f"no predictor named {name!r}; installed: {', '.join(sorted(points))}")
    return (points[name].group, points[name].module) == PRIVILEGED


def _predict(
    job: Job,
    rows: Sequence[npt.NDArray[np.integer[Any]]],
    constant_picks: Ints,
    n_templates: int,
    time_limit_s: float,
) -> Prediction:
    with tempfile.TemporaryDirectory(prefix="tilearena-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        write_job(folder, job)
        problem = _run_child(folder, job.name, time_limit_s)
        version = _read_version(folder)
        answer, costs = _read_answer(folder, job) if problem is None else (Answer(status="failed", reason=problem), [])
    picks = np.full((len(constant_picks), min(N_PICKS, n_templates)), -1, dtype=np.int64)
    for test, cost in zip(rows, costs, strict=False):
        finite = np.isfinite(cost).all(axis=1)
        picks[test[finite]] = rank(cost[finite])[:, :N_PICKS]
    return Prediction(job.name, version, answer.status, answer.reason, picks, constant_picks, answer.predict_us)


def _run_child(folder: Path, name: str, time_limit_s: float) -> str | None:
    """Run the child in a session of its own; returns a sentence if it ended badly."""
    environment = {k: v for k, v in os.environ.items() if k != "TILEARENA_ROOT"} | CHILD_ENVIRONMENT
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "tilearena.predict_child", str(folder)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        code = child.wait(time_limit_s)
    except subprocess.TimeoutExpired:
        return f"predictor {name!r} took longer than {time_limit_s:g} s and was stopped"
    finally:
        # whatever the plugin started ends with it, also on Ctrl-C
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    if code < 0:
        return f"predictor {name!r} was killed by {signal.Signals(-code).name}"
    if not (folder / "answer.json").is_file():
        return f"predictor {name!r} ended its process without an answer (exit code {code})"
    return None


def _read_version(folder: Path) -> str:
    try:
        version = json.loads((folder / "version.json").read_text())
    except (OSError, ValueError):
        return UNKNOWN_VERSION
    return version if isinstance(version, str) else UNKNOWN_VERSION


def _read_answer(folder: Path, job: Job) -> tuple[Answer, list[Floats]]:
    """The child's answer, checked again: the plugin ran in the process that wrote it."""
    try:
        answer = Answer.model_validate_json((folder / "answer.json").read_text())
        if answer.status != "ok":
            return answer, []
        with np.load(folder / "costs.npz", allow_pickle=False) as stored:
            costs = [
                checked(job.name, stored[f"costs{i}"], (len(part.problems), len(part.task.templates)))
                for i, part in enumerate(job.parts)
            ]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, PredictorError) as error:
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        return Answer(status="failed", reason=f"predictor {job.name!r} left an unreadable answer ({first_line})"), []
    return answer, costs
