"""The package's own tests: the rules of the contract are tilearena's, the idea is its own."""

import numpy as np
import pytest
from tilearena_waves import FILL, WAVES, Waves, places

from tilearena.conformance import conformance
from tilearena.plugins import Declined
from tilearena.synthetic import synthetic_table, synthetic_task, wide_task

TABLE = synthetic_table(600)


def test_waves_keeps_the_contract():
    """On made-up tables, in this process: `tilearena predictors test` does the same in others."""
    conformance("waves")


def test_places_count_waves_and_their_fill():
    """100 SMs; tiles of 128 x 256: 10 x 16 of them are two waves, 80 % full."""
    task = synthetic_task()
    (place,) = places(np.array([[1280, 4096, 64]]), task.templates[0], task.device)
    assert np.allclose(place, [np.log2(1280), 12, 6, WAVES * 1, FILL * 0.8])


def test_a_problem_that_was_measured_comes_back():
    """One neighbour is enough, and it is the problem itself."""
    table = TABLE.take(np.arange(1))
    waves = Waves()
    waves.fit(table, 0)
    assert waves.costs(table.problems, table.task).argmin() == table.time_ns.argmin()


def test_unseen_problems_are_ranked_better_than_by_the_best_single_template():
    """120 problems; the template that fails on some of them is left out of the comparison."""
    waves = Waves()
    waves.fit(TABLE.take(np.arange(480)), 0)
    log_time = np.log(TABLE.time_ns[480:, 1:])
    picks = waves.costs(TABLE.problems[480:], TABLE.task)[:, 1:].argmin(axis=1)
    assert log_time[np.arange(120), picks].mean() < log_time.mean(axis=0).min()


def test_other_templates_are_declined():
    """Nothing was measured of them."""
    waves = Waves()
    waves.fit(TABLE, 0)
    with pytest.raises(Declined, match="only the templates that it was trained on"):
        waves.costs(TABLE.problems, wide_task())
