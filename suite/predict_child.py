"""The other side of ``tilearena.predict``: one process that runs one predictor and writes down what it answered.

Parent and child talk through files of a private folder (JSON and npz, no pickle), so that nothing that a plugin prints
can disturb them. The child gets training tables and the problems to rank, never the times of those problems.
"""

import json
import os
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from tilearena.dataset import Floats, Ints, Table, Task
from tilearena.errors import PredictorError, TilearenaError
from tilearena.plugins import Declined, load

#: A batch is ranked once to warm up, then timed this often, or until this much time is spent.
TIMED_CALLS, TIMED_S = 5, 2.0
#: Longest message of a plugin's own exception that is passed on.
MESSAGE_LENGTH = 200


@dataclass(frozen=True)
class Part:
    """Fit on ``train``, then rank the templates of ``task`` on ``problems`` (int64 [P, 3])."""

    train: Table
    problems: Ints
    task: Task


@dataclass(frozen=True)
class Job:
    """One predictor, and one fresh instance of it for each part."""

    name: str
    seed: int
    privileged: bool
    parts: tuple[Part, ...]


class _Header(BaseModel):
    """The part of a job that is not arrays."""

    name: str
    seed: int
    privileged: bool
    tasks: list[tuple[Task, Task]]


class Answer(BaseModel):
    """How a job ended; the costs lie beside it."""

    status: Literal["ok", "failed", "declined"]
    reason: str = ""
    predict_us: float | None = None


def write_job(folder: Path, job: Job) -> None:
    """Store a job as ``job.json`` and ``job.npz``."""
    tasks = [(part.train.task, part.task) for part in job.parts]
    header = _Header(name=job.name, seed=job.seed, privileged=job.privileged, tasks=tasks)
    (folder / "job.json").write_text(header.model_dump_json())
    arrays: dict[str, npt.NDArray[Any]] = {}
    for i, part in enumerate(job.parts):
        arrays |= {f"train{i}": part.train.problems, f"time_ns{i}": part.train.time_ns, f"problems{i}": part.problems}
    np.savez(folder / "job.npz", **arrays)  # type: ignore[arg-type]  # numpy 2 has a keyword of its own there


def read_job(folder: Path) -> Job:
    """Load a job; its arrays are read-only, so that a plugin cannot change what it is judged by."""
    header = _Header.model_validate_json((folder / "job.json").read_text())
    with np.load(folder / "job.npz", allow_pickle=False) as stored:
        arrays = dict(stored.items())
    for array in arrays.values():
        array.flags.writeable = False
    parts = tuple(
        Part(Table(train_task, arrays[f"train{i}"], arrays[f"time_ns{i}"]), arrays[f"problems{i}"], task)
        for i, (train_task, task) in enumerate(header.tasks)
    )
    return Job(header.name, header.seed, header.privileged, parts)


def checked(name: str, answer: object, shape: tuple[int, int]) -> Floats:
    """What a predictor answered, as float64 [P, T].

    Raises:
        PredictorError: not real numbers, or another shape; non-finite values pass, they are judged row by row.
    """
    try:
        costs = np.asarray(answer)
    except (TypeError, ValueError):
        raise PredictorError(f"predictor {name!r} answered {type(answer).__name__}, not an array of costs") from None
    if costs.shape != shape:
        raise PredictorError(f"predictor {name!r} answered costs of shape {costs.shape}, expected {shape}")
    if costs.dtype.kind not in "fiu":
        raise PredictorError(f"predictor {name!r} answered costs of type {costs.dtype}, expected float64")
    return costs.astype(np.float64, copy=False)


def run_part(job: Job, part: Part) -> tuple[Floats, float]:
    """Costs [P, T] of one part, and the median time of one call of ``costs`` in microseconds."""
    predictor = load(job.name)
    if getattr(predictor, "privileged", False) and not job.privileged:
        raise PredictorError(f"predictor {job.name!r} asks for the measured times, which only the oracle gets")
    predictor.fit(part.train, job.seed)

    shape = (len(part.problems), len(part.task.templates))

    def ask() -> tuple[Floats, float]:
        start = time.perf_counter_ns()
        # the check is in the time since it waits for arrays that are computed asynchronously (JAX)
        costs = checked(job.name, predictor.costs(part.problems, part.task), shape)
        return costs, (time.perf_counter_ns() - start) / 1e3

    costs = ask()[0].copy()  # a plugin may reuse its buffer
    times_us = [ask()[1]]
    while len(times_us) < TIMED_CALLS and sum(times_us) < TIMED_S * 1e6:
        times_us.append(ask()[1])
    return costs, float(np.median(times_us))


def run(job: Job, folder: Path) -> Answer:
    """Run all parts; costs go to ``costs.npz``, every failure becomes a sentence."""
    try:
        (folder / "version.json").write_text(json.dumps(_identify(job.name)))
        results = [run_part(job, part) for part in job.parts]
    except Declined as declined:
        return Answer(status="declined", reason=f"{job.name!r} declined: {_one_line(declined)}")
    except TilearenaError as error:
        return Answer(status="failed", reason=str(error))
    except BaseException as error:  # a plugin may even raise SystemExit
        return Answer(status="failed", reason=f"predictor {job.name!r} raised {_describe(error)}")
    np.savez(folder / "costs.npz", **{f"costs{i}": costs for i, (costs, _) in enumerate(results)})  # type: ignore[arg-type]
    n_problems = sum(len(part.problems) for part in job.parts)
    return Answer(status="ok", predict_us=sum(us for _, us in results) / max(n_problems, 1))


def _identify(name: str) -> str:
    """The predictor's version, once it is known to be what the entry point promises."""
    predictor = load(name)
    if predictor.name != name:
        raise PredictorError(f"predictor {name!r} calls itself {predictor.name!r}; entry point and name must agree")
    if not isinstance(predictor.version, str) or not predictor.version:
        raise PredictorError(f"predictor {name!r} has version {predictor.version!r}; it must be a non-empty string")
    return predictor.version


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:MESSAGE_LENGTH]


def _describe(error: BaseException) -> str:
    """``ValueError in fit (mine.py, line 12): message``, the place being the innermost frame."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {frames[-1].name} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    message = _one_line(error)
    return f"{type(error).__name__}{place}" + (f": {message}" if message else "")


def main(folder: Path) -> None:
    """Run the job of a folder and leave at once: threads that a plugin left behind must not keep the process alive."""
    answer = run(read_job(folder), folder)
    scratch = folder / "answer.scratch"
    scratch.write_text(answer.model_dump_json())
    scratch.replace(folder / "answer.json")
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
