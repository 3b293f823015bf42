"""Problems x candidates -> a recording, by one hand or several, written in parts so that nothing measured is lost."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tilearena import __version__, dataset
from tilearena.anchors import anchor_problems
from tilearena.crew import Crew, Measured
from tilearena.dataset import Header, Recording
from tilearena.errors import Interrupted, MeasureError, RecordingError, TilearenaError
from tilearena.feasible import support
from tilearena.hands import Hand, Order
from tilearena.interrupts import counted
from tilearena.noise import noise_floor, spread
from tilearena.parts import Parts
from tilearena.provenance import Batch
from tilearena.records import Problem
from tilearena.records import Protocol as TimingProtocol
from tilearena.space import Space
from tilearena.spec import Workload
from tilearena.worker_link import Opening

#: Problems that a hand measures in one go: a second or so on a fast GPU. Batches become smaller towards the end, so
#: that several hands finish at about the same time.
BATCH_PROBLEMS, SMALLEST_BATCH = 250, 50

#: How often the thread that looks on looks whether the user has pressed Ctrl-C.
LOOK_S = 0.1

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Session:
    """What is measured, and under which name it is kept."""

    workload: Workload
    space: Space
    problems: tuple[Problem, ...]
    protocol: TimingProtocol

    def header(self, hands: Sequence[Hand]) -> Header:
        """The header of the recording, before anything was measured.

        Raises:
            MeasureError: the hands do not measure the same thing.
        """
        _require_alike(hands)
        first, hand = self.problems[0], hands[0]
        cards = {h.device.uuid_sha256 for h in hands}
        device = hand.device if len(cards) == 1 else hand.device.model_copy(update={"uuid_sha256": None})
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
            candidates=hand.candidates,
            default=self.space.default_index(first.dtype),
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            clock=hand.clock,
            noise_floor=None,
            versions={"tilearena": __version__, **hand.versions},
        )


def _require_alike(hands: Sequence[Hand]) -> None:
    first = _described(hands[0])
    for hand in hands[1:]:
        for name, value in _described(hand).items():
            if value != first.get(name):
                raise MeasureError(
                    f"the workers do not measure the same thing: {name} is {first.get(name)!r} at one and {value!r} "
                    f"at another (hosts {hands[0].host} and {hand.host}); leave one out"
                )


def _described(hand: Hand) -> dict[str, object]:
    device = hand.device.model_dump(exclude={"uuid_sha256"})
    return {
        **{f"device {key}": value for key, value in device.items()},
        "candidates": [candidate.id for candidate in hand.candidates],
        "default": hand.default,
        **{f"version of {tool}": version for tool, version in hand.versions.items()},
        "tools": sorted(hand.versions),
    }


def opening(
    session: Session, *, ordinal: int = 0, sms: int | None = None, torch: bool = True, instance: bool = False
) -> Opening:
    """How a worker opens GPU ``ordinal``, or ``sms`` of its SMs, for ``session`` and the anchors.

    ``torch`` says whether ``torch._int_mm`` is a candidate where torch is installed, ``instance`` whether the device
    has the slug of this card alone.
    """
    first = session.problems[0]
    problems = [*session.problems, *anchor_problems(first.dtype, first.bit_op)]
    arguments = {
        "space": session.space.model_dump(mode="json"),
        "problems": [p.model_dump(mode="json", exclude_defaults=True) for p in problems],
        "seed": session.protocol.seed,
        "ordinal": ordinal,
        "sms": sms,
        "torch": torch,
        "instance": instance,
    }
    return Opening(factory="tilearena.live:open_for_worker", arguments=arguments)


def record(
    session: Session,
    hands: Sequence[Hand],
    path: Path,
    *,
    anchors: Sequence[Problem] = (),
    progress: Progress = lambda done, total, label: None,
) -> Header:
    """Measure every candidate on every problem and write the recording to ``path``.

    Parts of an interrupted run beside ``path`` are continued.

    Args:
        session: what to measure.
        hands: which share the problems out among themselves; they stay open.
        path: of the recording.
        anchors: see `tilearena.anchors.anchor_problems`; none are timed if empty.
        progress: callback.

    Raises:
        Interrupted: Ctrl-C; what is finished is kept.
        MeasureError: no hand is left, a file cannot be written or is damaged, or another process is at the parts.
    """
    with Parts(path, session.header(hands), session.problems, pool=len(hands) > 1) as parts:
        try:
            header = parts.header()
            if header.started_at == _started_at(path):  # it ended before it could remove them
                parts.discard()
                header = parts.header()
            done = parts.done()
            todo = [p for p in session.problems if (p.m, p.n, p.k) not in done]
            if todo:
                _Sweep(session, hands, todo, anchors, parts, header, progress).run()
            return _finish(path, parts, header)
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted: {_kept(parts, session)}") from None
        except OSError as error:
            raise MeasureError(
                f"{error.filename or path}: {error.strerror or error}; put that right: {_kept(parts, session)}"
            ) from None


def _started_at(path: Path) -> str | None:
    """When the recording that lies there began; None without a readable one."""
    try:
        return dataset.read(path).header.started_at
    except RecordingError:
        return None


def _kept(parts: Parts, session: Session) -> str:
    kept, total = len(parts.done()), len(session.problems)
    return f"{kept} of {total} problems are kept in {parts.folder}; run the same command again to go on"


def batches(problems: Sequence[Problem], hands: int) -> list[Sequence[Problem]]:
    """Cut ``problems`` up, in order: a batch is at most half of a hand's share of what is left."""
    cut, left = [], problems
    while left:
        size = min(BATCH_PROBLEMS, max(SMALLEST_BATCH, len(left) // (2 * hands)), -(-len(problems) // (2 * hands)))
        cut.append(left[:size])
        left = left[size:]
    return cut


class _Sweep:
    """One run over the problems that are left: the hands measure, this thread writes down."""

    def __init__(
        self,
        session: Session,
        hands: Sequence[Hand],
        todo: Sequence[Problem],
        anchors: Sequence[Problem],
        parts: Parts,
        header: Header,
        progress: Progress,
    ) -> None:
        orders = [Order(tuple(batch), session.protocol) for batch in batches(todo, len(hands))]
        self._id = uuid.uuid4().hex[:16]
        self._crew = Crew(self._id, hands, orders, anchors)
        self._session, self._parts, self._header, self._progress = session, parts, header, progress
        self._before = len(session.problems) - len(todo)
        self._written, self._anchors = 0, list(self._crew.anchors)

    def run(self) -> None:
        """Until all is measured, no hand is left, or something ends it; what is finished is written in any case."""
        crew = self._crew
        with counted() as interrupts:
            try:
                crew.start()
                while crew.working and not interrupts:
                    crew.changed.wait(LOOK_S)
                    crew.changed.clear()
                    self._write()
                    self._progress(self._before + crew.n_done, len(self._session.problems), self._session.workload.name)
            finally:
                crew.halt()
                try:
                    while not crew.join(LOOK_S) and len(interrupts) < 2:  # a second Ctrl-C ends the waiting
                        pass
                finally:
                    self._write()
        if interrupts:
            raise KeyboardInterrupt
        if crew.error is not None and not isinstance(crew.error, TilearenaError):
            raise crew.error
        reason = crew.error or (crew.lost[-1] if crew.lost else None)
        whole = self._before + crew.n_done == len(self._session.problems)
        if reason is not None and (crew.error or not whole):
            raise MeasureError(f"{reason}; {_kept(self._parts, self._session)}") from reason

    def _write(self) -> None:
        for measured in self._crew.measured[self._written :]:
            rows = dataset.rows_from(measured.finished.rows)
            self._parts.write(self._written, rows, self._note(measured, Recording(self._header, rows)))
            self._written += 1
        anchors = list(self._crew.anchors)
        if anchors != self._anchors:
            self._parts.write_anchors(anchors)
            self._anchors = anchors

    def _note(self, measured: Measured, recording: Recording) -> Batch:
        finished = measured.finished
        return Batch(
            session=self._id,
            card=measured.hand.device.uuid_sha256,
            host=measured.hand.host,
            n_problems=finished.n_problems,
            started_at_s=measured.started_at_s,
            seconds=finished.seconds,
            attempts=finished.attempts,
            retakes=finished.retakes,
            slowed=finished.slowed,
            noise_floor=noise_floor(recording),
            spread=spread(recording),
            telemetry=finished.telemetry,
        )


def _finish(path: Path, parts: Parts, header: Header) -> Header:
    found = parts.collect()
    cards = {batch.card for batch in found.batches}
    device = header.device.model_copy(update={"uuid_sha256": cards.pop() if len(cards) == 1 else None})
    header = header.model_copy(
        update={
            "device": device,
            "noise_floor": noise_floor(Recording(header, found.rows)),
            "batches": found.batches,
            "anchors": found.anchors,
        }
    )
    whole = parts.folder / "recording"
    header = dataset.write(whole, header, found.rows)
    try:
        dataset.read(whole)
    except RecordingError as error:  # the last moment at which the parts are still there
        raise MeasureError(f"{error}; delete {parts.folder} to measure from the beginning") from None
    whole.replace(path)
    parts.remove()
    return header
