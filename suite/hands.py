"""A hand is one GPU that measures batches of problems, wherever it is: the contract, and what goes in and comes out."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tilearena.dataset import Candidate
from tilearena.errors import MeasureError
from tilearena.provenance import Clock, Telemetry
from tilearena.records import Device, Measurement, Problem
from tilearena.records import Protocol as TimingProtocol

#: Called with the number of problems of a batch that are done.
Done = Callable[[int], None]


class HandLostError(MeasureError):
    """This hand can measure nothing more; another one may take its batch over."""


@dataclass(frozen=True)
class Order:
    """A batch to measure: problems, how, and which candidates (indices) of each problem; all of them where None."""

    problems: tuple[Problem, ...]
    protocol: TimingProtocol
    which: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True)
class Finished:
    """Rows of the first ``n_problems`` of a batch, one for each candidate that was asked for, in order.

    ``seconds`` are of all ``attempts``; the telemetry and ``retakes``, as in `tilearena.provenance.Batch`, are of the
    one that the rows are of.
    """

    rows: Sequence[Measurement]
    n_problems: int
    seconds: float
    telemetry: Telemetry
    attempts: int = 1
    retakes: int = 0
    slowed: bool = False


class Hand(Protocol):
    """One GPU. Its worker may die under it and is started again; a faulting candidate becomes a failed row."""

    device: Device
    candidates: tuple[Candidate, ...]
    default: int
    versions: dict[str, str]
    clock: Clock | None
    host: str

    def measure(self, order: Order, stop: threading.Event, done: Done = lambda n: None) -> Finished:
        """Measure a batch; fewer problems than asked for where ``stop`` was set meanwhile.

        A batch during which the card was slowed down by heat or by its hardware is repeated, at most twice.

        Raises:
            HandLostError: nothing more can be measured here.
        """

    def close(self) -> None:
        """Give the GPU back."""
