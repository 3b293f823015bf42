"""Predictors and baselines on synthetic tables (an analytic model with wave quantisation); no measured times here."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from synthetic_tables import TABLE, TEST, TRAIN, fitted, mean_regret

from tilearena import conformance_run
from tilearena.baselines.constant import Constant
from tilearena.baselines.nearest import Nearest
from tilearena.baselines.oracle import Oracle
from tilearena.conformance import RULES, conformance
from tilearena.conformance_run import RULE_TIME_LIMIT_S, run_rules
from tilearena.errors import PredictorError
from tilearena.figures import log_slowdown
from tilearena.picker.able import can_run
from tilearena.plugins import Declined, discover
from tilearena.predict import MEMORY_LIMIT_BYTES
from tilearena.predictors.default import DefaultTemplate
from tilearena.predictors.features import features
from tilearena.predictors.heuristic import Heuristic
from tilearena.predictors.mlp import Layer, inputs, loss
from tilearena.score import constant_pick
from tilearena.synthetic import synthetic_time_ns, wide_task
from tilearena.table import Table

LEARNED = ("gbdt", "mlp", "mlp-features", "picker", "heuristic", "nearest")
BUILT_IN = ("default", "heuristic", "gbdt", "mlp", "mlp-features", "picker", "constant", "nearest", "oracle")


def test_discover_finds_every_built_in():
    assert set(BUILT_IN) <= set(discover())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("name", sorted(discover()))
def test_every_installed_predictor_conforms_within_the_limits(name, rule, monkeypatch):
    """Each by itself, as `tilearena predictors test` checks it unless it is told otherwise."""
    monkeypatch.setattr(conformance_run, "RULES", [rule])
    limits = {"time_limit_s": RULE_TIME_LIMIT_S, "memory_limit_bytes": MEMORY_LIMIT_BYTES}
    (checked,) = run_rules(name, **limits, report=lambda *_: None)
    assert checked.status in ("pass", "declined"), checked.reason


@pytest.mark.parametrize("name", LEARNED)
def test_learned_predictor_beats_the_best_constant(name):
    costs = fitted(name, TRAIN).costs(TEST.problems, TEST.task)
    constant = fitted("constant", TRAIN).costs(TEST.problems, TEST.task)
    assert mean_regret(costs, TEST) < 0.7 * mean_regret(constant, TEST)


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_template_that_always_fails_is_never_first(name):
    time_ns = TRAIN.time_ns.copy()
    time_ns[:, 4:] = np.inf
    costs = fitted(name, replace(TRAIN, time_ns=time_ns)).costs(TRAIN.problems[:50], TRAIN.task)
    assert np.isfinite(costs).all()
    if name in ("constant", "nearest", "oracle", "mlp"):  # the others reason about shapes, not about failures
        assert (costs.argmin(axis=1) < 4).all()


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("n_problems", [1, 2, 9, 10])
def test_small_training_part_works_or_is_declined(name, n_problems):
    small = TRAIN.take(np.arange(n_problems))
    if name in ("gbdt", "mlp", "mlp-features", "picker") and n_problems < 10:
        asked = "gbdt" if name == "picker" else name
        with pytest.raises(
            Declined, match=f"{asked} needs at least 10 measured training problems and got {n_problems}"
        ):
            fitted(name, small)
        return
    costs = fitted(name, small).costs(small.problems, small.task)
    assert costs.shape == (n_problems, 9)
    assert np.isfinite(costs).all()


@pytest.mark.parametrize("name", ["gbdt", "mlp", "mlp-features", "picker", "nearest"])
def test_unmeasured_training_problems_do_not_count(name):
    time_ns = TRAIN.time_ns.copy()
    time_ns[100:] = np.inf
    with_gaps = fitted(name, replace(TRAIN, time_ns=time_ns)).costs(TEST.problems, TEST.task)
    without = fitted(name, TRAIN.take(np.arange(100))).costs(TEST.problems, TEST.task)
    assert np.array_equal(with_gaps, without)


@pytest.mark.parametrize("name", ["gbdt", "mlp", "mlp-features", "picker"])
def test_seed_changes_a_random_fit(name):
    few = TRAIN.take(np.arange(60))
    first, second = (fitted(name, few, seed).costs(TEST.problems, TEST.task) for seed in (0, 1))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("name", BUILT_IN)
def test_spaces_of_other_sizes_are_served(name):
    task = replace(TRAIN.task, templates=TRAIN.task.templates[3:5], default=0)
    train = Table(task, TRAIN.problems[:100], TRAIN.time_ns[:100, 3:5])
    assert fitted(name, train).costs(train.problems, task).shape == (100, 2)


@pytest.mark.parametrize("name", ["heuristic", "gbdt", "mlp-features", "picker"])
def test_what_cannot_run_a_problem_is_ranked_last(name):
    """Which template can is known from shapes; K of one step cannot be shared, though it was in training."""
    task = wide_task()
    train = Table(task, TRAIN.problems[:60], synthetic_time_ns(TRAIN.problems[:60], task))
    problems = np.array([[1, 128, 16], [300, 4096, 128], [300, 4096, 4096]])
    predictor, able = fitted(name, train), can_run(task.templates, problems)
    costs = predictor.costs(problems, task)
    assert np.isfinite(costs).all()
    assert not able[:2].all(axis=1).any()
    assert not able[1, [template.adding for template in task.templates]].any()
    for row, runs in zip(costs, able, strict=True):
        assert runs.all() or row[runs].max() < row[~runs].min()
    assert np.allclose(predictor.costs(problems[:1], task), costs[:1])  # whatever else is asked


def test_default_puts_the_default_template_first_and_the_others_level():
    costs = DefaultTemplate().costs(TEST.problems[:2], replace(TEST.task, default=5))
    assert costs.tolist() == [[1, 1, 1, 1, 1, 0, 1, 1, 1]] * 2


def test_constant_ranks_by_geometric_mean_slowdown():
    # slowdowns: [1, 2, 4], [8, 1, 2] -> mean logs of template 0: log(8)/2, 1: log(2)/2, 2: log(8)/2
    task = replace(TRAIN.task, templates=TRAIN.task.templates[:3])
    train = Table(task, TRAIN.problems[:2], np.array([[1.0, 2.0, 4.0], [80.0, 10.0, 20.0]]))
    constant = Constant()
    constant.fit(train, 0)
    costs = constant.costs(TEST.problems[:4], task)
    assert np.allclose(costs, np.log([8, 2, 8]) / 2)
    assert costs.shape == (4, 3)
    constant.fit(TRAIN, 0)
    assert constant.costs(TEST.problems[:1], TEST.task).argmin() == constant_pick(TRAIN)


def test_nearest_answers_with_the_neighbour_in_log_shape():
    problems = np.array([[16, 1024, 1024], [1024, 1024, 1024]])
    time_ns = np.ones((2, 9)) + np.eye(9)[[0, 1]] * -0.5
    nearest = Nearest()
    nearest.fit(Table(TRAIN.task, problems, time_ns), 0)
    # 100 is nearer to 16 in units, nearer to neither by chance in logs: log2(100/16) = 2.6, log2(1024/100) = 3.4
    costs = nearest.costs(np.array([[100, 1024, 1024], [200, 1024, 1024]]), TRAIN.task)
    assert costs.argmin(axis=1).tolist() == [0, 1]
    assert costs[0, 1] == pytest.approx(np.log(2))


def test_what_needs_times_learns_nothing_from_labels():
    """Whose table has an order, 1 or 2, where times would be."""
    best = TRAIN.time_ns.argmin(axis=1)
    order = np.where(np.arange(9) == best[:, None], 1.0, 2.0)
    labels = replace(TRAIN, task=replace(TRAIN.task, labels_only=True), time_ns=order)
    heuristic = fitted("heuristic", labels)
    assert np.array_equal(heuristic.costs(TEST.problems, TEST.task), Heuristic().costs(TEST.problems, TEST.task))
    constant = fitted("constant", labels).costs(TEST.problems, TEST.task)
    assert (np.argsort(-np.bincount(best, minlength=9), kind="stable") == np.argsort(constant[0], kind="stable")).all()


def test_nearest_ranks_by_the_nearest_win_where_only_labels_are_known():
    problems = np.array([[16, 1024, 1024], [64, 1024, 1024], [1024, 1024, 1024]])
    order = np.where(np.arange(9) == np.array([[3], [3], [5]]), 1.0, 2.0)
    labels = Table(replace(TRAIN.task, labels_only=True), problems, order)
    costs = fitted("nearest", labels).costs(np.array([[32, 1024, 1024], [2048, 1024, 1024]]), labels.task)
    assert costs[:, [3, 5]].tolist() == [[1.0, 5.0], [5.0, 1.0]]
    assert np.isinf(np.delete(costs, [3, 5], axis=1)).all()


def test_oracle_ranks_by_measured_time_and_failed_templates_last():
    oracle = Oracle()
    oracle.fit(TABLE, 0)
    rows = np.array([5, 3, 599])
    order = oracle.costs(TABLE.problems[rows], TABLE.task).argsort(axis=1, kind="stable")
    assert np.array_equal(order, TABLE.time_ns[rows].argsort(axis=1, kind="stable"))
    failed = int(np.flatnonzero(np.isinf(TABLE.time_ns[:, 0]))[0])
    assert oracle.costs(TABLE.problems[[failed]], TABLE.task).argmax() == 0


def test_mlp_is_the_published_network():
    mlp = fitted("mlp", TRAIN.take(np.arange(40)))
    assert [layer.weight.shape for layer in mlp._network] == [(4, 128), (128, 128), (128, 128), (128, 9)]
    assert inputs(np.array([[1, 8, 16]]), TRAIN.task).tolist() == [[0, 3, 4, np.log2(100)]]
    probabilities = np.exp(-mlp.costs(TEST.problems, TEST.task))
    assert np.allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    assert probabilities.std(axis=0).max() > 0.05


def test_mlp_cross_entropy_of_an_uninformed_network_is_log_of_the_number_of_templates():
    blank = [Layer(jnp.zeros((4, 128)), jnp.zeros(128)), Layer(jnp.zeros((128, 9)), jnp.zeros(9))]
    assert float(loss(blank, jnp.ones((5, 4)), jnp.arange(5))) == pytest.approx(np.log(9))


def test_features_are_finite_for_extreme_shapes():
    extremes = np.array([[1, 8, 16], [1 << 20, 1 << 20, 1 << 20], [1, 1 << 20, 16]])
    x = features(extremes, TEST.task)
    assert x.shape[:2] == (3, 9)
    assert np.isfinite(x).all()
    assert not np.array_equal(x[0], x[2])


def test_log_slowdown_counts_a_failure_as_the_slowest_that_worked():
    time_ns = np.array([[2.0, np.inf, 4.0], [9.0, 3.0, 3.0]])
    assert np.allclose(log_slowdown(time_ns), [[0, np.log(2), np.log(2)], [np.log(3), 0, 0]])


def test_oracle_ties_templates_where_none_worked():
    table = replace(TEST, time_ns=np.where(np.arange(len(TEST.problems))[:, None] == 3, np.inf, TEST.time_ns))
    costs = fitted("oracle", table).costs(TEST.problems, TEST.task)
    assert np.ptp(costs[3]) == 0
    assert (costs.argmin(axis=1) == table.time_ns.argmin(axis=1)).all()


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("name", "other", "calls itself 'other'"),
        ("version", "", "1 to 64 letters, digits"),
        ("costs", lambda self, problems, task: np.zeros((len(problems), 1)), "answered costs of shape"),
        ("costs", lambda self, problems, task: np.full((len(problems), 9), np.nan), "not finite"),
        ("costs", lambda self, problems, task: np.random.default_rng().random((len(problems), 9)), "under the same"),
        ("costs", lambda self, problems, task: problems.sort() or np.zeros((len(problems), 9)), "changed the arrays"),
        ("fit", lambda self, train, seed: train.time_ns.fill(1.0), "changed the arrays"),
        (
            "costs",
            lambda self, problems, task: (problems[:, :1] - problems[:, :1].mean()) * np.ones(9),
            "when other problems are asked",
        ),
    ],
)
def test_conformance_names_the_broken_rule(monkeypatch, attribute, value, message):
    monkeypatch.setattr(DefaultTemplate, attribute, value)
    with pytest.raises(PredictorError, match=message):
        conformance("default")


def test_conformance_accepts_declining_with_a_reason_only(monkeypatch):
    def decline(self, train, seed):
        raise Declined("not mine" if train.task.dtype != "b1" else "")

    monkeypatch.setattr(DefaultTemplate, "fit", decline)
    with pytest.raises(PredictorError, match="declined b1 without a reason"):
        conformance("default")
