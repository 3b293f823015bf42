"""Where measurements come from: what the race asks of a GPU, and of what stands in for one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tilearena.dataset import Candidate
from tilearena.provenance import Clock
from tilearena.records import Device, Problem, Status
from tilearena.records import Protocol as TimingProtocol


@dataclass(frozen=True)
class Failure:
    """Why a candidate has no time on a problem."""

    status: Status
    reason: str


@dataclass(frozen=True)
class Begun:
    """The outcome of the proof: launches in one sample of each candidate that is exact, and why the others are not."""

    launches: dict[int, int]
    failures: dict[int, Failure]


class Trial(Protocol):
    """One problem under way: `begin` once, then `submit` and `collect` in turns.

    All may raise DeviceFailedError: the GPU failed, perhaps under the other problem that is under way; nothing more can
    run in this process.
    """

    def begin(self) -> Begun:
        """Wait for the proof."""

    def submit(self, order: Sequence[int]) -> None:
        """Time the candidates in ``order``, one sample a turn, behind all that was asked for before."""

    def collect(self) -> tuple[list[int], dict[int, Failure]]:
        """Wait for what was submitted.

        Returns the elapsed time of each turn in ns, for all of a sample's launches, and the candidates whose last
        output was wrong or that failed meanwhile; their times mean nothing.
        """

    def sample(self, order: Sequence[int]) -> tuple[list[int], dict[int, Failure]]:
        """`submit` and `collect`."""
        self.submit(order)
        return self.collect()


class Runner(Protocol):
    """Proves and times candidates. A GPU and the replay of a recording look the same."""

    device: Device
    candidates: tuple[Candidate, ...]
    default: int
    versions: dict[str, str]
    #: How often samples were taken again, since a hold of the stream had expired.
    retakes: int

    def clock(self) -> Clock | None:
        """Empty interval and resolution of the events; None if unknown."""

    def prove(self, problem: Problem, protocol: TimingProtocol, which: Sequence[int]) -> Trial:
        """Ask for the proof of each of ``which`` (indices into ``candidates``) on ``problem``.

        Two trials may be under way, so that the GPU need not wait while the host decides on one of them; a third one
        ends the first.

        Raises:
            DeviceFailedError: as a `Trial`.
        """
