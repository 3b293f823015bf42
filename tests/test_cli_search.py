"""`tilearena search` on the committed recordings: its tables, its files, and what it refuses."""

import json
from functools import partial

import numpy as np
import pytest
import standin
from standin import DEVICE

from tilearena import dataset, live, search_run
from tilearena.final import is_final
from tilearena.root import find_path
from tilearena.search_space import Points
from tilearena.spec import load_workload
from tilearena.worker_hand import WorkerHand

QUICK = ("search", "--spec", "quick", "--device", "nvidia-h200", "--dtype", "s8")
#: Without Optuna and without what trains for long.
FAST = (*QUICK, "--strategy", "random", "--strategy", "constant-k", "--predictor", "nearest")


@pytest.fixture
def searched(run):
    """Runs a search that succeeds: its JSON."""

    def _searched(*arguments):
        code, out, err = run(*arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    return _searched


def at(found, strategy, k, name="regret_mean"):
    return next(row[name] for row in found["rows"] if (row["strategy"], row["k"]) == (strategy, k))


def test_curves_of_random_constant_and_predictor_are_the_recordings(searched, run, checkout):
    found = searched(*FAST, "--predictor", "constant")
    times = dataset.read(find_path(checkout, "nvidia-h200", "quick", "paper9", "s8", "cold")).table.time_ns
    assert (found["n_problems"], found["n_of"], found["n_templates"], found["reward"]) == (42, 42, 9, "recording")
    assert at(found, "random", 1) == pytest.approx((times.mean(axis=1) / times.min(axis=1) - 1).mean())
    assert at(found, "random", 9) == at(found, "constant-k", 9) == 0
    assert [row["k"] for row in found["rows"] if row["strategy"] == "nearest"] == [1, 2, 4, 8]
    code, out, _ = run("score", "--spec", "quick", "--device", "nvidia-h200", "--dtype", "s8", "--json",
                       "--predictor", "nearest", "--predictor", "constant")  # fmt: skip
    assert code == 0
    for score in json.loads(out):
        for k in (1, 2, 4, 8):
            figures = [at(found, score["predictor"], k, f"regret_mean{end}") for end in ("", "_lo", "_hi")]
            assert figures == [score[f"regret_at_{k}{end}"] for end in ("", "_lo", "_hi")]
    # the first of the set is the best constant; the second is chosen to complement it
    assert at(found, "constant-k", 1) == at(found, "constant", 1)
    assert at(found, "constant-k", 2) < at(found, "random", 2)


@pytest.mark.parametrize("how", [(), ("--live", "2", "--replay")])
def test_workload_and_space_may_be_paths(searched, checkout, how):
    specs = checkout / "specs"
    given = ("--spec", specs / "workloads" / "quick.yaml", "--space", specs / "spaces" / "paper9.yaml", *FAST[3:], *how)
    assert searched("search", *given) == searched(*FAST, *how)


def test_other_content_under_a_recorded_name_is_refused(run, checkout, tmp_path):
    text = (checkout / "specs" / "spaces" / "paper9.yaml").read_text()
    (tmp_path / "paper9.yaml").write_text(text.replace("stages: [2, 3, 4]", "stages: [2, 3]"))
    code, _, err = run(*FAST, "--space", tmp_path / "paper9.yaml")
    assert (code, err.count("\n")) == (2, 1)
    assert "is of another space 'paper9' (fingerprint" in err


def test_search_by_optuna_looks_at_a_sample_and_says_so(searched):
    found = searched(*QUICK, "--strategy", "tpe", "--predictor", "constant", "--sample", "6", "--runs", "2",
                     "--trials", "3")  # fmt: skip
    assert (found["n_problems"], found["n_of"], found["runs"], found["trials"]) == (6, 42, 2, 3)
    assert [row["k"] for row in found["rows"] if row["strategy"] == "tpe"] == [1, 2, 3]
    assert at(found, "tpe", 3) <= at(found, "tpe", 1)


def test_search_of_many_problems_takes_200_of_them_for_optuna_and_all_without(searched):
    many = ("search", "--spec", "lowbit-random", "--device", "nvidia-h200", "--dtype", "s8", "--predictor", "constant")
    found = searched(*many, "--trials", "1", "--runs", "1")
    assert (found["n_problems"], found["n_of"]) == (200, 2000)
    assert {row["strategy"] for row in found["rows"]} == {"random", "tpe", "constant-k", "constant"}
    assert searched(*many, "--strategy", "random")["n_problems"] == 2000


def test_reward_by_the_repeat_leaves_a_regret_when_all_is_measured(searched):
    many = ("search", "--spec", "lowbit-random", "--device", "nvidia-h200", "--dtype", "s8", "--predictor", "constant")
    found = searched(*many, "--strategy", "random", "--by-repeat")
    assert (found["reward"], found["n_problems"]) == ("repeat", 2000)
    assert 0 < at(found, "random", 9) < 0.01 < at(found, "random", 1)


def test_table_has_a_row_for_each_k_and_says_what_flatters(run):
    code, out, _ = run(*FAST, "--sample", "21")
    assert code == 0
    title = "quick paper9 s8 cold random on nvidia-h200: mean regret after k measurements, 21 of 42 problems"
    assert out.splitlines()[0] == title
    rows = [line.split("│")[1:-1] for line in out.splitlines() if line.startswith("│")]
    assert [row[0].strip() for row in rows] == ["1", "2", "4", "8", "9"]
    assert rows[-1][1].strip() == "0.00 % (0.00..0.00)"
    assert rows[-1][3].strip() == "-"
    assert "at k = 9 nothing is lost" in out


def test_report_is_written_as_markdown_or_json(run, searched, tmp_path):
    page, data = tmp_path / "deep" / "curve.md", tmp_path / "curve.json"
    assert run(*FAST, "--out", page)[0] == 0
    lines = page.read_text().splitlines()
    assert lines[0].startswith("**quick paper9 s8 cold random on nvidia-h200")
    assert lines[2] == "| k | random | constant-k | nearest |"
    assert len([line for line in lines if line.startswith("|")]) == 2 + 5
    assert searched(*FAST, "--out", data) == json.loads(data.read_text())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--out", "curve.png"], "--out curve.png: give it a name that ends in .md or .json"),
        (["--replay"], "--replay says where the samples of --live come from; give --live, too"),
        (["--strategy", "grid"], "--strategy 'grid' is unknown; choose from random, tpe, constant-k"),
        (["--predictor", "oracles"], "--predictor 'oracles' is unknown; choose from "),
        (["--by-repeat"], "quick (s8, cold) has no repeat; record one with `tilearena measure --repeat`"),
        (["--split", "models"], "split 'models' tests the spec 'networks', not 'quick'; use --split random"),
    ],
)
def test_mistake_is_one_sentence(run, arguments, sentence):
    code, out, err = run(*FAST, *arguments)
    assert (code, out) == (2, "")
    assert err.strip().startswith(f"tilearena: {sentence}")
    assert err.strip().count("\n") == 0


def test_live_search_without_a_gpu_is_refused(child):
    done = child(*FAST, "--live", "2")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tilearena: no ")
    assert done.stderr.count("\n") == 1


def test_live_search_of_a_replay_keeps_the_best_of_the_picks_by_the_screen(searched, run):
    asked = (*FAST, "--live", "2", "--replay")
    found = searched(*asked)
    assert (found["k"], found["samples"], found["replayed"]) == (2, 3, True)
    rows = {row["predictor"]: row for row in found["rows"]}
    assert set(rows) == {"constant-k", "nearest"}
    for row in rows.values():
        assert row["regret_mean"] < row["first_regret_mean"]
        assert row["n_problems"] == 42
        assert row["timed_s_per_problem"] > 0
        assert row["live_regret_mean"] is row["seconds_per_problem"] is None
    code, out, _ = run(*asked)
    assert code == 0
    assert "3 samples of each pick choose" in out


def test_search_looks_at_what_the_split_tests_alone(searched, checkout):
    """Of lowbit-full the locked problems are left out, or they alone are looked at."""
    table = dataset.read(find_path(checkout, "nvidia-h200", "lowbit-full", "paper9", "s8", "cold")).table
    locked = is_final(table.problems)
    lost = table.time_ns.mean(axis=1) / table.time_ns.min(axis=1) - 1
    asked = ("search", "--spec", "lowbit-full", "--device", "nvidia-h200", "--dtype", "s8", "--predictor", "constant")
    asked = (*asked, "--strategy", "random", "--strategy", "constant-k")
    for split, tested in (("random", ~locked), ("final", locked)):
        found = searched(*asked, "--split", split)
        assert (found["n_problems"], found["n_of"]) == (tested.sum(), tested.sum())
        assert at(found, "random", 1) == pytest.approx(lost[tested].mean())
        assert at(found, "constant-k", 1) == at(found, "constant", 1)
    found = searched(*asked, "--live", "2", "--replay", "--sample", "30")
    assert (found["n_problems"], found["n_of"]) == (30, (~locked).sum())
    assert {row["predictor"]: row["n_problems"] for row in found["rows"]} == {"constant-k": 30, "constant": 30}


@pytest.fixture
def on_standin(monkeypatch, workers_find_the_standin, arena, run):
    """Runs a live search of quick on the formula, in a worker process: exit code, output, errors."""
    problems = load_workload("quick").problems_for("s8")
    arena.record("quick", "s8", np.array([[p.m, p.n, p.k] for p in problems]))
    monkeypatch.setattr(live, "pick_device", lambda: DEVICE.model_copy(update={"uuid_sha256": "abc"}))
    monkeypatch.setattr(search_run, "WorkerHand", partial(WorkerHand, read=dict))
    monkeypatch.setattr(search_run, "opening", lambda *_, **__: standin.opening(noise=0.0))

    def _on_standin(*arguments, device=DEVICE.slug):
        asked = ("search", "--spec", "quick", "--device", device, "--dtype", "s8", "--predictor", "constant")
        return run(*asked, "--strategy", "constant-k", "--root", arena.root, *arguments)

    return _on_standin


def test_live_search_measures_on_the_gpu_and_judges_by_a_fresh_run(on_standin):
    code, out, err = on_standin("--live", "8", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["samples"], found["replayed"], found["n_problems"]) == (16, False, 42)
    constant_k, constant = found["rows"]
    # by the formula without noise, eight of nine templates hold nearly always the best; the recording has noise
    assert constant_k["live_regret_mean"] < 0.001
    assert constant_k["regret_mean"] < 0.01 < constant_k["first_regret_mean"]
    assert constant["predictor"] == "constant"
    assert constant["seconds_per_problem"] > 0


def test_live_search_on_another_device_than_the_recordings_is_refused(on_standin, monkeypatch):
    other = DEVICE.model_copy(update={"slug": "other", "uuid_sha256": "abcdef0"})
    monkeypatch.setattr(live, "pick_device", lambda: other)
    code, out, err = on_standin("--live", "2")
    assert (code, out) == (2, "")
    sentence = f"this machine's GPU is other, and picks are made for {DEVICE.slug}; give the --device that is here"
    assert err.strip().splitlines()[-1] == f"tilearena: {sentence}"


def test_live_search_with_other_kernels_than_the_recordings_is_refused(on_standin, monkeypatch):
    monkeypatch.setattr(search_run, "opening", lambda *_, **__: standin.opening(dtype="b1"))
    code, out, err = on_standin("--live", "2")
    assert (code, out) == (2, "")
    sentence = "tilearena: space 'paper9' has other templates than when quick was recorded; measure it again"
    assert err.strip().splitlines()[-1] == sentence


def test_failing_predictor_is_named_and_the_rest_is_shown(run, third_party):
    third_party("bad", "raise ValueError('no idea')")
    code, out, err = run(*FAST, "--predictor", "bad", "--json")
    assert code == 1
    assert "tilearena: bad on quick s8 cold: " in err
    assert "no idea" in err
    assert {row["strategy"] for row in json.loads(out)["rows"]} == {"random", "constant-k", "nearest"}


def test_interrupted_search_ends_without_a_traceback(run, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Points, "study", interrupt)
    code, out, err = run(*QUICK, "--strategy", "tpe", "--predictor", "constant")
    assert (code, out) == (130, "")
    assert "Traceback" not in err
