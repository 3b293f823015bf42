"""A runner that answers from a recording, so that everything but the GPU can be run and tested anywhere."""

from collections.abc import Sequence

from tilearena.dataset import Recording
from tilearena.errors import MeasureError
from tilearena.provenance import Clock
from tilearena.records import Measurement, Problem, Status
from tilearena.records import Protocol as TimingProtocol
from tilearena.runner import Begun, Failure, Trial


class ReplayRunner:
    """Gives back what was recorded, sample by sample, and refuses what was not."""

    def __init__(self, recording: Recording) -> None:
        """Index the rows of ``recording`` by shape and candidate."""
        self.device = recording.header.device
        self.candidates = recording.header.candidates
        self.default = recording.header.default
        self.versions = dict(recording.header.versions)
        self.retakes = 0
        self._clock = recording.header.clock
        self._protocol = recording.header.protocol
        self._screens = recording.header.screens.tolist()
        self._rows = {
            (row["m"], row["n"], row["k"], row["candidate"]): Measurement.model_validate(row)
            for row in recording.rows.to_pylist()
        }

    def clock(self) -> Clock | None:
        """As recorded."""
        return self._clock

    def prove(self, problem: Problem, protocol: TimingProtocol, which: Sequence[int]) -> "ReplayTrial":
        """See `tilearena.runner.Runner.prove`. Without a screen in ``protocol`` the recorded one is passed over.

        Raises:
            MeasureError: the recording holds another protocol, or lacks a row.
        """
        if protocol.name != self._protocol.name:
            raise MeasureError(f"the recording is {self._protocol.name}, so it cannot answer for {protocol.name}")
        shape = f"{problem.m}x{problem.n}x{problem.k}"
        launches, failures, left = {}, {}, {}
        for candidate in which:
            row = self._rows.get((problem.m, problem.n, problem.k, candidate))
            if row is None:
                raise MeasureError(f"{shape} with candidate {candidate} was not recorded")
            if row.status is not Status.OK:
                failures[candidate] = Failure(row.status, row.reason)
                continue
            launches[candidate] = row.launches
            left[candidate] = list(row.elapsed_ns)[0 if protocol.screen_rounds else self._screens[candidate] :]
        return ReplayTrial(shape, Begun(launches, failures), left)


class ReplayTrial(Trial):
    """One recorded problem: its samples are given back in the order in which they were taken."""

    def __init__(self, shape: str, begun: Begun, left: dict[int, list[int]]) -> None:
        """``left``: samples by candidate."""
        self._shape, self._begun, self._left = shape, begun, left
        self._order: Sequence[int] = ()

    def begin(self) -> Begun:
        """As recorded."""
        return self._begun

    def submit(self, order: Sequence[int]) -> None:
        """See `tilearena.runner.Trial.submit`."""
        self._order = order

    def collect(self) -> tuple[list[int], dict[int, Failure]]:
        """See `tilearena.runner.Trial.collect`.

        Raises:
            MeasureError: more samples are asked for than were recorded.
        """
        elapsed_ns = []
        for candidate in self._order:
            if not self._left[candidate]:
                raise MeasureError(f"{self._shape} with candidate {candidate} has no more recorded samples")
            elapsed_ns.append(self._left[candidate].pop(0))
        return elapsed_ns, {}
