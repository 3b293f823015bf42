"""Which GPUs the verb `measure` takes, and what it tells them."""

import pytest

from tilearena import cli_measure, cluster
from tilearena.cli_measure import Where
from tilearena.errors import MeasureError, SpecError


@pytest.mark.parametrize("change", [{"workers": 2}, {"ordinal": 1}])
def test_scheduler_takes_its_own_gpus(change):
    where = {"ordinal": 0, "workers": 1, "scheduler": "h:1", "sms": None, "torch": True} | change
    with pytest.raises(SpecError, match=r"^--scheduler takes its workers' GPUs; leave --workers and --gpu out$"):
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
