"""A list of templates as points of a search space, and one study of Optuna's in it.

The parameters are the fields in which the templates differ (threadblock, stages, split-K, ...). Not every combination
is a template, and none is measured twice: what Optuna proposes is moved to the nearest template that is left.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Self

import numpy as np

from tilearena.errors import PredictorError
from tilearena.records import Template
from tilearena.table import Floats, Ints

#: Fields that are no choice: the problem's, and a name.
GIVEN = ("dtype", "bit_op", "label")


@dataclass(frozen=True)
class Points:
    """``codes`` [T, D]: which of its parameter's ``levels`` each template has; ``ordered`` where these are numbers."""

    names: tuple[str, ...]
    codes: Ints
    levels: tuple[int, ...]
    ordered: tuple[bool, ...]

    @classmethod
    def of(cls, templates: Sequence[Template]) -> Self:
        """The fewest parameters, in the order of the fields, that tell ``templates`` apart as well as all of them do.

        What follows from those before it (the warp from the threadblock, say) is none.
        """
        found: dict[str, tuple[Ints, int, bool]] = {}
        apart, kept = 1, np.zeros((len(templates), 0), dtype=np.int64)
        for name, values in _columns(templates):
            numbers = all(isinstance(value, int) and not isinstance(value, bool) for value in values)
            levels = sorted(set(values), key=None if numbers else str)
            column = np.array([levels.index(value) for value in values], dtype=np.int64)
            wider = np.column_stack([kept, column])
            if (distinct := len(np.unique(wider, axis=0))) > apart:
                apart, kept = distinct, wider
                found[name] = (column, len(levels), numbers)
        levels_of, ordered = [n for _, n, _ in found.values()], [numbers for *_, numbers in found.values()]
        return cls(tuple(found), kept, tuple(levels_of), tuple(ordered))

    def nearest(self, point: Sequence[int], left: Sequence[int], tie_break: Sequence[int]) -> int:
        """The template among ``left`` that is nearest to ``point`` [D], by ``tie_break`` [T] if several are.

        A parameter adds 1 where it differs; a number adds its share of the whole range. Source: Gower, A general
        coefficient of similarity and some of its properties, Biometrics 27 (1971).
        """
        apart = np.abs(self.codes[list(left)] - np.array(point, dtype=np.int64))
        span = np.maximum(np.array(self.levels, dtype=np.float64) - 1, 1)
        distance = np.where(self.ordered, apart / span, apart != 0).sum(axis=1).round(9)
        return left[int(np.lexsort((np.array(tie_break)[list(left)], distance))[0])]

    def study(self, time_ns: Floats, n_trials: int, startup: int, seed: int) -> list[int]:
        """The templates that a TPESampler measures, in its order; it is told their ``time_ns`` [T], and to minimise it.

        A template that fails (inf) takes a trial, too. It is told as pruned: worse than any that ran.

        Raises:
            PredictorError: Optuna is not installed.
        """
        optuna = _optuna()
        space = self._distributions(optuna)
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(n_startup_trials=startup, seed=seed))
        bits = np.random.PCG64(seed)
        left, order = list(range(len(time_ns))), list[int]()
        while left and len(order) < n_trials:
            proposed = study.ask(space)
            study.tell(proposed, state=optuna.trial.TrialState.FAIL)  # the one that is measured is added in its place
            point = [proposed.params[name] for name in self.names]
            choice = self.nearest(point, left, bits.random_raw(len(time_ns)).tolist())
            left.remove(choice)
            order.append(choice)
            params = dict(zip(self.names, self.codes[choice].tolist(), strict=True))
            outcome: dict[str, Any] = {"state": optuna.trial.TrialState.PRUNED}
            if np.isfinite(time_ns[choice]):
                outcome = {"value": float(time_ns[choice])}
            study.add_trial(optuna.trial.create_trial(params=params, distributions=space, **outcome))
        return order

    def _distributions(self, optuna: ModuleType) -> dict[str, Any]:
        numbers, choices = optuna.distributions.IntDistribution, optuna.distributions.CategoricalDistribution
        return {
            name: numbers(0, n - 1) if ordered else choices(tuple(range(n)))
            for name, n, ordered in zip(self.names, self.levels, self.ordered, strict=True)
        }


def _columns(templates: Sequence[Template]) -> Iterator[tuple[str, list[Any]]]:
    """Each field of the templates with its values [T]; a tuple is a field for each of its elements."""
    for name in Template.model_fields:
        values = [getattr(template, name) for template in templates]
        if name in GIVEN:
            continue
        if isinstance(values[0], tuple):
            for i, elements in enumerate(zip(*values, strict=True)):
                yield f"{name}_{i}", list(elements)
        else:
            yield name, values


def _optuna() -> ModuleType:
    try:
        import optuna  # an extra
    except ImportError as error:
        raise PredictorError(f"strategy 'tpe' needs Optuna ({error}); pip install 'tilearena[search]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
