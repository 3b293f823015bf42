"""Beyond the sizes that it was trained on, gbdt ranks by the heuristic and the mean of several corrections."""

import numpy as np
import pytest
from synthetic_tables import TABLE

from tilearena.predictors import gbdt
from tilearena.predictors.features import features
from tilearena.predictors.gbdt import Gbdt

SMALL = TABLE.problems.prod(axis=1) < np.median(TABLE.problems.prod(axis=1))


@pytest.fixture
def trained(monkeypatch):
    """Fitted on the smaller half, with few trees."""
    monkeypatch.setattr(gbdt, "TREES", 20)
    monkeypatch.setattr(gbdt, "CORRECTING_TREES", 10)
    predictor = Gbdt()
    predictor.fit(TABLE.take(SMALL), 0)
    return predictor


def test_costs_beyond_the_trained_sizes_have_the_mean_of_corrections_that_differ(trained):
    large = TABLE.take(~SMALL)
    x = features(large.problems, large.task)
    flat = x.reshape(-1, x.shape[-1])
    corrections = [trees.predict(flat).reshape(x.shape[:2]) for trees in trained._corrections]
    assert len(corrections) == gbdt.CORRECTIONS > 1
    assert len({one.tobytes() for one in corrections}) == len(corrections)
    log_ns = trained._heuristic.log_ns(large.problems, large.task) + sum(corrections) / len(corrections)
    expected = np.sqrt(log_ns - log_ns.min(axis=1, keepdims=True))
    np.testing.assert_allclose(trained.costs(large.problems, large.task), expected, atol=1e-6)


def test_costs_within_the_trained_sizes_are_those_of_the_trees(trained):
    small = TABLE.take(SMALL)
    x = features(small.problems, small.task)
    expected = trained._trees.predict(x.reshape(-1, x.shape[-1])).reshape(x.shape[:2])
    np.testing.assert_array_equal(trained.costs(small.problems, small.task), expected)
