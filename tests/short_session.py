"""A session of 12 problems in batches of three, a hand that breaks, and what they leave on disk."""

import pytest
from inprocess import InProcessHand
from sweeping import session as whole_session

from tilearena import dataset, measure
from tilearena.anchors import anchor_problems

ANCHORS = anchor_problems("s8", None)[:4]


@pytest.fixture
def short_session():
    """The first 12 problems of quick, s8, cold."""
    return whole_session("quick", 12)


@pytest.fixture
def small_batches(monkeypatch):
    """Batches are of three problems."""
    monkeypatch.setattr(measure, "BATCH_PROBLEMS", 3)


@pytest.fixture
def recording_path(tmp_path):
    """Where a session is to be recorded."""
    return tmp_path / "r.parquet"


class Breaking(InProcessHand):
    """Raises ``error`` in place of measuring the problem with number ``at``, batch by batch."""

    def __init__(self, runner, at, error):
        super().__init__(runner)
        self.at, self.error = at, error

    def measure(self, order, stop, done=lambda n: None):
        if len(self.asked) + len(order.problems) > self.at:
            raise self.error
        return super().measure(order, stop, done)


def keys(path):
    rows = dataset.read(path).rows
    return list(zip(*(rows[c].to_pylist() for c in ("m", "n", "k", "candidate")), strict=True))


def expected_keys(session):
    return [(p.m, p.n, p.k, c) for p in session.problems for c in range(10)]


def measured(hand):
    return [problem for problem, which, _ in hand.asked if len(which) > 1]


def folder_of(path):
    (folder,) = path.parent.glob(".*.parts")
    return folder
