"""What `tilearena.pick` answers with: the GBDT, distilled into one decision tree over whole numbers.

The GBDT is fitted on the training part and then rates many more problems, drawn at random; the tree is grown on these
and on the measured ones. What it is to lose little of is the root of how far a template is behind the best by what the
GBDT predicts: another choice than the GBDT's really loses several times what the GBDT says, so that small distances
weigh more than they seem to.

What is stored of it, and how it answers, is `tilearena.picker`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilearena.figures import log_slowdown, measured_tables
from tilearena.picker import terms
from tilearena.picker.able import unable_last
from tilearena.picker.grow import evaluate, grow
from tilearena.picker.model import Model
from tilearena.picker.prune import model_of
from tilearena.plugins import require_same_templates
from tilearena.predictors.gbdt import Gbdt
from tilearena.records import K_ALIGNMENT, N_ALIGNMENT, Template
from tilearena.search import constant_set
from tilearena.table import Floats, Ints, Table, Task

#: A tree chooses among so many templates, the set that together is the best on the training part. On h200-all (s8, hot,
#: five folds of ``random``) 40 of them lost 0.02 points of mean regret more, which may be chance.
MOST_TEMPLATES = 60
#: Drawn problems that the GBDT rates, for each measured time of a template that is chosen among, and at most: many,
#: since a tree sees where a template loses a wave only from problems there. On h200-all (s8, five folds of ``random``)
#: 140,000 lost 0.15 (hot) and 0.09 (cold) points of mean regret more than the GBDT did, half of them 0.27 and 0.19,
#: give or take 0.1 by which are drawn. Without the root of the costs 140,000 lost 0.25 and 0.28.
DRAWN_EACH, MOST_DRAWN = 4, 160_000
#: Fewer than the GBDT has: a leaf is a mean over many drawn problems anyway, and each set takes its time to fit.
CORRECTIONS = 2
#: Of each drawn problem the GBDT rates so many templates by all its trees. So many problems at a time bound the memory.
SHORTLIST, AT_A_TIME = 8, 2_000
#: How many times as large as measured problems a share of them may be: a network's layers are often larger than these.
#: Where all are, they see less of what lies within (0.39 points for 0.23); where none is, ``networks`` after
#: ``lowbit-random`` loses 1.9 points more than the GBDT does. So figures of both are slightly kind.
BEYOND, BEYOND_SHARE = 4, 0.25
#: What a measured problem counts, where a drawn one counts 1.
MEASURED_WEIGHT = 3.0
#: To be behind by more than this (2.7 times the time of the best) is as bad as this; 1 is its own root, so it is the
#: most of a distance as of a cost.
MOST_COST = 1.0
#: As in the shipped workloads: steps of N and K, and the share of problems that keep to the alignment only.
STEPS, RAGGED_SHARE = (64, 128), 0.2


@dataclass(frozen=True)
class _Part:
    """Problems [P, 3] of one device, what each template would lose on them [P, T], and their weight."""

    problems: Ints
    costs: Floats
    sm_count: int
    weight: float


class Picker:
    """One tree; its leaves rank templates by their mean cost among what came there."""

    name = "picker"
    version = "4"

    def fit(self, train: Table, seed: int) -> None:
        """Fit the GBDT, let it rate drawn problems, and grow the tree.

        Raises:
            Declined: the GBDT declines, or a table of another device has no measured problem.
        """
        tables = measured_tables(train)
        train = replace(tables[0], others=tuple(tables[1:]))
        teacher = Gbdt(CORRECTIONS)
        teacher.fit(train, seed)
        # in the order of their use, and in space order; the default is one of them
        useful = list(dict.fromkeys([*constant_set(train, MOST_TEMPLATES).tolist(), train.task.default]))
        self._task, self._kept = train.task, np.sort(useful)
        self._mean = np.sqrt(log_slowdown(train.time_ns)).mean(axis=0)
        parts = [part for table in train.tables for part in self._parts(table, teacher, seed, len(tables))]
        asked = terms.candidates(train.task.templates[i] for i in useful)
        values = [evaluate(asked, part.problems, part.sm_count) for part in parts]
        weights = [np.full(len(part.problems), part.weight) for part in parts]
        costs = np.concatenate([part.costs for part in parts])
        self._tree = grow(asked, np.concatenate(values), costs, np.concatenate(weights))

    @property
    def _templates(self) -> list[Template]:
        return [self._task.templates[i] for i in self._kept]

    def _parts(self, table: Table, teacher: Gbdt, seed: int, n_tables: int) -> Iterator[_Part]:
        """The measured problems of a device, and drawn ones."""
        sm_count = table.task.device.sm_count
        slowdown = log_slowdown(table.time_ns)[:, self._kept]
        yield _Part(table.problems, _cost(np.sqrt(slowdown)), sm_count, MEASURED_WEIGHT)
        drawn = _drawn(table, min(DRAWN_EACH * slowdown.size, MOST_DRAWN // n_tables), seed)
        pieces = np.array_split(drawn, range(AT_A_TIME, len(drawn), AT_A_TIME))
        rated = np.concatenate([teacher.costs(piece, table.task, self._kept, SHORTLIST) for piece in pieces])
        yield _Part(drawn, _cost(rated - rated.min(axis=1, keepdims=True)), sm_count, 1.0)

    def costs(self, problems: Ints, task: Task) -> Floats:
        """Float64 [P, T]: mean cost in the leaf; then come templates that no leaf chooses, then what cannot run."""
        require_same_templates(self.name, self._task, task)
        costs = np.tile(MOST_COST + self._mean, (len(problems), 1))
        costs[:, self._kept] = self._tree.costs[self._tree.leaves(problems, task.device.sm_count)]
        return unable_last(costs, problems, task.templates)

    def model(self, about: dict[str, Any]) -> Model:
        """What is stored of the fitted tree, for the device that it was fitted on."""
        return model_of(self._tree, self._templates, self._task.device.sm_count, about)


def _cost(distance: Floats) -> Floats:
    """Of templates that are so far behind the best, in square roots of logs."""
    cost: Floats = np.sqrt(np.minimum(distance, MOST_COST))
    return cost


def _drawn(table: Table, count: int, seed: int) -> Ints:
    """About ``count`` log-uniform problems, int64 [D, 3].

    They lie within the extents and multiply-adds of ``table``, a share of BEYOND_SHARE within BEYOND times these.
    Further out its times say too little, and there the tree answers as at its edge.
    """
    rng = np.random.default_rng(seed)
    times = np.where(rng.random((count, 1)) < BEYOND_SHARE, BEYOND, 1)
    low, high = table.problems.min(axis=0), times * table.problems.max(axis=0)
    units = np.array([1, N_ALIGNMENT, K_ALIGNMENT[table.task.dtype]])
    steps = np.lcm(units, np.where(units > 1, rng.choice(STEPS, (count, 3)), 1))
    steps = np.where(rng.random((count, 1)) < RAGGED_SHARE, units, steps)
    extents = low * (high / low) ** rng.random((count, 3))
    drawn = np.maximum(np.rint(extents / steps), 1).astype(np.int64) * steps
    within: Ints = drawn[drawn.prod(axis=1) <= times[:, 0] * table.problems.prod(axis=1).max()]
    return within
