"""A runner that answers from a recording, so that everything but the GPU can be run and tested anywhere."""

from collections.abc import Sequence

from tilearena.dataset import Ints, Recording
from tilearena.errors import MeasureError
from tilearena.records import Measurement, Problem
from tilearena.records import Protocol as TimingProtocol


class ReplayRunner:
    """Gives back what was recorded, and refuses what was not."""

    def __init__(self, recording: Recording) -> None:
        """Index the rows of ``recording`` by shape and candidate."""
        self.device = recording.header.device
        self.candidates = recording.header.candidates
        self.versions = dict(recording.header.versions)
        self._empty_interval_ns = recording.header.empty_interval_ns
        self._protocol = recording.header.protocol.name
        self._rows = {
            (row["m"], row["n"], row["k"], row["candidate"]): Measurement.model_validate(row)
            for row in recording.rows.to_pylist()
        }

    def empty_interval_ns(self) -> float | None:
        """As recorded."""
        return self._empty_interval_ns

    def measure(
        self, problem: Problem, protocol: TimingProtocol, which: Sequence[int], order: Ints
    ) -> list[Measurement]:
        """See `tilearena.runner.Runner.measure`.

        Raises:
            MeasureError: the recording holds another protocol, or lacks a row.
        """
        if protocol.name != self._protocol:
            raise MeasureError(f"the recording is {self._protocol}, so it cannot answer for {protocol.name}")
        rows = []
        for candidate in which:
            row = self._rows.get((problem.m, problem.n, problem.k, candidate))
            if row is None:
                raise MeasureError(f"{problem.m}x{problem.n}x{problem.k} with candidate {candidate} was not recorded")
            rows.append(row)
        return rows
