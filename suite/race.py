"""One problem, several candidates: who takes how many samples, in which order.

The screen gives every template a few samples. Those that may still be the fastest, or tie with it, are the contenders:
their smallest screen sample is at most ``1 + contender_margin`` times the smallest screen median. The final gives each
contender ``rounds`` fresh samples, and these alone make up its time, so that no lucky sample of the screen decides (no
winner's curse). The default template, its control and the vendor's kernels take part in the last ``reference_rounds``
rounds of the final in any case, and a contender without a rival in these alone. Should the contenders all turn out
slower than another template was in the screen, that one joins them in a second and last final. All samples are kept. In
each round the candidates take turns in another shuffled order, so that a drift of clocks meets all of them alike.
"""

from collections.abc import Sequence
from statistics import median

import numpy as np

from tilearena.dataset import Ints
from tilearena.records import Measurement, Problem, Protocol
from tilearena.runner import Failure, Runner


def measure_problem(
    runner: Runner,
    problem: Problem,
    protocol: Protocol,
    which: Sequence[int],
    following: tuple[Problem, Sequence[int]] | None = None,
) -> list[Measurement]:
    """Prove and time some candidates on one problem; one Measurement for each of ``which``, in that order.

    ``following`` is the problem that will be measured next under the same protocol, and its candidates.

    Raises:
        DeviceFailedError: the GPU failed, perhaps under the proof of the following problem; nothing more can run in
            this process.
    """
    race = Race(runner, problem, protocol, which)
    race.screen()
    contenders = race.contenders()
    if following is not None:
        runner.announce(following[0], protocol, following[1])
    race.final(contenders)
    if late := race.latecomers(contenders):
        race.final(sorted([*contenders, *late]))
    return race.rows()


class Race:
    """The state of one problem while it is measured."""

    def __init__(self, runner: Runner, problem: Problem, protocol: Protocol, which: Sequence[int]) -> None:
        self._runner, self._problem, self._protocol, self._which = runner, problem, protocol, which
        self._rng = np.random.default_rng([protocol.seed, problem.m, problem.n, problem.k])
        begun = runner.begin(problem, protocol, which)
        self._launches, self._failures = begun.launches, dict(begun.failures)
        self._screen: dict[int, list[int]] = {}
        self._fresh: dict[int, list[int]] = {i: [] for i in which}

    def screen(self) -> None:
        """A few samples of every template."""
        templates = [i for i in self._alive() if self._runner.candidates[i].origin == "template"]
        self._screen = {i: [] for i in templates}
        self._sample(turns(self._rng, templates, self._protocol.screen_rounds), self._screen)

    def contenders(self) -> list[int]:
        """Templates that the screen does not tell from the fastest; without a screen all candidates."""
        if not self._protocol.screen_rounds:
            return self._alive()
        screened = {i: samples for i, samples in self._screen.items() if i not in self._failures}
        shortest = min((median(samples) for samples in screened.values()), default=0)
        limit = (1 + self._protocol.contender_margin) * shortest
        return [i for i, samples in screened.items() if min(samples) <= limit]

    def final(self, contenders: Sequence[int]) -> None:
        """Fresh samples of the contenders, and of the default, its control and the vendor's kernels."""
        last = self._protocol.reference_rounds
        contested = len(contenders) > 1 or not self._protocol.screen_rounds
        alone = turns(self._rng, contenders, self._protocol.rounds - last if contested else 0)
        both = [i for i in self._alive() if i in contenders or self._is_reference(i)]
        self._sample(np.concatenate([alone, turns(self._rng, both, last)]), self._fresh)

    def latecomers(self, contenders: Sequence[int]) -> list[int]:
        """Other templates whose screen was faster than every contender's final."""
        finals = [median(self._fresh[i]) for i in contenders if i not in self._failures]
        others = [i for i in self._screen if i not in contenders and i not in self._failures]
        return [i for i in others if self._screen[i] and finals and median(self._screen[i]) < min(finals)]

    def rows(self) -> list[Measurement]:
        """What came of it."""
        return [self._row(i) for i in self._which]

    def _alive(self) -> list[int]:
        return [i for i in self._which if i not in self._failures]

    def _is_reference(self, candidate: int) -> bool:
        return candidate == self._runner.default or self._runner.candidates[candidate].origin != "template"

    def _sample(self, order: Ints, samples: dict[int, list[int]]) -> None:
        if not len(order):
            return
        elapsed_ns, failures = self._runner.sample(order.tolist())
        self._failures |= failures
        for candidate, time_ns in zip(order.tolist(), elapsed_ns, strict=True):
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
