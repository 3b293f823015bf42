"""The rules of the predictor contract, each with a plugin that breaks it and no other."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from faking import PLUGIN

from tilearena.conformance import RULES, check_rule, conformance
from tilearena.errors import PredictorError
from tilearena.plugins import Declined
from tilearena.records import DTYPES, K_ALIGNMENT, MAX_EXTENT, Problem
from tilearena.synthetic import extreme_problems, failing_table, synthetic_task, wide_task

RULE = {rule.name: rule for rule in RULES}
BY_TEMPLATE = "np.array([t.threadblock[0] * t.stages / t.split_k for t in task.templates])"
GOOD = f"return np.log2(problems[:, :1]) * {BY_TEMPLATE}"


@pytest.fixture
def fake(install_fake: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Installs a plugin with this body of ``costs``, for this process and for those that it starts."""

    def _fake(body: str) -> None:
        monkeypatch.delitem(sys.modules, "fake_plugin", raising=False)
        install_fake(PLUGIN.format(body=body))

    return _fake


def broken_rules() -> dict[str, str]:
    """The light rules that the plugin breaks in this process, and what is said of each."""
    broken = {}
    for rule in RULES:
        if not rule.heavy:
            try:
                check_rule("fake", rule)
            except Declined:
                continue
            except Exception as error:
                broken[rule.name] = str(error)
    return broken


def test_plugin_that_keeps_the_contract_breaks_no_rule(fake):
    fake(GOOD)
    assert broken_rules() == {}
    conformance("fake")


@pytest.mark.parametrize(
    ("body", "rule", "says"),
    [
        (GOOD + " + 1e-5 * np.random.default_rng().random((P, 1))", "seed", "answered differently under the same seed"),
        (
            GOOD.replace("return", "costs =") + "; problems.flags.writeable and problems.sort(axis=0); return costs",
            "arrays",
            "changed the arrays",
        ),
        ("assert problems.flags.writeable, 'needs to write'; " + GOOD, "arrays", "needs to write"),
        (
            "return (problems[:, :1] - problems[:, :1].mean()) * " + BY_TEMPLATE,
            "alone",
            "when other problems are asked",
        ),
        ("return np.arange(P)[:, None] * " + BY_TEMPLATE, "alone", "when other problems are asked"),
        (
            f"with np.errstate(all='ignore'): return np.log2(8 * problems.prod(axis=1))[:, None] * {BY_TEMPLATE}",
            "shapes",
            "not finite (s8, problem [1048576, 1048576, 1048576])",
        ),
        ("return np.ones((P, 9))", "templates", "answered costs of shape (50, 9), expected (50, 69)"),
        ("return np.tile(np.arange(T), (P, 1))", "templates", "costs a template by its place"),
        (
            f"return {BY_TEMPLATE} * np.where(task.device.sm_count == 100, 1.0, np.nan) + np.zeros((P, 1))",
            "devices",
            "not finite (s8, a device that was not trained on)",
        ),
        (
            f"return {BY_TEMPLATE} * (np.inf if self.train.others else 1) + np.zeros((P, 1))",
            "devices",
            "not finite (s8, a device that was not trained on, after tables of two others)",
        ),
        (
            "bad = (~np.isfinite(self.train.time_ns)).all(axis=1).any(); "
            f"return {BY_TEMPLATE} * (np.nan if bad else 1) + np.zeros((P, 1))",
            "failures",
            "not finite (s8, where templates failed in training)",
        ),
        ("import pickle; pickle.loads(pickle.dumps(Declined)); " + GOOD, "pickle", "of tilearena.plugins.Declined"),
    ],
)
def test_plugin_breaks_the_rule_and_no_other(fake, body, rule, says):
    fake(body)
    broken = broken_rules()
    assert list(broken) == [rule]
    assert says in broken[rule]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return np.zeros((P, T + 1))", "answered costs of shape (50, 10), expected (50, 9)"),
        ("return np.full((P, T), np.nan)", "costs that are not finite (s8)"),
        ("return np.zeros((P, T)) if task.dtype != 'b1' else np.full((P, T), np.inf)", "not finite (b1)"),
        ("return np.full((P, T), 'a')", "answered costs of type <U1"),
    ],
)
def test_costs_that_are_none_break_the_first_rule_that_asks_for_them(fake, body, says):
    fake(body)
    assert says in broken_rules()["costs"]
    with pytest.raises(PredictorError, match=re.escape(says)):
        conformance("fake")


def test_pickle_counts_even_where_the_plugin_hides_the_refusal(fake, tmp_path):
    np.save(tmp_path / "model.npy", np.array([Declined], dtype=object))
    fake(
        f"""
        try: np.load({str(tmp_path / "model.npy")!r}, allow_pickle=True)
        except Exception: pass
        {GOOD}"""
    )
    assert list(broken_rules()) == ["pickle"]


def test_pickles_are_allowed_again_afterwards(fake):
    import pickle

    fake(GOOD)
    check_rule("fake", RULE["pickle"])
    assert pickle.loads(pickle.dumps(Declined)) is Declined


@pytest.mark.parametrize(
    ("condition", "note"),
    [("True", None), ("task.dtype == 's4'", "s4: not mine"), ("task.dtype != 'b1'", "s8: not mine; s4: not mine")],
)
def test_declining_is_no_failure_and_is_noted_by_dtype(fake, condition, note):
    fake(f"if {condition}: raise Declined('not mine')\n        {GOOD}")
    if note is None:
        with pytest.raises(Declined, match=r"^not mine$"):
            check_rule("fake", RULE["costs"])
    else:
        costs, said = check_rule("fake", RULE["costs"])
        assert said == note
        assert len(costs) == 3 - len(note.split(";"))
    assert broken_rules() == {}


def test_declining_without_a_reason_breaks_every_rule(fake):
    fake("raise Declined()")
    broken = broken_rules()
    assert set(broken) == {rule.name for rule in RULES if not rule.heavy}
    assert set(broken.values()) == {"predictor 'fake' declined s8 without a reason"}


def test_only_the_oracle_may_ask_for_the_measured_times(fake):
    fake(GOOD)
    import fake_plugin

    fake_plugin.Plugin.privileged = True
    with pytest.raises(PredictorError, match="which only the oracle gets"):
        check_rule("fake", RULE["load"])


@pytest.mark.parametrize("dtype", DTYPES)
def test_extreme_problems_are_valid_and_reach_both_ends(dtype):
    problems = extreme_problems(dtype)
    for m, n, k in problems.tolist():
        Problem(dtype=dtype, m=m, n=n, k=k, bit_op="and" if dtype == "b1" else None)
    assert len(np.unique(problems, axis=0)) == 27
    assert problems.min(axis=0).tolist() == [1, 8, K_ALIGNMENT[dtype]]
    assert problems.max(axis=0).tolist() == [MAX_EXTENT] * 3
    # ragged: no multiple of any tile
    assert (problems[:, :2] % 16 != 0).any(axis=0).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_wide_task_holds_the_trained_templates_and_ones_of_other_kinds(dtype):
    trained, wide = synthetic_task(dtype), wide_task(dtype)
    ids = [template.id for template in wide.templates]
    assert len(set(ids)) == len(ids)
    assert {template.id for template in trained.templates} < set(ids)
    assert wide.templates[wide.default] == trained.templates[trained.default]
    assert wide.templates[0] not in trained.templates
    assert {template.split_k for template in wide.templates} == {1, 2, 4, 8}
    assert {template.generator for template in wide.templates} == {"cutlass2"} | (
        {"cutlass3"} if dtype == "s8" else set()
    )


def test_failing_table_has_a_template_and_problems_that_never_worked():
    failed = ~np.isfinite(failing_table("s8").time_ns)
    assert failed.all(axis=0).tolist() == [False] * 4 + [True] + [False] * 4
    assert 20 <= failed.all(axis=1).sum() < 40


def test_page_lists_every_rule():
    page = (Path(__file__).parents[1] / "docs" / "add-a-predictor.md").read_text()
    (section,) = re.findall(r"^## Test it$(.*?)^## ", page, flags=re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", section, flags=re.MULTILINE)
    assert rows == [(rule.name, rule.says) for rule in RULES]
