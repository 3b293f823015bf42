"""What is recorded about a measurement besides its rows: which card measured which batch, and in what state it was."""

from typing import Annotated

import numpy as np
from pydantic import Field, FiniteFloat

from tilearena.records import Positive, Record

#: A fraction, and a length of time.
Share = Annotated[FiniteFloat, Field(ge=0)]
Span = Annotated[FiniteFloat, Field(ge=0)]
#: How many, or how many nanoseconds.
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
#: Unix time, until the end of the year 9999: later is no date that ISO 8601 or Python writes.
UnixTime = Annotated[FiniteFloat, Field(ge=0, lt=253_402_300_800)]


class Clock(Record):
    """What the clock itself costs and resolves, all in the median; nothing of it is subtracted from a time.

    Attributes:
        empty_interval_ns: between two events with nothing in between.
        empty_launch_ns: between two events with one launch of a kernel that does nothing.
        resolution_ns: the smallest step of a distance of two events.
    """

    empty_interval_ns: Span
    empty_launch_ns: Span
    resolution_ns: Span


class Range(Record):
    """Smallest, median and largest of some readings."""

    min: FiniteFloat
    median: FiniteFloat
    max: FiniteFloat


class Telemetry(Record):
    """The state of a card over some time. ``throttle_reasons`` has every bit of NVML's mask that was ever set."""

    n_samples: Count
    sm_clock_mhz: Range | None = None
    memory_clock_mhz: Range | None = None
    power_w: Range | None = None
    temperature_c: Range | None = None
    throttle_reasons: Count = 0


class Batch(Record):
    """Consecutive problems of a recording that one card measured in one go.

    Attributes:
        session: of which run of `measure` it is part.
        card: ``uuid_sha256`` of the card; None where it is unknown.
        host: 16 hex digits that tell hosts apart without naming them.
        n_problems: how many; the batches of a recording follow each other in the order of its rows.
        started_at_s: Unix time.
        seconds: host time, proof and attempts that were repeated included.
        attempts: 1, or more where a thermal or hardware slowdown made it repeat.
        retakes: how often samples were taken again, since the stream could not be held for as long as they needed.
        slowed: whether the last attempt, too, saw such a slowdown.
        noise_floor: as the recording's, of this batch alone.
        spread: median over rows of (largest - smallest) / median of the samples that its time is the median of.
    """

    session: str
    card: str | None
    host: str
    n_problems: Positive
    started_at_s: UnixTime
    seconds: Span
    attempts: Positive = 1
    retakes: Count = 0
    slowed: bool = False
    noise_floor: Share | None = None
    spread: Share | None = None
    telemetry: Telemetry = Telemetry(n_samples=0)


class Anchors(Record):
    """Times of the fixed anchor problems on one card in one session: default template, at the start, middle and end.

    A tuple is empty where the session ended before. A time is 0 where an anchor failed or does not fit the card.
    ``clock`` is of the hand that took them, and so of its batches in that session.
    """

    session: str
    card: str | None
    clock: Clock | None = None
    start_ns: tuple[Count, ...] = ()
    middle_ns: tuple[Count, ...] = ()
    end_ns: tuple[Count, ...] = ()

    @property
    def drift(self) -> float | None:
        """Geometric mean of t(end) / t(start) over the anchors, less 1; None if one is missing."""
        return _drift(self.start_ns, self.end_ns)

    @property
    def drift_to_middle(self) -> float | None:
        """As `drift`, at the middle."""
        return _drift(self.start_ns, self.middle_ns)


def _drift(before: tuple[int, ...], after: tuple[int, ...]) -> float | None:
    if not before or len(before) != len(after):
        return None
    pair = np.array([before, after], dtype=np.float64)
    pair = pair[:, (pair > 0).all(axis=0)]
    return float(np.exp(np.log(pair[1] / pair[0]).mean()) - 1) if pair.size else None


def wall_time_s(batches: tuple[Batch, ...]) -> float:
    """Seconds of measuring: from the first batch's start to the last one's end, summed over sessions."""
    spans: dict[str, tuple[float, float]] = {}
    for batch in batches:
        first, last = spans.get(batch.session, (np.inf, -np.inf))
        spans[batch.session] = min(first, batch.started_at_s), max(last, batch.started_at_s + batch.seconds)
    return round(sum(last - first for first, last in spans.values()), 3)
