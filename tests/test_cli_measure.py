"""Which GPUs the verb `measure` takes, and what it tells them."""

import pytest

from tilearena import cli_measure, cluster
from tilearena.cli_measure import Where
from tilearena.errors import MeasureError, SpecError
from tilearena.provenance import Anchors
from tilearena.records import Problem


@pytest.mark.parametrize("change", [{"workers": 2}, {"ordinal": 1}])
def test_scheduler_takes_its_own_gpus(change):
    where = {"ordinal": 0, "workers": 1, "scheduler": "h:1", "sms": None, "torch": True} | change
    with pytest.raises(SpecError, match=r"^--scheduler takes its workers' GPUs; leave --workers and --gpu out$"):
        Where(**where).device()


@pytest.mark.parametrize("change", [{"workers": 2}, {"scheduler": "h:1"}])
def test_slug_of_one_card_is_for_one_card(change):
    where = {"ordinal": 0, "workers": 1, "scheduler": None, "sms": None, "torch": True, "instance": True} | change
    with pytest.raises(SpecError, match=r"^--instance is for one card; leave --workers and --scheduler out"):
        Where(**where).device()


def test_partition_and_candidates_reach_the_workers_of_a_cluster(run, monkeypatch):
    asked = []

    def connect(address, opening, *, notice):
        asked.append((address, opening.arguments["sms"], opening.arguments["torch"]))
        raise MeasureError("it is not there")

    monkeypatch.setattr(cluster, "connect", connect)
    command = ("measure", "quick", "--scheduler", "h:1", "--sms", "72", "--no-torch")
    assert run(*command) == (2, "", "tilearena: it is not there\n")
    assert run(*command[:4])[0] == 2
    assert asked == [("h:1", 72, False), ("h:1", None, True)]
    assert cli_measure.Where(0, 1, "h:1", 72, torch=False).device() is None


def test_sample_is_evenly_spaced_over_the_problems():
    problems = tuple(Problem(dtype="s8", m=m, n=128, k=128) for m in range(1, 8))
    assert [p.m for p in cli_measure.sampled(problems, 3)] == [1, 3, 5]
    assert cli_measure.sampled(problems, 7) == cli_measure.sampled(problems, None) == problems
    with pytest.raises(SpecError, match=r"^--sample 8: there are 7 problems; give at most that$"):
        cli_measure.sampled(problems, 8)


def test_drift_is_said_to_the_middle_and_to_the_end_of_each_session():
    whole = Anchors(session="a", card=None, start_ns=(1000,), middle_ns=(1010,), end_ns=(980,))
    ended = Anchors(session="b", card=None, start_ns=(1000,), end_ns=(1000,))
    cut = Anchors(session="c", card=None, start_ns=(1000,))
    said = "+1.00 % to the middle and -2.00 % to the end, unknown to the middle and +0.00 % to the end"
    assert cli_measure._drift([whole, cut, ended]) == said
    assert cli_measure._drift([cut]) == cli_measure._drift([]) == "unknown"
