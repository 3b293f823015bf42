"""Who is to blame when a worker cannot go on: what is known of a batch's problems, and what each trouble adds to it."""

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

from tilearena.records import Measurement, Problem, Status
from tilearena.worker_link import Trying

#: A candidate that was to blame on so many problems is launched no more.
FAULTS = 3
#: A problem that was examined so often in vain fails at its next trouble: where a ``kill`` may be behind it, or not.
#: The first may have been the fault of the next problem, which was under way, too; from then on this one goes alone.
FRUITLESS_OUTSIDE, FRUITLESS_INSIDE = 3, 1
#: A kill during the warm-up says little of the warm-up's problem; after so many it is examined.
WARM_UP_KILLS = 3


class Trouble(Exception):  # noqa: N818 - a condition to deal with
    """The worker cannot go on. ``inside``: it cannot have been somebody's ``kill``."""

    def __init__(self, reason: str, *, inside: bool = True) -> None:
        self.reason, self.inside = reason, inside
        super().__init__(reason)


@dataclass
class Case:
    """A batch while it is measured.

    Attributes:
        problems: of the batch.
        which: candidates of each problem.
        failed: why a candidate is not launched, by problem.
        attempt: how often it was begun.
        rows: of the problems that are finished, which are the first ones.
        retakes: how often samples were taken again, those of a problem that is under way included.
        at: what is running, as far as it is known.
        suspect: the problem to examine next.
        doubted: the candidate that was running alone when a ``kill`` may have ended the worker.
        fruitless: how many examinations of a problem found no culprit.
        warm_up_kills: since one last made its problem suspect.
    """

    problems: tuple[Problem, ...]
    which: tuple[tuple[int, ...], ...]
    failed: dict[int, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    attempt: int = 0
    rows: list[tuple[Measurement, ...]] = field(default_factory=list)
    retakes: int = 0
    at: Trying | None = None
    suspect: int | None = None
    doubted: Trying | None = None
    fruitless: Counter[int] = field(default_factory=Counter)
    warm_up_kills: int = 0

    def begin(self) -> None:
        """Measure all problems, again."""
        self.attempt += 1
        self.rows, self.retakes = [], 0

    @property
    def whole(self) -> bool:
        """Whether all problems are finished."""
        return len(self.rows) == len(self.problems)

    def troubled(self, i: int) -> bool:
        """Whether problem ``i`` was examined."""
        return bool(self.fruitless[i] or self.failed[i])

    def run_from(self, first: int) -> int:
        """The end of the problems that go together from ``first`` on: one that was examined goes alone.

        The next problem is under way while this one's samples are read, so that the one may be taken for the other.
        """
        if self.troubled(first):
            return first + 1
        following = range(first + 1, len(self.problems))
        return next((i for i in following if self.troubled(i)), len(self.problems))

    def launched(self, i: int, barred: Collection[int]) -> tuple[int, ...]:
        """The candidates of problem ``i`` that are launched."""
        return tuple(c for c in self.which[i] if c not in self.failed[i] and c not in barred)

    def finish(self, rows: tuple[Measurement, ...], retakes: int = 0) -> None:
        """Add the rows of the next problem, and those of its candidates that were not launched."""
        self.retakes += retakes
        i = len(self.rows)
        found = {row.candidate: row for row in rows}
        self.rows.append(tuple(found.get(c) or self._failed_row(i, c) for c in self.which[i]))

    def _failed_row(self, i: int, candidate: int) -> Measurement:
        p = self.problems[i]
        reason = self.failed[i].get(candidate, f"not launched: it faulted on {FAULTS} problems before")
        return Measurement(m=p.m, n=p.n, k=p.k, candidate=candidate, status=Status.LAUNCH_FAILED, reason=reason)

    def acquit(self) -> None:
        """Each candidate of the suspect problem ran alone, and nothing happened."""
        assert self.suspect is not None
        self.fruitless[self.suspect] += 1
        self.suspect = self.doubted = None

    def blame(self, trouble: Trouble) -> int | None:
        """What ``trouble`` says about what is running; the candidate that is to blame, if it is known now."""
        at, self.at = self.at, None
        if at is None:
            return None
        if at.warm_up and not trouble.inside:
            self.warm_up_kills += 1
            if self.warm_up_kills < WARM_UP_KILLS:
                return None
            self.warm_up_kills = 0
        if at.candidate is not None:
            if trouble.inside or at == self.doubted:
                self.failed[at.problem][at.candidate] = trouble.reason
                self.suspect = self.doubted = None
                return at.candidate
            self.doubted = at
        elif self.fruitless[at.problem] >= (FRUITLESS_INSIDE if trouble.inside else FRUITLESS_OUTSIDE):
            reason = f"failed together with other candidates, none of which failed alone: {trouble.reason}"
            self.failed[at.problem] = dict.fromkeys(self.which[at.problem], reason) | self.failed[at.problem]
        else:
            self.suspect = at.problem
        return None
