"""Each rule of the contract runs in a process of its own; a plugin that hangs or crashes costs a sentence."""

import json
import re

import pytest
from faking import PLUGIN

from tilearena import cli_predictors, conformance_run
from tilearena.conformance import RULES
from tilearena.conformance_run import Checked, run_rules

RULE = {rule.name: rule for rule in RULES}
BY_TEMPLATE = "np.array([t.threadblock[0] * t.stages / t.split_k for t in task.templates])"
GOOD = f"return np.log2(problems[:, :1]) * {BY_TEMPLATE}"
GIB = 1 << 30


def in_processes(monkeypatch: pytest.MonkeyPatch, *rules: str, time_limit_s: float = 60.0) -> list[Checked]:
    """These rules checked as the command line does, with 1 GiB."""
    monkeypatch.setattr(conformance_run, "RULES", [RULE[name] for name in rules])
    options = {"time_limit_s": time_limit_s, "memory_limit_bytes": GIB}
    return list(run_rules("fake", **options, report=lambda done, total, label: None))


def test_plugin_that_hangs_is_stopped_and_the_other_rules_are_not_run(install_fake, monkeypatch):
    install_fake(PLUGIN.format(body="time.sleep(1000)"))
    costs, seed = in_processes(monkeypatch, "costs", "seed", time_limit_s=3.0)
    assert (costs.status, costs.reason) == ("fail", "predictor 'fake' took longer than 3 s and was stopped")
    assert 3.0 <= costs.wall_time_s < 30.0
    assert (seed.status, seed.reason, seed.wall_time_s) == ("not run", "since 'costs' failed", 0.0)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("import ctypes; ctypes.string_at(0)", "predictor 'fake' was killed by SIGSEGV"),
        ("os._exit(0)", "predictor 'fake' ended its process without an answer (exit code 0)"),
        (
            "raise ValueError('no\\n  good')",
            "predictor 'fake' raised ValueError in costs (fake_plugin.py, line 13): no good",
        ),
        ("np.ones(1 << 28)", "predictor 'fake' needed more memory than its limit of 1 GiB"),
        (
            "open('answer.json', 'w').write('x'); os._exit(0)",
            "predictor 'fake' left an unreadable answer (1 validation error for Outcome)",
        ),
    ],
)
def test_plugin_that_crashes_costs_a_sentence_and_the_next_rule_is_run(install_fake, monkeypatch, body, reason):
    install_fake(PLUGIN.format(body=body))
    costs, alone = in_processes(monkeypatch, "costs", "alone")
    assert (costs.status, alone.status) == ("fail", "fail")
    assert costs.reason.startswith(reason)
    assert alone.reason.startswith(reason)


def test_order_of_a_set_is_found_by_a_second_process(install_fake, monkeypatch):
    install_fake(PLUGIN.format(body=f"return hash('a name') % 1000 * {BY_TEMPLATE} + np.zeros((P, 1))"))
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    costs, seed = in_processes(monkeypatch, "costs", "seed")
    assert (costs.status, seed.status) == ("pass", "fail")
    assert "differently in two processes" in seed.reason


def test_pickle_that_is_loaded_when_the_plugin_is_imported_is_found(install_fake, monkeypatch):
    install_fake(
        "import pickle, collections; pickle.loads(pickle.dumps(collections.OrderedDict))\n" + PLUGIN.format(body=GOOD)
    )
    costs, pickled = in_processes(monkeypatch, "costs", "pickle")
    assert (costs.status, pickled.status) == ("pass", "fail")
    assert pickled.reason == "predictor 'fake' loads a pickle (of collections.OrderedDict), which may run anything"


def test_plugin_that_cannot_be_loaded_is_not_asked_for_more(install_fake, monkeypatch):
    install_fake("import no_such_module\n" + PLUGIN.format(body=GOOD))
    load, costs = in_processes(monkeypatch, "load", "costs")
    assert load.status == "fail"
    assert "cannot be imported: No module named 'no_such_module'" in load.reason
    assert costs.status == "not run"


def test_every_rule_is_listed_and_kept_by_the_default(run):
    code, out, err = run("predictors", "test", "default", "--json")
    rows = json.loads(out)
    assert (code, err) == (0, "")
    assert [(row["predictor"], row["rule"], row["says"]) for row in rows] == [
        ("default", r.name, r.says) for r in RULES
    ]
    assert {(row["status"], row["reason"]) for row in rows} == {("pass", "")}
    assert all(0 < row["wall_time_s"] < 60 for row in rows)


def test_broken_rule_is_shown_and_ends_with_code_1(run, install_fake, monkeypatch):
    install_fake(PLUGIN.format(body="print('noise'); return np.ones((P, 9))"))
    monkeypatch.setattr(conformance_run, "RULES", [RULE["costs"], RULE["templates"]])
    code, out, _ = run("predictors", "test", "fake")
    assert code == 1
    assert out.splitlines()[-1] == "1 pass, 1 fail"
    words = " ".join(out.replace("│", " ").split())
    assert RULE["costs"].name in words
    assert "predictor 'fake' answered costs of shape" in words
    assert "noise" not in words


def test_what_was_tested_is_shown_after_ctrl_c(run, monkeypatch):
    def interrupted(*_, **__):
        yield Checked(RULE["load"], "pass", "", 0.5)
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_predictors, "run_rules", interrupted)
    code, out, _ = run("predictors", "test", "default")
    assert (code, out.splitlines()[-1]) == (130, f"1 pass, {len(RULES) - 1} not run")
    code, out, _ = run("predictors", "test", "default", "--json")
    rows = [(row["rule"], row["status"], row["reason"]) for row in json.loads(out)]
    assert (code, len(rows)) == (130, len(RULES))
    assert rows[:2] == [("load", "pass", ""), (RULES[1].name, "not run", "interrupted")]


def test_plugin_that_is_tested_writes_in_its_folder_alone(run, install_fake, monkeypatch, tmp_path):
    (tmp_path / "kept").write_text("x")
    install_fake(
        PLUGIN.format(body=f"open('own', 'w'); open({str(tmp_path / 'kept')!r}, 'a'); return np.zeros((P, T))")
    )
    monkeypatch.setattr(conformance_run, "RULES", [RULE["costs"]])
    code, out, _ = run("predictors", "test", "fake", "--json")
    reason = json.loads(out)[0]["reason"]
    assert code == 1
    assert re.fullmatch(
        r"predictor 'fake' raised PermissionError in costs \(fake_plugin.py, line 13\): .* '.*/kept' "
        r"\(a predictor reads no recording and writes in its own folder alone: docs/fair-play.md\)",
        reason,
    )


def test_declining_everything_is_said(run, install_fake, monkeypatch):
    install_fake(PLUGIN.format(body="raise Declined('only a device that exists')"))
    monkeypatch.setattr(conformance_run, "RULES", [RULE["load"], RULE["costs"], RULE["alone"]])
    code, out, _ = run("predictors", "test", "fake")
    assert code == 0
    assert (
        out.splitlines()[-1]
        == "1 pass, 2 declined: it declined whatever it was asked, so nothing but loading was tested"
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("predictors", "test", "gdbt"), "tilearena: no predictor named 'gdbt'; installed: "),
        (
            ("predictors", "--json", "test", "gbdt"),
            "tilearena: give options after `tilearena predictors test`, not before",
        ),
    ],
)
def test_mistakes_are_one_sentence(run, arguments, sentence):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(sentence)
    assert err.count("\n") == 1
