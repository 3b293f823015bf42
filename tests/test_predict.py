"""A predictor runs in processes of its own, one for each fold, which get training times only."""

import os
from dataclasses import replace

import numpy as np
import pytest
from faking import FOLDS, PLUGIN, TABLE, assert_failed, run

from tilearena import predict
from tilearena.conformance import synthetic_task
from tilearena.errors import PredictorError
from tilearena.predict import cross_fit, fit_predict
from tilearena.predict_child import write_job
from tilearena.score import constant_pick
from tilearena.splits import Fold, plan
from tilearena.table import Table


def test_cross_fit_ranks_every_test_row_by_cost(install_fake):
    install_fake(PLUGIN.format(body="return problems[:, :1] % 7 * np.arange(T)[::-1] + 0.0 * np.ones((P, T))"))
    prediction = run()
    assert (prediction.name, prediction.version, prediction.status, prediction.reason) == ("fake", "7", "ok", "")
    descending = TABLE.problems[:, 0] % 7 > 0
    assert descending.any()
    assert not descending.all()
    assert (prediction.picks[descending] == np.arange(8, 0, -1)).all()
    assert (prediction.picks[~descending] == np.arange(8)).all()  # ties rank in space order
    assert prediction.picks.dtype == np.int64
    assert prediction.predict_us is not None
    assert 0 < prediction.predict_us < 1e5


def test_predict_us_is_the_time_per_problem(install_fake):
    install_fake(PLUGIN.format(body="time.sleep(0.05 * P / 12)\n        return np.zeros((P, T))"))
    assert run().predict_us == pytest.approx(0.05e6 / 12, rel=0.5)


def test_child_gets_training_times_only(install_fake, monkeypatch):
    written = []

    def noting(folder, job, limits):
        write_job(folder, job, limits)
        assert sorted(os.listdir(folder)) == ["job.json", "job.npz"]
        with np.load(folder / "job.npz") as stored:
            written.append(dict(stored.items()))

    monkeypatch.setattr(predict, "write_job", noting)
    install_fake(PLUGIN.format(body="return np.zeros((P, T))"))
    assert run().reason == ""
    assert len(written) == len(FOLDS) == 5
    for job, fold in zip(written, FOLDS, strict=True):
        tested = TABLE.time_ns[fold.test_rows]
        assert job.keys() == {"train_0", "time_ns_0", "problems"}
        assert (job["problems"] == TABLE.problems[fold.test_rows]).all()
        assert not set(map(tuple, job["train_0"].tolist())) & set(map(tuple, job["problems"].tolist()))
        assert job["time_ns_0"].shape == (48, 9)
        assert not np.isin(tested[np.isfinite(tested)], job["time_ns_0"]).any()


def test_child_gets_the_tables_of_further_devices(install_fake):
    task = TABLE.task
    devices = [task.device.model_copy(update={"sm_count": count}) for count in (100, 80, 60)]
    first, second, third = (
        Table(replace(task, device=device), TABLE.problems[rows], TABLE.time_ns[rows] * (i + 1))
        for i, (device, rows) in enumerate(zip(devices, (slice(0, 30), slice(5, 25), slice(7, 9)), strict=True))
    )
    sums = [[len(t.problems), t.task.device.sm_count, t.time_ns[:, 1].sum()] for t in (first, second, third)]
    body = f"""
        tables = self.train.tables
        assert tables[0] is self.train and not any(t.others for t in tables[1:])
        assert [[len(t.problems), t.task.device.sm_count, t.time_ns[:, 1].sum()] for t in tables] == {sums}
        assert not any(t.time_ns.flags.writeable or t.problems.flags.writeable for t in tables)
        return np.zeros((P, T))"""
    install_fake(PLUGIN.format(body=body))
    train = replace(first, others=(second, third))
    prediction = cross_fit("fake", [Fold(train, np.arange(40, 60))], TABLE)
    assert prediction.reason == ""
    assert (prediction.constant_picks[40:] == constant_pick(first)).all()


def test_taking_rows_of_a_table_leaves_the_tables_of_further_devices():
    whole = replace(TABLE, others=(TABLE.take(np.arange(4)),))
    part = whole.take(np.array([2, 1]))
    assert part.problems.tolist() == TABLE.problems[[2, 1]].tolist()
    assert [len(t.problems) for t in part.tables] == [2, 4]
    assert TABLE.tables == (TABLE,)


def test_plugin_that_remembers_other_folds_gains_nothing(install_fake):
    source = PLUGIN.format(
        body="return np.array([MEMO.get(tuple(p), np.zeros(T)) for p in problems.tolist()])"
    ).replace("self.train = train", "MEMO.update(zip(map(tuple, train.problems.tolist()), train.time_ns))")
    install_fake(source.replace("class Plugin:", "MEMO = {}\n\nclass Plugin:"))
    prediction = run()
    assert prediction.reason == ""
    assert (prediction.picks == np.arange(8)).all()  # it knew no tested problem


def test_plugin_that_reads_every_file_in_reach_finds_no_times(install_fake):
    body = """
        from pathlib import Path
        needle, read = self.train.time_ns[0].tobytes(), []
        for place in (Path.cwd(), Path(tempfile.gettempdir()), *map(Path, sys.argv), Path("/proc/self/fd")):
            for path in (place, *place.rglob("*")):
                if path.is_file():
                    read.append(path.name)
                    assert needle not in path.read_bytes(), path
        assert "version.json" in read and "job.json" not in read, read
        return np.zeros((P, T))"""
    install_fake(PLUGIN.format(body=body).replace("import os, sys,", "import os, sys, tempfile,"))
    assert run().reason == ""


def test_each_fold_gets_a_fresh_instance_and_the_seed(install_fake):
    source = PLUGIN.format(body="return np.tile(np.roll(np.arange(T), self.seed), (P, 1))").replace(
        "self.train = train", "assert not hasattr(self, 'seed'); self.seed = seed"
    )
    install_fake(source)
    prediction = cross_fit("fake", FOLDS, TABLE, seed=3)
    assert prediction.reason == ""
    assert (prediction.picks[:, 0] == 3).all()


def test_rows_that_are_not_finite_have_no_pick(install_fake):
    body = """
        costs = np.zeros((P, T)); bad = problems[:, 0] % 2 == 1
        costs[bad, 3] = np.where(problems[bad, 0] % 4 == 1, np.nan, np.inf)
        return costs"""
    install_fake(PLUGIN.format(body=body))
    prediction = run()
    odd = TABLE.problems[:, 0] % 2 == 1
    assert prediction.status == "ok"
    assert (prediction.picks[odd] == -1).all()
    assert (prediction.picks[~odd] == np.arange(8)).all()


def test_predict_us_is_the_median_over_folds(install_fake):
    slow = FOLDS[3].train.problems[0].tolist()
    source = PLUGIN.format(body="time.sleep(self.pause)\n        return np.zeros((P, T))").replace(
        "self.train = train", f"self.pause = 0.5 if train.problems[0].tolist() == {slow} else 0.012"
    )
    install_fake(source)
    assert [fold.train.problems[0].tolist() == slow for fold in FOLDS].count(True) == 1
    assert run().predict_us == pytest.approx(1e3, rel=0.5)


def test_declined_carries_the_reason(install_fake):
    install_fake(PLUGIN.format(body="raise Declined('only s4 is served')"))
    prediction = run()
    assert (prediction.status, prediction.reason) == ("declined", "'fake' declined: only s4 is served")
    assert (prediction.picks == -1).all()


def test_only_the_oracle_gets_the_measured_times(install_fake):
    source = PLUGIN.format(body="return np.zeros((P, T))").replace('version = "7"', 'version = "7"; privileged = True')
    install_fake(source, group="tilearena.baselines")
    assert_failed(run(), "predictor 'fake' asks for the measured times, which only the oracle gets")
    oracle = cross_fit("oracle", FOLDS, TABLE)
    assert (oracle.picks[:, 0] == TABLE.time_ns.argmin(axis=1)).all()


def test_unknown_predictor_is_the_users_mistake():
    with pytest.raises(PredictorError, match=r"no predictor named 'gdbt'; installed: .*gbdt"):
        cross_fit("gdbt", FOLDS, TABLE)


def test_fit_predict_ranks_problems_of_another_device():
    task = synthetic_task()
    elsewhere = replace(task, device=task.device.model_copy(update={"sm_count": 50, "slug": "half"}))
    prediction = fit_predict("constant", TABLE, TABLE.problems[:7], elsewhere)
    assert prediction.picks.shape == (7, 8)
    assert (prediction.picks[:, 0] == constant_pick(TABLE)).all()
    assert (prediction.constant_picks == constant_pick(TABLE)).all()


def test_fit_predict_refuses_other_templates():
    with pytest.raises(PredictorError, match=r"'gbdt' cannot be moved from space 'synthetic' \(s8\) to .* \(b1\)"):
        fit_predict("gbdt", TABLE, TABLE.problems, synthetic_task("b1"))


def test_oracle_declines_problems_without_times():
    prediction = fit_predict("oracle", TABLE.take(np.arange(10)), TABLE.problems, TABLE.task)
    assert prediction.status == "declined"
    assert "no measured times" in prediction.reason


def test_rows_in_no_fold_have_no_pick():
    folds = [Fold(FOLDS[0].train, FOLDS[0].test_rows)]
    prediction = cross_fit("default", folds, TABLE)
    outside = np.setdiff1d(np.arange(60), FOLDS[0].test_rows)
    assert (prediction.picks[outside] == -1).all()
    assert (prediction.constant_picks[outside] == -1).all()
    assert (prediction.picks[FOLDS[0].test_rows, 0] == TABLE.task.default).all()


def test_spaces_of_fewer_than_eight_templates_give_as_many_picks():
    task = replace(TABLE.task, templates=TABLE.task.templates[:3])
    small = Table(task, TABLE.problems, TABLE.time_ns[:, :3])
    assert cross_fit("constant", plan("random", "quick", small), small).picks.shape == (60, 3)
