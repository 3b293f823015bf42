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


@pytest.mark.parametrize("table", [TABLE.take(SMALL), TABLE.take(~SMALL)], ids=["within", "beyond"])
def test_shortlist_is_rated_by_all_trees_and_the_rest_by_the_first(trained, table, monkeypatch):
    whole = trained.costs(table.problems, table.task)
    short = trained.costs(table.problems, table.task, shortlist=3)
    as_whole = np.isclose(short, whole, atol=1e-6).sum(axis=1)
    assert (as_whole >= 3).mean() > 0.95  # beyond: where the best of all is not on it, all are measured from another
    assert as_whole.mean() < whole.shape[1] - 1
    assert (short.argmin(axis=1) == whole.argmin(axis=1)).mean() > 0.8
    everyone = trained.costs(table.problems, table.task, shortlist=whole.shape[1])
    np.testing.assert_array_equal(everyone, whole)
    monkeypatch.setattr(gbdt, "FIRST_SHARE", 1.0)
    np.testing.assert_allclose(trained.costs(table.problems, table.task, shortlist=3), whole, atol=1e-6)


def test_neighbouring_seeds_have_no_correction_in_common(trained):
    """Of predictors with as many corrections."""
    other = Gbdt()
    other.fit(TABLE.take(SMALL), 1)
    texts = [trees.model_to_string() for one in (trained, other) for trees in one._corrections]
    assert len(set(texts)) == 2 * gbdt.CORRECTIONS


def test_fewer_corrections_can_be_asked_for(trained):
    """Under the seed 0 they are the first ones."""
    other = Gbdt(2)
    other.fit(TABLE.take(SMALL), 0)
    texts = [[trees.model_to_string() for trees in one._corrections] for one in (trained, other)]
    assert texts[1] == texts[0][:2]
