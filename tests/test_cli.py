"""Every verb from outside: what it prints, and how bad input is answered."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from tilearena import __version__, cli, predict
from tilearena.spec import load_space, load_workload, space_names, workload_names

VERBS = typer.main.get_command(cli.app).commands
KEY = ("op", "spec", "space", "dtype", "protocol", "device", "split", "predictor", "train_spec", "support")
COUNTS = ("n_problems", "n_failed")
FIGURES = (
    *("top1", "top2", "top2_measured", "top2_tie"),
    *("regret_mean", "regret_p50", "regret_p90", "regret_p99", "regret_max"),
    *("speedup_vs_cublaslt_geomean", "oracle_speedup_vs_cublaslt_geomean"),
    *("speedup_geomean", "oracle_speedup_geomean", "gap_closed", "slowdown_share", "slowdown_max"),
    *("ceiling_top1", "ceiling_top2", "ceiling_regret_mean", "predict_us"),
    *("regret_at_1", "regret_at_2", "regret_at_4", "regret_at_8"),
)
QUICK = "baselines/recordings/nvidia-h200/quick"


@pytest.fixture
def data(tmp_path, checkout):
    """A root with the recording of quick, s8, cold alone."""
    folder = tmp_path / "data" / QUICK
    folder.mkdir(parents=True)
    shutil.copy(checkout / QUICK / "gemm.paper9.s8.cold.parquet", folder)
    return tmp_path / "data"


@pytest.mark.parametrize("verb", VERBS)
def test_verb_has_help(run, verb):
    code, out, err = run(verb, "--help")
    assert (code, err) == (0, "")
    assert verb in out
    assert VERBS[verb].help.split("\n")[0][:40] in out


def test_version_is_that_of_the_package(run):
    assert run("--version") == (0, f"tilearena {__version__}\n", "")


def test_standard_files_that_were_closed_are_empty_ones_for_us_and_for_our_children():
    child = "import os; os.fstat(2); print('child')"
    code = (
        "import subprocess, sys; from tilearena import cli; cli._open_standard_files(); print('ours', file=sys.stderr);"
        f"sys.exit(subprocess.run([sys.executable, '-c', {child!r}]).returncode)"
    )
    ended = subprocess.run(["sh", "-c", '"$0" -c "$1" 2>&-', sys.executable, code], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "child\n", "")


def test_verbs_are_those_that_others_script_against():
    stable = {"devices", "specs", "build", "measure", "score", "bench", "submit", "check", "board", "predictors"}
    assert set(VERBS) == stable | {"doctor", "recordings", "import", "export", "search"}
    with_figures = stable - {"submit", "board"} | {"doctor", "recordings", "import", "search"}
    assert {verb for verb in VERBS if "--json" in options(verb)} == with_figures
    score = {"--spec", "--device", "--space", "--protocol", "--split", "--dtype", "--predictor", "--refit", "--json"}
    assert score <= set(options("score"))


def options(verb):
    return [name for parameter in VERBS[verb].params for name in parameter.opts if name.startswith("--")]


@pytest.mark.parametrize("verb", VERBS)
def test_verb_and_its_options_are_documented(checkout, verb):
    pages = [checkout / "README.md", *sorted((checkout / "docs").glob("*.md"))]
    text = "\n".join(page.read_text() for page in pages)
    assert f"tilearena {verb}" in text
    section = re.search(rf"^## tilearena {verb}\b.*?(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL)
    assert section, f"no page has a section 'tilearena {verb}'"
    documented = re.findall(r"--[a-z][a-z-]*", section[0])
    missing = [option for option in options(verb) if option not in (*documented, "--help")]
    assert missing == []


def test_specs_lists_what_ships(run):
    code, out, _ = run("specs", "--json")
    rows = {(row["kind"], row["name"]): row for row in json.loads(out)}
    assert code == 0
    workloads = {("workload", name) for name in workload_names()}
    assert set(rows) == workloads | {("space", name) for name in space_names()}
    assert rows["workload", "lowbit-random"]["problems"] == {"s8": 2000, "s4": 2000, "b1": 2000}
    assert rows["space", "paper9"]["templates"] == {"s8": 9, "s4": 9, "b1": 9}
    wide, native, every = (rows["space", name]["templates"] for name in ("sm80-wide", "sm90-native", "h200-all"))
    assert every == {"s8": wide["s8"] + native["s8"] - 1}  # the default is in both
    assert rows["workload", "quick"]["fingerprint"] == load_workload("quick").fingerprint
    assert rows["space", "paper9"]["fingerprint"] == load_space("paper9").fingerprint


def test_devices_lists_the_recorded_ones_without_a_gpu(child):
    done = child("devices", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert answer["here"] == []
    assert "nvidia-h200" in answer["recorded"]
    assert "here: no GPU" in child("devices").stdout


def test_predictors_lists_ours_and_theirs(run, third_party, checkout):
    third_party("theirs", "return 1")
    code, out, _ = run("predictors", "--json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert code == 0
    ours = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]["entry-points"]
    kinds = {kind: {name for name, row in rows.items() if row["kind"] == kind} for kind in ("predictor", "baseline")}
    assert kinds["predictor"] == {*ours["tilearena.predictors"], "theirs"}
    assert kinds["baseline"] == set(ours["tilearena.baselines"])
    assert rows["theirs"] == {
        "name": "theirs", "version": "1", "kind": "predictor", "from": "theirs_plugin:Plugin", "error": ""
    }  # fmt: skip
    assert [row["error"] for row in rows.values()] == [""] * len(rows)


def test_predictor_that_cannot_be_loaded_is_listed_with_its_error(run, third_party, tmp_path):
    third_party("theirs", "return 1")
    (tmp_path / "site-theirs" / "theirs_plugin.py").write_text("import a_missing_module\n")
    _, out, _ = run("predictors", "--json")
    (row,) = [row for row in json.loads(out) if row["name"] == "theirs"]
    assert row["version"] == ""
    assert "a_missing_module" in row["error"]


def test_score_prints_the_glossary_with_sane_values(run):
    names = ("oracle", "constant", "default")
    asked = [part for name in names for part in ("--predictor", name)]
    code, out, _ = run("score", "--spec", "quick", "--device", "nvidia-h200", *asked, "--refit", "--json")
    rows = json.loads(out)
    assert code == 0
    assert [(row["dtype"], row["predictor"]) for row in rows] == [(d, n) for d in ("s8", "s4", "b1") for n in names]
    for row in rows:
        assert {*KEY, *COUNTS, "status", "version"} <= set(row)
        assert {f"{name}{part}" for name in FIGURES for part in ("", "_lo", "_hi")} <= set(row)
        assert (row["status"], row["n_problems"], row["n_failed"]) == ("ok", 42, 0)
        assert (row["space"], row["protocol"], row["split"], row["train_spec"]) == ("paper9", "cold", "random", "quick")
        assert row["support"] == ("emulated" if row["dtype"] == "s4" else "native")
        assert row["ceiling_top2"] is None
        assert row["predict_us"] > 0
        assert 1 < row["oracle_speedup_geomean"] < 10
        assert row["top2_lo"] <= row["top2"] <= row["top2_hi"]
    for oracle, constant, default in (rows[i : i + 3] for i in (0, 3, 6)):
        assert (oracle["top1"], oracle["regret_max"], oracle["gap_closed"]) == (1, 0, 1)
        assert oracle["speedup_geomean"] == oracle["oracle_speedup_geomean"]
        assert constant["gap_closed"] == 0
        assert 0 < constant["regret_mean"] < default["regret_mean"]
        assert (default["speedup_geomean"], default["slowdown_share"], default["slowdown_max"]) == (1, 0, 1)


def test_score_prints_a_table(run):
    code, out, _ = run("score", "--spec", "quick", "--device", "nvidia-h200", "--dtype", "b1", "--predictor", "oracle")
    assert code == 0
    heads = [cell.strip() for cell in next(line for line in out.splitlines() if "predictor" in line).split("┃")[1:-1]]
    cells = [cell.strip() for cell in next(line for line in out.splitlines() if "oracle" in line).split("│")[1:-1]]
    row = dict(zip(heads, cells, strict=True))
    assert "quick b1 cold random" in out
    assert len(row) == len(heads)
    assert (row["predictor"], row["top2"], row["95 %"], row["regret"]) == (
        "oracle",
        "100.0 %",
        "100.0..100.0",
        "0.00 %",
    )
    assert (row["gap closed"], row["slower"], row["failed"]) == ("100.0 %", "0.0 %", "0")
    assert row["speedup"] == row["of best"]


def test_score_uses_stored_picks_and_refit_trains(run, data, monkeypatch):
    score = ("score", "--spec", "quick", "--device", "nvidia-h200", "--predictor", "nearest", "--root", data, "--json")
    submit = ("submit", "--spec", "quick", "--device", "nvidia-h200", "--submitter", "me", "--predictor", "nearest")
    code, out, _ = run(*submit, "--protocol", "cold", "--root", data)
    assert (code, out.strip()) == (0, str(data / "leaderboard/submissions/nvidia-h200/quick/nearest/1.json"))
    trained, cross_fit = [], predict.cross_fit
    monkeypatch.setattr(predict, "cross_fit", lambda *a, **k: trained.append(a[0]) or cross_fit(*a, **k))
    code, stored, _ = run(*score)
    assert (code, trained) == (0, [])
    code, refitted, _ = run(*score, "--refit")
    assert (code, trained) == (0, ["nearest"])
    stored, refitted = json.loads(stored)[0], json.loads(refitted)[0]
    for row in (stored, refitted):
        assert row.pop("predict_us") > 0
    assert stored == refitted


def test_submit_takes_a_space_once_by_whatever_name(run, data, checkout):
    submit = ("submit", "--spec", "quick", "--device", "nvidia-h200", "--submitter", "me", "--predictor", "constant")
    spaces = ("--space", checkout / "specs/spaces/paper9.yaml", "--space", "nosuch", "--space", "paper9")
    code, out, err = run(*submit, *spaces, "--protocol", "cold", "--dtype", "s8", "--root", data)
    assert (code, err.count("\n")) == (1, 1)
    assert "no space named 'nosuch'" in err
    (result,) = json.loads(Path(out.strip()).read_text())["results"]
    assert result["key"]["space"] == "paper9"


def test_check_accepts_what_submit_wrote_and_refuses_a_raised_figure(run, data):
    submit = ("submit", "--spec", "quick", "--device", "nvidia-h200", "--submitter", "me", "--predictor", "constant")
    _, out, _ = run(*submit, "--protocol", "cold", "--root", data)
    path = out.strip()
    code, out, _ = run("check", path, "--root", data)
    assert code == 0
    assert out.startswith(f"{path}: every figure follows from its picks")
    submission = json.loads(Path(path).read_text())
    claimed = submission["results"][0]["figures"]["top2"]
    submission["results"][0]["figures"]["top2"] = 0.9876
    Path(path).write_text(json.dumps(submission))
    code, out, _ = run("check", path, "--root", data)
    assert code == 1
    assert f"top2 is claimed as 0.9876, recomputed {claimed}" in out
    code, out, _ = run("check", path, "--root", data, "--json")
    (row,) = json.loads(out)
    assert (code, row["ok"], [f["field"] for f in row["findings"]]) == (1, False, ["top2"])


def test_check_of_a_missing_file_is_one_sentence_before_any_work(run, arena):
    written = arena.submit("constant", 0, [arena.key("lowbit-random", "s8")])
    missing = arena.root / "no.json"
    code, out, err = run("check", written, missing, arena.root / "none.json", "--root", arena.root, "--json")
    assert (code, out) == (2, "")
    assert err == (
        f"tilearena: {missing}: no such file; a submission is a .json with a .parquet of the same name beside it\n"
    )


def test_check_of_a_damaged_file_refuses_it_and_checks_the_others(run, arena):
    damaged = arena.submit("gbdt", 0.01, [arena.key("lowbit-random", "s8")])
    damaged.with_suffix(".parquet").unlink()
    sound = arena.submit("constant", 0, [arena.key("lowbit-random", "s8")])
    code, out, _ = run("check", damaged, sound, "--root", arena.root, "--json")
    assert (code, [row["ok"] for row in json.loads(out)]) == (1, [False, True])


def test_submit_of_less_than_is_there_needs_force(run, arena):
    submit = ("submit", "--spec", "lowbit-random", "--device", "synthetic-device", "--submitter", "me")
    submit += ("--predictor", "constant", "--protocol", "cold", "--root", arena.root)
    code, out, _ = run(*submit)
    path = Path(out.strip())
    before = path.read_bytes()
    assert code == 0
    code, out, err = run(*submit, "--dtype", "s8")
    assert (code, out, path.read_bytes()) == (2, "", before)
    assert err.endswith(
        f"{path}: also holds s4/cold/random, which would be lost; submit these as well, or give --force\n"
    )
    code, out, _ = run(*submit, "--dtype", "s8", "--force")
    assert (code, out.strip()) == (0, str(path))
    assert [r["key"]["dtype"] for r in json.loads(path.read_text())["results"]] == ["s8"]


def test_board_gives_its_process_to_the_server(run, monkeypatch, tmp_path):
    started = []
    monkeypatch.setattr(os, "execv", lambda *arguments: started.append(arguments))
    assert run("board", "--headless", "--port", "1234", "--root", tmp_path)[0] == 0
    ((program, command),) = started
    assert program == command[0] == sys.executable
    assert command[-2:] == [str(tmp_path)] * 2
    assert command[command.index("--server.port") + 1] == "1234"


def test_submit_of_several_spaces_writes_one_file_and_says_what_is_not_recorded(run, checkout, tmp_path):
    """b1 of two spaces, cold; no recording of the third has it."""
    submit = ("submit", "--spec", "lowbit-random", "--device", "nvidia-h200", "--submitter", "me", "--out", tmp_path)
    submit += ("--predictor", "constant", "--dtype", "b1", "--protocol", "cold", "--root", checkout)
    spaces = ("paper9", "sm90-native", "sm80-wide", "paper9")
    code, out, _ = run(*submit, *(text for space in spaces for text in ("--space", space)))
    assert (code, len(out.splitlines())) == (0, 1)
    results = json.loads(Path(out.strip()).read_text())["results"]
    assert [(r["key"]["space"], r["figures"]["n_problems"]) for r in results] == [
        ("paper9", 2000),
        ("sm90-native", 1000),
        ("sm80-wide", 1000),
    ]
    code, out, err = run(*submit, "--space", "paper9", "--space", "h200-all", "--force")
    assert (code, len(out.splitlines())) == (1, 1)
    assert "h200-all" in err
    assert [r["key"]["space"] for r in json.loads(Path(out.strip()).read_text())["results"]] == ["paper9"]
