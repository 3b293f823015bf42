"""Problems x candidates -> a recording, written in parts so that nothing measured is lost.

Candidates take turns in shuffled order, round after round, so that a drift of clocks meets all of them alike. The
default template runs twice, as itself and as a control: their difference is the session's A/A noise floor.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from tilearena import __version__, dataset
from tilearena.dataset import Header, Ints, Recording
from tilearena.device import Telemetry, summarise
from tilearena.errors import DeviceFailedError
from tilearena.parts import Parts
from tilearena.records import Measurement, Problem, Status, fingerprint
from tilearena.records import Protocol as TimingProtocol
from tilearena.runner import Runner
from tilearena.space import Space, support
from tilearena.spec import Workload

PART_PROBLEMS = 250
WARM_UP_S = 0.5

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Session:
    """What is measured, and under which name it is kept."""

    workload: Workload
    space: Space
    problems: tuple[Problem, ...]
    protocol: TimingProtocol

    def header(self, runner: Runner) -> Header:
        """The header of the recording, before anything was measured."""
        first = self.problems[0]
        device = runner.device
        return Header(
            op=first.op,
            spec=self.workload.name,
            spec_fingerprint=self.workload.fingerprint,
            space=self.space.name,
            space_fingerprint=self.space.fingerprint,
            dtype=first.dtype,
            bit_op=first.bit_op,
            protocol=self.protocol,
            device=device,
            support=support(first.dtype, first.bit_op, device.arch),
            candidates=runner.candidates,
            default=self.space.default_index,
            sessions=(fingerprint([datetime.now(UTC).isoformat(), device.uuid_sha256]),),
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            wall_time_s=0.0,
            empty_interval_ns=None,
            noise_floor=None,
            versions={"tilearena": __version__, **runner.versions},
            telemetry={},
        )


def turns(problem: Problem, protocol: TimingProtocol, count: int) -> Ints:
    """[rounds, count]: a permutation of the candidates for each round, fixed by the protocol's seed and the problem."""
    rng = np.random.default_rng([protocol.seed, problem.m, problem.n, problem.k])
    return np.argsort(rng.random((protocol.rounds, count)), axis=1)


def measure_problem(
    runner: Runner, problem: Problem, protocol: TimingProtocol, which: Sequence[int]
) -> list[Measurement]:
    """One interleaved run of some candidates on one problem."""
    return runner.measure(problem, protocol, which, turns(problem, protocol, len(which)))


def warm_up(runner: Runner, problem: Problem, protocol: TimingProtocol) -> None:
    """Keep the GPU busy until its clocks have risen; what was timed meanwhile is thrown away."""
    end = time.monotonic() + WARM_UP_S
    which = range(len(runner.candidates))
    while time.monotonic() < end:
        measure_problem(runner, problem, protocol, which)


def record(
    session: Session,
    runner: Runner,
    path: Path,
    *,
    telemetry: Telemetry | None = None,
    resume: bool = True,
    progress: Progress = lambda done, total, label: None,
) -> Header:
    """Measure every candidate on every problem and write the recording to ``path``.

    Parts of an interrupted run of the same card, spec, space and protocol beside ``path`` are continued, unless not
    ``resume``. Where the device fails, the problem in hand becomes failed rows and the next run goes on after it.

    Raises:
        DeviceFailedError: nothing more can run in this process; the parts keep what was measured.
        MeasureError: a file of the parts is damaged, or another process is at them.
    """
    with Parts(path, session.header(runner)) as parts:
        if not resume:
            parts.discard()
        header = parts.header()
        done = parts.done()
        todo = [p for p in session.problems if (p.m, p.n, p.k) not in done]
        if todo:
            warm_up(runner, todo[len(todo) // 2], session.protocol)
        for first in range(0, len(todo), PART_PROBLEMS):
            _measure_part(session, runner, todo[first : first + PART_PROBLEMS], parts, telemetry, progress)
        header = header.model_copy(update={"empty_interval_ns": runner.empty_interval_ns()})
        return _finish(path, parts, header)


def _measure_part(
    session: Session,
    runner: Runner,
    problems: Sequence[Problem],
    parts: Parts,
    telemetry: Telemetry | None,
    progress: Progress,
) -> None:
    before = len(parts.done())
    started = time.monotonic()
    which = range(len(runner.candidates))
    rows: list[Measurement] = []
    if telemetry:
        telemetry.samples.clear()
    try:
        for position, problem in enumerate(problems):
            try:
                rows += measure_problem(runner, problem, session.protocol, which)
            except DeviceFailedError as error:
                rows += [_device_failed(problem, candidate, str(error)) for candidate in which]
                raise
            progress(before + position + 1, len(session.problems), session.workload.name)
            if telemetry and position % 25 == 0:
                telemetry.sample()
    finally:
        if rows:
            parts.write(rows, time.monotonic() - started, telemetry.samples if telemetry else ())


def _device_failed(problem: Problem, candidate: int, reason: str) -> Measurement:
    """Which of the candidates that took turns is to blame is not known, so each row says what happened."""
    return Measurement(
        m=problem.m, n=problem.n, k=problem.k, candidate=candidate, status=Status.LAUNCH_FAILED, reason=reason
    )


def noise_floor(recording: Recording) -> float | None:
    """95th percentile over problems of |t(control) / t(default) - 1|, the A/A difference; None without a control."""
    header = recording.header
    control = next((i for i, c in enumerate(header.candidates) if c.origin == "control"), None)
    if control is None:
        return None
    default, again = recording.column_ns(header.default), recording.column_ns(control)
    both = np.isfinite(default) & np.isfinite(again)
    if not both.any():
        return None
    return float(np.quantile(np.abs(again[both] / default[both] - 1), 0.95))


def _finish(path: Path, parts: Parts, header: Header) -> Header:
    found = parts.collect()
    header = header.model_copy(
        update={
            "wall_time_s": found.wall_time_s,
            "sessions": found.sessions,
            "telemetry": summarise(found.telemetry),
            "noise_floor": noise_floor(Recording(header, found.rows)),
        }
    )
    header = dataset.write(path, header, found.rows)
    parts.remove()
    return header
