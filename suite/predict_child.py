"""The other side of ``tilearena.predict``: one process that serves one fold and writes down what was answered.

Parent and child talk through files of a private folder (JSON and npz, no pickle), so that nothing that a plugin prints
can disturb them. The child gets the training part and the problems to rank, never the times of those problems. Before
any code of a plugin runs, the process gives up the reach of the recordings, writing outside its folder, and memory
beyond its limit.
"""

import json
import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import numpy as np
from pydantic import AfterValidator, BaseModel, Field, FiniteFloat

from tilearena.errors import PredictorError, TilearenaError, one_line, said
from tilearena.one_group import stay_in_group
from tilearena.out_of_reach import deny
from tilearena.plugins import Declined, load
from tilearena.table import Floats, Ints, Table, Task

#: A batch is ranked once to warm up, then timed this often, or until this much time is spent.
TIMED_CALLS, TIMED_S = 5, 2.0
#: Longest message of a plugin's own exception that is passed on.
MESSAGE_LENGTH = 200
#: Longest reason of a failure.
REASON_LENGTH = 500
#: What is said of an error that the limits may have caused.
RESTRICTED = "a predictor reads no recording and writes in its own folder alone: docs/fair-play.md"


@dataclass(frozen=True)
class Job:
    """One fit: learn from ``train``, then rank the templates of ``task`` on ``problems`` (int64 [P, 3])."""

    name: str
    seed: int
    privileged: bool
    train: Table
    problems: Ints
    task: Task


class Limits(BaseModel):
    """What a plugin may take: memory of its own for each process, and all files but those below ``out_of_reach``."""

    memory_bytes: int
    out_of_reach: tuple[Path, ...] = ()

    @property
    def memory(self) -> str:
        """The limit of memory in words."""
        return f"its limit of {self.memory_bytes / (1 << 30):g} GiB"


class _Header(BaseModel):
    """The part of a job that is not arrays; ``train_tasks`` are of the training table and of its others."""

    name: str
    seed: int
    privileged: bool
    train_tasks: tuple[Task, ...]
    task: Task
    limits: Limits


class Answer(BaseModel):
    """How a job ended; the costs lie beside it. ``predict_us`` is the time per problem, 0 unless ``ok``."""

    status: Literal["ok", "failed", "declined"]
    reason: Annotated[str, AfterValidator(lambda reason: one_line(reason)[:REASON_LENGTH])] = ""
    predict_us: Annotated[FiniteFloat, Field(ge=0)] = 0.0


def write_job(folder: Path, job: Job, limits: Limits) -> None:
    """Store a job as ``job.json`` and ``job.npz``."""
    tables = job.train.tables
    header = _Header(
        name=job.name,
        seed=job.seed,
        privileged=job.privileged,
        train_tasks=tuple(table.task for table in tables),
        task=job.task,
        limits=limits,
    )
    (folder / "job.json").write_text(header.model_dump_json())
    arrays: dict[str, Any] = {"problems": job.problems}
    for i, table in enumerate(tables):
        arrays |= {f"train_{i}": table.problems, f"time_ns_{i}": table.time_ns}
    np.savez(folder / "job.npz", **arrays)


def take_job(folder: Path) -> tuple[Job, Limits]:
    """Load a job and remove its files; its arrays are read-only, so that a plugin cannot change them."""
    header = _Header.model_validate_json((folder / "job.json").read_text())
    with np.load(folder / "job.npz", allow_pickle=False) as stored:
        arrays = dict(stored.items())
    for array in arrays.values():
        array.flags.writeable = False
    for name in ("job.json", "job.npz"):
        (folder / name).unlink()
    tables = [Table(t, arrays[f"train_{i}"], arrays[f"time_ns_{i}"]) for i, t in enumerate(header.train_tasks)]
    train = replace(tables[0], others=tuple(tables[1:]))
    job = Job(header.name, header.seed, header.privileged, train, arrays["problems"], header.task)
    return job, header.limits


def restrict(limits: Limits, folder: Path) -> None:
    """Hold this process to ``limits`` for good, to write in ``folder``, and all that it starts to its process group.

    From now on it ends with its parent; that is watched by a thread, which must be started after these restrictions.

    Of memory, private pages that can be written count: neither files and libraries that are mapped nor addresses that
    are merely reserved, of which JAX has several times as much.

    Raises:
        PredictorError: the system refuses, so that nothing of a plugin may run.
    """
    import resource  # there is none on Windows, where this module must be importable

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = limits.memory_bytes if hard == resource.RLIM_INFINITY else min(limits.memory_bytes, hard)
    stay_in_group()
    try:
        deny(limits.out_of_reach, folder)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    except OSError as error:
        raise PredictorError(f"the process of a predictor cannot be restricted ({error}); nothing was run") from None
    _end_with_parent()


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


def fit_and_rank(job: Job) -> tuple[Floats, float]:
    """Costs [P, T], and the median time of one call of ``costs`` in microseconds."""
    predictor = load(job.name)
    if getattr(predictor, "privileged", False) and not job.privileged:
        raise PredictorError(f"predictor {job.name!r} asks for the measured times, which only the oracle gets")
    predictor.fit(job.train, job.seed)

    shape = (len(job.problems), len(job.task.templates))

    def ask() -> tuple[Floats, float]:
        start = time.perf_counter_ns()
        # the check is in the time since it waits for arrays that are computed asynchronously (JAX)
        costs = checked(job.name, predictor.costs(job.problems, job.task), shape)
        return costs, (time.perf_counter_ns() - start) / 1e3

    costs = ask()[0].copy()  # a plugin may reuse its buffer
    times_us = [ask()[1]]
    while len(times_us) < TIMED_CALLS and sum(times_us) < TIMED_S * 1e6:
        times_us.append(ask()[1])
    return costs, float(np.median(times_us))


def run(job: Job, limits: Limits, folder: Path) -> Answer:
    """Run a job; costs go to ``costs.npz``, every failure becomes a sentence."""
    try:
        restrict(limits, folder)
        (folder / "version.json").write_text(json.dumps(load(job.name).version))
        costs, batch_us = fit_and_rank(job)
        np.savez(folder / "costs.npz", costs=costs)
    except Declined as declined:
        return Answer(status="declined", reason=f"{job.name!r} declined: {said(declined)[:MESSAGE_LENGTH]}")
    except TilearenaError as error:
        return Answer(status="failed", reason=str(error))
    except MemoryError as error:
        reason = f"predictor {job.name!r} needed more memory than {limits.memory}: {describe(error)}"
        return Answer(status="failed", reason=reason)
    except BaseException as error:  # a plugin may even raise SystemExit
        return Answer(status="failed", reason=f"predictor {job.name!r} raised {describe(error)}")
    return Answer(status="ok", predict_us=batch_us / max(len(job.problems), 1))


def describe(error: BaseException) -> str:
    """``ValueError in fit (mine.py, line 12): message``, the place being the innermost frame; and a hint."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {frames[-1].name} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    message = said(error)[:MESSAGE_LENGTH]
    hint = f" ({RESTRICTED})" if isinstance(error, PermissionError) else ""
    return f"{type(error).__name__}{place}" + (f": {message}" if message else "") + hint


def _end_with_parent() -> None:
    """End this process and all that it started when the pipe on standard input closes, as it does with the parent."""
    pipe = os.dup(0)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)  # for the plugin

    def watch() -> None:
        os.read(pipe, 1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def leave(folder: Path, answer: BaseModel) -> NoReturn:
    """Write the answer and end at once: threads that a plugin left behind must not keep the process alive."""
    scratch = folder / "answer.scratch"
    scratch.write_text(answer.model_dump_json())
    scratch.replace(folder / "answer.json")
    os._exit(0)


def main(folder: Path) -> None:
    """Run the job of a folder."""
    leave(folder, run(*take_job(folder), folder))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
