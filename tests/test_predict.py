"""The runner keeps every misbehaving plugin in its own process; fake plugins are put on the import path for that."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilearena import predict
from tilearena.conformance import synthetic_table, synthetic_task
from tilearena.dataset import Table
from tilearena.errors import PredictorError
from tilearena.predict import MAX_ANSWER_BYTES, UNKNOWN_VERSION, Prediction, cross_fit, fit_predict
from tilearena.predict_child import write_job
from tilearena.score import constant_pick
from tilearena.splits import Fold, plan

TABLE = synthetic_table(60)
FOLDS = plan("random", "quick", TABLE)

PLUGIN = """
import os, sys, threading, time
import numpy as np
from tilearena.plugins import Declined

class Plugin:
    name = "fake"
    version = "7"
    def fit(self, train, seed):
        self.train = train
    def costs(self, problems, task):
        P, T = len(problems), len(task.templates)
        {body}
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make a source text importable as module ``fake_plugin`` with an entry point, here and in child processes."""

    def _install(source: str, name: str = "fake", group: str = "tilearena.predictors") -> None:
        (tmp_path / "fake_plugin.py").write_text(source)
        info = tmp_path / "fake_plugin-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-plugin\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{name} = fake_plugin:Plugin\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    return _install


def run(time_limit_s: float = 60.0) -> Prediction:
    return cross_fit("fake", FOLDS, TABLE, time_limit_s=time_limit_s)


def assert_failed(prediction: Prediction, reason: str) -> None:
    assert prediction.status == "failed"
    assert prediction.reason == reason
    assert prediction.picks.shape == (60, 8)
    assert (prediction.picks == -1).all()
    assert prediction.predict_us is None
    expected = np.empty(60, dtype=np.int64)
    for fold in FOLDS:
        expected[fold.test_rows] = constant_pick(fold.train)
    assert (prediction.constant_picks == expected).all()


def test_cross_fit_ranks_every_test_row_by_cost(install):
    install(PLUGIN.format(body="return problems[:, :1] % 7 * np.arange(T)[::-1] + 0.0 * np.ones((P, T))"))
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


def test_predict_us_is_the_time_per_problem(install):
    install(PLUGIN.format(body="time.sleep(0.05 * P / 12)\n        return np.zeros((P, T))"))
    assert run().predict_us == pytest.approx(0.05e6 / 12, rel=0.5)


def test_child_gets_training_times_only(install, monkeypatch):
    written = []

    def noting(folder, job):
        write_job(folder, job)
        assert sorted(os.listdir(folder)) == ["job.json", "job.npz"]
        with np.load(folder / "job.npz") as stored:
            written.append(dict(stored.items()))

    monkeypatch.setattr(predict, "write_job", noting)
    install(PLUGIN.format(body="assert 'TILEARENA_ROOT' not in os.environ\n        return np.zeros((P, T))"))
    assert run().reason == ""
    assert len(written) == len(FOLDS) == 5
    for job, fold in zip(written, FOLDS, strict=True):
        tested = TABLE.time_ns[fold.test_rows]
        assert job.keys() == {"train", "time_ns", "problems"}
        assert (job["problems"] == TABLE.problems[fold.test_rows]).all()
        assert not set(map(tuple, job["train"].tolist())) & set(map(tuple, job["problems"].tolist()))
        assert job["time_ns"].shape == (48, 9)
        assert not np.isin(tested[np.isfinite(tested)], job["time_ns"]).any()


def test_plugin_that_remembers_other_folds_gains_nothing(install):
    source = PLUGIN.format(
        body="return np.array([MEMO.get(tuple(p), np.zeros(T)) for p in problems.tolist()])"
    ).replace("self.train = train", "MEMO.update(zip(map(tuple, train.problems.tolist()), train.time_ns))")
    install(source.replace("class Plugin:", "MEMO = {}\n\nclass Plugin:"))
    prediction = run()
    assert prediction.reason == ""
    assert (prediction.picks == np.arange(8)).all()  # it knew no tested problem


def test_plugin_that_reads_every_file_in_reach_finds_no_times(install):
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
    install(PLUGIN.format(body=body).replace("import os, sys,", "import os, sys, tempfile,"))
    assert run().reason == ""


def test_each_fold_gets_a_fresh_instance_and_the_seed(install):
    source = PLUGIN.format(body="return np.tile(np.roll(np.arange(T), self.seed), (P, 1))").replace(
        "self.train = train", "assert not hasattr(self, 'seed'); self.seed = seed"
    )
    install(source)
    prediction = cross_fit("fake", FOLDS, TABLE, seed=3)
    assert prediction.reason == ""
    assert (prediction.picks[:, 0] == 3).all()


def test_rows_that_are_not_finite_have_no_pick(install):
    body = """
        costs = np.zeros((P, T)); bad = problems[:, 0] % 2 == 1
        costs[bad, 3] = np.where(problems[bad, 0] % 4 == 1, np.nan, np.inf)
        return costs"""
    install(PLUGIN.format(body=body))
    prediction = run()
    odd = TABLE.problems[:, 0] % 2 == 1
    assert prediction.status == "ok"
    assert (prediction.picks[odd] == -1).all()
    assert (prediction.picks[~odd] == np.arange(8)).all()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "raise ValueError('no\\n  good')",
            "predictor 'fake' raised ValueError in costs (fake_plugin.py, line 13): no good",
        ),
        ("sys.exit(0)", "predictor 'fake' raised SystemExit in costs (fake_plugin.py, line 13): 0"),
        ("return np.zeros((P, T - 1))", "predictor 'fake' answered costs of shape (12, 8), expected (12, 9)"),
        ("return np.zeros((T, P))", "predictor 'fake' answered costs of shape (9, 12), expected (12, 9)"),
        ("return np.full((P, T), 'a')", "predictor 'fake' answered costs of type <U1, expected float64"),
        ("return np.zeros((P, T), complex)", "predictor 'fake' answered costs of type complex128, expected float64"),
        ("return None", "predictor 'fake' answered costs of shape (), expected (12, 9)"),
        ("return [[1], [2, 3]]", "predictor 'fake' answered list, not an array of costs"),
        ("os._exit(3)", "predictor 'fake' ended its process without an answer (exit code 3)"),
        ("os._exit(0)", "predictor 'fake' ended its process without an answer (exit code 0)"),
        ("import ctypes; ctypes.string_at(0)", "predictor 'fake' was killed by SIGSEGV"),
        ("os.kill(os.getpid(), 9)", "predictor 'fake' was killed by SIGKILL"),
        (
            "problems[0, 0] = 1",
            "predictor 'fake' raised ValueError in costs (fake_plugin.py, line 13): "
            "assignment destination is read-only",
        ),
    ],
)
def test_misbehaving_plugin_becomes_a_failed_prediction(install, body, reason):
    install(PLUGIN.format(body=body))
    prediction = run()
    assert_failed(prediction, reason)
    assert prediction.version == "7"


def test_time_limit_stops_the_plugin_and_what_it_started(install, tmp_path):
    marker = tmp_path / "alive"
    body = f"""
        import subprocess
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3); open({str(marker)!r}, 'w')"])
        time.sleep(1000)"""
    install(PLUGIN.format(body=body))
    start = time.monotonic()
    assert_failed(run(time_limit_s=2), "predictor 'fake' took longer than 2 s and was stopped")
    assert time.monotonic() - start < 20
    time.sleep(3)
    assert not marker.exists()


def test_time_limit_is_for_all_folds_together(install):
    source = PLUGIN.format(body="return np.zeros((P, T))").replace("self.train = train", "time.sleep(1)")
    install(source)
    assert_failed(run(time_limit_s=4), "predictor 'fake' took longer than 4 s and was stopped")


def test_predict_us_is_the_median_over_folds(install):
    slow = FOLDS[3].train.problems[0].tolist()
    source = PLUGIN.format(body="time.sleep(self.pause)\n        return np.zeros((P, T))").replace(
        "self.train = train", f"self.pause = 0.5 if train.problems[0].tolist() == {slow} else 0.012"
    )
    install(source)
    assert [fold.train.problems[0].tolist() == slow for fold in FOLDS].count(True) == 1
    assert run().predict_us == pytest.approx(1e3, rel=0.5)


def test_plugin_that_ignores_signals_and_leaves_threads_behind_is_stopped(install):
    body = """
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        threading.Thread(target=time.sleep, args=(1000,)).start()
        return np.zeros((P, T))"""
    install(PLUGIN.format(body=body))
    assert run().status == "ok"


def test_prints_of_a_plugin_do_not_disturb_the_answer(install):
    body = """
        for stream in (1, 2):
            for _ in range(20): os.write(stream, b"{\\x00}" * (1 << 20))
        print('{"status": "ok"}', flush=True)
        return np.zeros((P, T))"""
    install(PLUGIN.format(body=body))
    assert (run().picks == np.arange(8)).all()


@pytest.mark.parametrize("file", ["answer.json", "costs.npz"])
def test_damaged_answer_is_a_failure(install, file):
    # only a hostile plugin can do this: it replaces what the child writes after it
    body = f"""
        import pathlib, tilearena.predict_child as child
        def leave(code):
            pathlib.Path({file!r}).write_bytes(b"PK garbage")
            child_exit(code)
        child_exit, os._exit = os._exit, leave
        return np.zeros((P, T))"""
    install(PLUGIN.format(body=body))
    prediction = run()
    assert prediction.status == "failed"
    assert prediction.reason.startswith("predictor 'fake' left an unreadable answer")
    assert "\n" not in prediction.reason
    assert (prediction.picks == -1).all()


def test_declined_carries_the_reason(install):
    install(PLUGIN.format(body="raise Declined('only s4 is served')"))
    prediction = run()
    assert (prediction.status, prediction.reason) == ("declined", "'fake' declined: only s4 is served")
    assert (prediction.picks == -1).all()


def test_one_failing_fold_fails_the_whole_prediction(install):
    source = PLUGIN.format(body="return np.zeros((P, T))").replace(
        "self.train = train", f"assert train.problems[0].tolist() != {FOLDS[3].train.problems[0].tolist()}"
    )
    install(source)
    prediction = run()
    assert prediction.status == "failed"
    assert (prediction.picks == -1).all()


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            "import no_such_module_here",
            "predictor 'fake' cannot be imported: No module named 'no_such_module_here'; install the extra it needs",
        ),
        ("class Plugin: name = 'fake'", "predictor 'fake' lacks name, version, fit or costs"),
        (
            PLUGIN.format(body="").replace('"fake"', '"other"'),
            "predictor 'fake' calls itself 'other'; entry point and name must agree",
        ),
        (
            PLUGIN.format(body="").replace('"7"', "7"),
            "predictor 'fake' has version 7; it must be a string of 1 to 64 letters, digits, '.', '_' and '-'",
        ),
        (
            PLUGIN.format(body="").replace('"7"', '"../7"'),
            "predictor 'fake' has version '../7'; it must be a string of 1 to 64 letters, digits, '.', '_' and '-'",
        ),
        ("import sys\nsys.exit(3)", "predictor 'fake' cannot be created: SystemExit(3)"),
        (
            PLUGIN.format(body="").replace('"7"', "property(lambda self: 1 / 0)"),
            "predictor 'fake' cannot be created: ZeroDivisionError('division by zero')",
        ),
    ],
)
def test_plugin_that_cannot_be_loaded_is_a_failed_prediction(install, source, reason):
    install(source)
    prediction = run()
    assert_failed(prediction, reason)
    assert prediction.version == UNKNOWN_VERSION


def test_only_the_oracle_gets_the_measured_times(install):
    source = PLUGIN.format(body="return np.zeros((P, T))").replace('version = "7"', 'version = "7"; privileged = True')
    install(source, group="tilearena.baselines")
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


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise ValueError('red \\x1b[31m\\n\\u202e\\udcff')", r"red \x1b[31m \u202e\udcff"),
        ("raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})", "its message cannot be shown"),
    ],
)
def test_message_of_a_plugin_is_one_printable_line(install, body, message):
    install(PLUGIN.format(body=body))
    assert run().reason.endswith(f": {message}")


@pytest.mark.parametrize(
    "body",
    [
        "os.unlink('version.json'); os.mkfifo('version.json'); return np.zeros((P, T))",
        "open('version.json', 'w').write('\"../7\"'); return np.zeros((P, T))",
    ],
    ids=["pipe", "path"],
)
def test_version_that_the_plugin_forged_is_unknown(install, body):
    install(PLUGIN.format(body=body))
    prediction = run()
    assert (prediction.status, prediction.version) == ("ok", UNKNOWN_VERSION)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("truncate(1 << 29)", f"answer.json is no file of at most {MAX_ANSWER_BYTES} bytes"),
        ('write(\'{"status": "ok"}\')', f"costs.npz is no file of at most {MAX_ANSWER_BYTES} bytes"),
        ('write(\'{"status": "ok", "predict_us": -1}\')', "1 validation error for Answer"),
    ],
    ids=["huge", "pipe", "negative time"],
)
def test_answer_that_the_plugin_forged_is_a_failure(install, answer, why):
    install(PLUGIN.format(body=f"os.mkfifo('costs.npz'); open('answer.json', 'w').{answer}; os._exit(0)"))
    assert_failed(run(), f"predictor 'fake' left an unreadable answer ({why})")
