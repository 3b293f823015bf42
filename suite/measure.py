"""Problems x candidates -> a recording, written in parts so that nothing measured is lost.

Candidates take turns in shuffled order, round after round, so that a drift of clocks meets all of them alike. The
default template runs twice, as itself and as a control: their difference is the session's A/A noise floor.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tilearena import __version__, dataset
from tilearena.dataset import COLUMNS, Header, Ints, Recording
from tilearena.device import Telemetry
from tilearena.errors import MeasureError
from tilearena.records import Measurement, Problem, fingerprint
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
            session=fingerprint([datetime.now(UTC).isoformat(), device.uuid_sha256]),
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            device_time_s=0.0,
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
    empty_interval_ns: float | None = None,
    progress: Progress = lambda done, total, label: None,
) -> Header:
    """Measure every candidate on every problem and write the recording to ``path``.

    Parts of an interrupted session of the same card, spec, space and protocol beside ``path`` are continued.

    Raises:
        MeasureError: the device failed; what was measured stays in the parts, and the same command goes on from there.
            Or a file of the parts is damaged.
    """
    header = session.header(runner)
    parts = _parts_folder(path, header)
    done, header = _resume(parts, header)
    todo = [p for p in session.problems if (p.m, p.n, p.k) not in done]
    which = range(len(runner.candidates))
    if todo:
        warm_up(runner, todo[len(todo) // 2], session.protocol)
    for first in range(0, len(todo), PART_PROBLEMS):
        batch = todo[first : first + PART_PROBLEMS]
        started = time.monotonic()
        rows: list[Measurement] = []
        try:
            for position, problem in enumerate(batch):
                rows += measure_problem(runner, problem, session.protocol, which)
                progress(len(done) + first + position + 1, len(session.problems), path.stem)
                if telemetry and position % 25 == 0:
                    telemetry.sample()
        finally:
            if rows:
                _write_part(parts, rows, time.monotonic() - started)
    if not todo and not done:
        raise MeasureError(f"{session.workload.name} has no {session.protocol.name} problems to measure")
    summary = telemetry.summary() if telemetry else {}
    return _finish(
        path, parts, header.model_copy(update={"telemetry": summary, "empty_interval_ns": empty_interval_ns})
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


def _parts_folder(path: Path, header: Header) -> Path:
    key = fingerprint(
        [
            header.spec_fingerprint,
            header.space_fingerprint,
            header.protocol.model_dump(mode="json"),
            header.device.model_dump(mode="json"),
            header.versions,
            [candidate.id for candidate in header.candidates],
        ]
    )
    return path.with_name(f".{path.stem}.{key}.parts")


def _resume(parts: Path, header: Header) -> tuple[set[tuple[int, int, int]], Header]:
    """Shapes that earlier parts hold, and the header of the session that began."""
    parts.mkdir(parents=True, exist_ok=True)
    begun = parts / "header.json"
    if begun.is_file():
        try:
            header = Header.model_validate_json(begun.read_bytes())
        except ValueError:
            raise MeasureError(f"{begun} is damaged; delete {parts} to measure from the beginning") from None
    else:
        begun.write_text(header.model_dump_json())
    done: set[tuple[int, int, int]] = set()
    for part in sorted(parts.glob("*.parquet")):
        rows = _read_part(part)
        done |= set(zip(*(rows[axis].to_pylist() for axis in "mnk"), strict=True))
    return done, header


def _read_part(part: Path) -> pa.Table:
    try:
        return pq.read_table(part)
    except (pa.ArrowException, OSError):
        raise MeasureError(f"{part} is damaged; delete it to measure its problems again") from None


def _write_part(parts: Path, rows: Sequence[Measurement], seconds: float) -> None:
    number = max((int(part.stem) for part in parts.glob("*.parquet")), default=-1) + 1
    part = parts / f"{number:05d}.parquet"
    scratch = part.with_suffix(".tmp")
    table = dataset.rows_from(rows).replace_schema_metadata({b"seconds": repr(seconds).encode()})
    pq.write_table(table, scratch, compression="zstd")
    scratch.replace(part)


def _finish(path: Path, parts: Path, header: Header) -> Header:
    tables = [_read_part(part) for part in sorted(parts.glob("*.parquet"))]
    seconds = sum(float(table.schema.metadata[b"seconds"]) for table in tables)
    rows = pa.concat_tables([t.replace_schema_metadata(None).cast(COLUMNS) for t in tables]).unify_dictionaries()
    rows = rows.combine_chunks()
    floor = noise_floor(Recording(header, rows))
    header = header.model_copy(update={"device_time_s": round(seconds, 3), "noise_floor": floor})
    header = dataset.write(path, header, rows)
    shutil.rmtree(parts)
    return header
