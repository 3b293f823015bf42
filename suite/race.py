"""One problem, several candidates: who takes how many samples, in which order.

The screen gives every template a few samples. Those that may still be the fastest, or tie with it, are the contenders:
their smallest screen sample is at most ``1 + contender_margin`` times the smallest screen median, and no more of them
than ``max_contenders``, if that is given, have a smaller screen median. The final gives each
contender ``rounds`` fresh samples, and these alone make up its time, so that no lucky sample of the screen decides (no
winner's curse). The default template, its control and the vendor's kernels take part in the last ``reference_rounds``
rounds of the final in any case, and a contender without a rival in these alone. Should the contenders all turn out
slower than another template was in the screen, that one joins them in a second and last final. All samples are kept. In
each round the candidates take turns in another shuffled order, so that a drift of clocks meets all of them alike.
"""

from collections.abc import Iterable, Iterator, Sequence
from statistics import median

import numpy as np

from tilearena.records import Measurement, Problem, Protocol
from tilearena.runner import Failure, Runner
from tilearena.table import Ints


def measure_problems(
    runner: Runner, protocol: Protocol, tasks: Iterable[tuple[Problem, Sequence[int]]]
) -> Iterator[list[Measurement]]:
    """Prove and time some candidates on each problem; one Measurement for each of them, in that order.

    Two problems are under way, so that the GPU always has work while the host reads and decides: the proof of the next
    one runs before this one's final, and its screen right after.

    Whatever ends this early, an exception or the consumer, takes the problems that are under way with it.

    Raises:
        DeviceFailedError: the GPU failed, perhaps under the next problem; nothing more can run in this process.
    """
    earlier: Race | None = None
    for problem, which in tasks:
        race = Race(runner, problem, protocol, which)
        if earlier is not None:
            earlier.final()
        race.screen()
        if earlier is not None:
            yield earlier.rows()
        earlier = race
    if earlier is not None:
        earlier.final()
        yield earlier.rows()


def measure_problem(runner: Runner, problem: Problem, protocol: Protocol, which: Sequence[int]) -> list[Measurement]:
    """`measure_problems` of one."""
    return next(measure_problems(runner, protocol, [(problem, which)]))


class Race:
    """The state of one problem while it is measured: `screen`, `final` and `rows` follow each other."""

    def __init__(self, runner: Runner, problem: Problem, protocol: Protocol, which: Sequence[int]) -> None:
        self._runner, self._problem, self._protocol, self._which = runner, problem, protocol, which
        self._rng = np.random.default_rng([protocol.seed, problem.m, problem.n, problem.k])
        self._launches: dict[int, int] = {}
        self._failures: dict[int, Failure] = {}
        self._screen: dict[int, list[int]] = {}
        self._fresh: dict[int, list[int]] = {i: [] for i in which}
        self._contenders: list[int] = []
        self._order: Ints = np.zeros(0, dtype=np.int64)
        self._trial = runner.prove(problem, protocol, which)

    def screen(self) -> None:
        """Ask for a few samples of every template that is proved."""
        begun = self._trial.begin()
        self._launches, self._failures = begun.launches, dict(begun.failures)
        templates = [i for i in self._alive() if self._runner.candidates[i].origin == "template"]
        self._screen = {i: [] for i in templates}
        self._submit(turns(self._rng, templates, self._protocol.screen_rounds))

    def final(self) -> None:
        """Read the screen; ask for fresh samples of the contenders."""
        self._collect(self._screen)
        self._contenders = self._select()
        self._submit(self._turns_of_final())

    def rows(self) -> list[Measurement]:
        """Read the final, and what came of it; a second final, if there is one, is taken here."""
        self._collect(self._fresh)
        if late := self._latecomers():
            self._contenders = sorted([*self._contenders, *late])
            self._submit(self._turns_of_final())
            self._collect(self._fresh)
        return [self._row(i) for i in self._which]

    def _select(self) -> list[int]:
        """Templates that the screen does not tell from the fastest; without a screen all candidates."""
        if not self._protocol.screen_rounds:
            return self._alive()
        screened = {i: samples for i, samples in self._screen.items() if i not in self._failures}
        shortest = min((median(samples) for samples in screened.values()), default=0)
        limit = (1 + self._protocol.contender_margin) * shortest
        close = [i for i, samples in screened.items() if min(samples) <= limit]
        fastest = sorted(close, key=lambda i: median(screened[i]))[: self._protocol.max_contenders]
        return sorted(fastest)

    def _turns_of_final(self) -> Ints:
        """Of the contenders, and in the last rounds of the default, its control and the vendor's kernels, too."""
        last = self._protocol.reference_rounds
        contested = len(self._contenders) > 1 or not self._protocol.screen_rounds
        alone = turns(self._rng, self._contenders, self._protocol.rounds - last if contested else 0)
        both = [i for i in self._alive() if i in self._contenders or self._is_reference(i)]
        return np.concatenate([alone, turns(self._rng, both, last)])

    def _latecomers(self) -> list[int]:
        """Other templates whose screen was faster than every contender's final."""
        finals = [median(self._fresh[i]) for i in self._contenders if i not in self._failures]
        others = [i for i in self._screen if i not in self._contenders and i not in self._failures]
        return [i for i in others if self._screen[i] and finals and median(self._screen[i]) < min(finals)]

    def _alive(self) -> list[int]:
        return [i for i in self._which if i not in self._failures]

    def _is_reference(self, candidate: int) -> bool:
        return candidate == self._runner.default or self._runner.candidates[candidate].origin != "template"

    def _submit(self, order: Ints) -> None:
        self._order = order
        if len(order):
            self._trial.submit(order.tolist())

    def _collect(self, samples: dict[int, list[int]]) -> None:
        if not len(self._order):
            return
        elapsed_ns, failures = self._trial.collect()
        self._failures |= failures
        for candidate, time_ns in zip(self._order.tolist(), elapsed_ns, strict=True):
            samples[candidate].append(time_ns)

    def _row(self, candidate: int) -> Measurement:
        shape = {"m": self._problem.m, "n": self._problem.n, "k": self._problem.k, "candidate": candidate}
        failure: Failure | None = self._failures.get(candidate)
        if failure is not None:
            return Measurement.model_validate(shape | {"status": failure.status, "reason": failure.reason})
        samples = (*self._screen.get(candidate, ()), *self._fresh[candidate])
        return Measurement.model_validate(
            shape | {"status": "ok", "elapsed_ns": samples, "launches": self._launches[candidate]}
        )


def turns(rng: np.random.Generator, candidates: Sequence[int], rounds: int) -> Ints:
    """[rounds * len(candidates)]: a permutation of the candidates for each round, one after the other."""
    order = np.argsort(rng.random((rounds, len(candidates))), axis=1)
    return np.asarray(candidates, dtype=np.int64)[order].reshape(-1)
