"""One problem, several candidates: who takes how many samples, in which order.

The screen gives every template a few samples. Those that may still be the fastest, or tie with it, are the contenders:
their smallest screen sample is at most ``1 + contender_margin`` times the smallest screen median. The final gives each
contender ``rounds`` fresh samples, and these alone make up its time, so that no lucky sample of the screen decides (no
winner's curse). The default template, its control and the vendor's kernels take part in the last ``reference_rounds``
rounds of the final in any case, and a contender without a rival in these alone. All samples are kept. In each round the
candidates take turns in another shuffled order, so that a drift of clocks meets all of them alike.
"""

from collections.abc import Sequence
from statistics import median

import numpy as np

from tilearena.dataset import Ints
from tilearena.records import Measurement, Problem, Protocol
from tilearena.runner import Failure, Runner


def measure_problem(runner: Runner, problem: Problem, protocol: Protocol, which: Sequence[int]) -> list[Measurement]:
    """Prove and time some candidates on one problem; one Measurement for each of ``which``, in that order.

    Raises:
        DeviceFailedError: the GPU failed; nothing more can run in this process.
    """
    race = Race(runner, problem, protocol, which)
    race.screen()
    race.final()
    return race.rows()


class Race:
    """The state of one problem while it is measured."""

    def __init__(self, runner: Runner, problem: Problem, protocol: Protocol, which: Sequence[int]) -> None:
        self._runner, self._problem, self._protocol, self._which = runner, problem, protocol, which
        self._rng = np.random.default_rng([protocol.seed, problem.m, problem.n, problem.k])
        begun = runner.begin(problem, protocol, which)
        self._launches, self._failures = begun.launches, dict(begun.failures)
        self._samples: dict[int, list[int]] = {i: [] for i in which}

    def screen(self) -> None:
        """A few samples of every template."""
        rounds = self._protocol.screen_rounds
        templates = [i for i in self._alive() if self._runner.candidates[i].origin == "template"]
        self._sample([turns(self._rng, templates, rounds)])

    def contenders(self) -> list[int]:
        """Templates that the screen does not tell from the fastest; without a screen all candidates."""
        screened = {i: self._samples[i] for i in self._alive() if self._samples[i]}
        if not screened:
            return self._alive() if not self._protocol.screen_rounds else []
        limit = (1 + self._protocol.contender_margin) * min(median(samples) for samples in screened.values())
        return [i for i, samples in screened.items() if min(samples) <= limit]

    def final(self) -> None:
        """Fresh samples of the contenders, and of the default, its control and the vendor's kernels."""
        contenders = self.contenders()
        also = set(contenders) | {i for i in self._alive() if self._is_reference(i)}
        both = [i for i in self._which if i in also]
        last = self._protocol.reference_rounds
        contested = len(contenders) > 1 or not self._protocol.screen_rounds
        first = turns(self._rng, contenders, self._protocol.rounds - last if contested else 0)
        self._sample([first, turns(self._rng, both, last)])

    def rows(self) -> list[Measurement]:
        """What came of it."""
        return [self._row(i) for i in self._which]

    def _alive(self) -> list[int]:
        return [i for i in self._which if i not in self._failures]

    def _is_reference(self, candidate: int) -> bool:
        return candidate == self._runner.default or self._runner.candidates[candidate].origin != "template"

    def _sample(self, parts: Sequence[Ints]) -> None:
        order = np.concatenate(parts).tolist()
        if not order:
            return
        elapsed_ns, failures = self._runner.sample(order)
        self._failures |= failures
        for candidate, time_ns in zip(order, elapsed_ns, strict=True):
            self._samples[candidate].append(time_ns)

    def _row(self, candidate: int) -> Measurement:
        shape = {"m": self._problem.m, "n": self._problem.n, "k": self._problem.k, "candidate": candidate}
        failure: Failure | None = self._failures.get(candidate)
        if failure is not None:
            return Measurement.model_validate(shape | {"status": failure.status, "reason": failure.reason})
        times = {"status": "ok", "elapsed_ns": tuple(self._samples[candidate]), "launches": self._launches[candidate]}
        return Measurement.model_validate(shape | times)


def turns(rng: np.random.Generator, candidates: Sequence[int], rounds: int) -> Ints:
    """[rounds * len(candidates)]: a permutation of the candidates for each round, one after the other."""
    order = np.argsort(rng.random((rounds, len(candidates))), axis=1)
    return np.asarray(candidates, dtype=np.int64)[order].reshape(-1)
