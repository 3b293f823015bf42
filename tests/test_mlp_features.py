"""The network on features, on tables of an analytic model; no measured times here."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from tilearena.figures import log_slowdown
from tilearena.plugins import Declined, load
from tilearena.predictors.features import features, named_features
from tilearena.predictors.mlp import Layer
from tilearena.predictors.mlp_features import (
    BATCH,
    EPOCHS,
    TEMPERATURE,
    MlpFeatures,
    answer,
    loss,
    shuffled,
)
from tilearena.synthetic import synthetic_table, synthetic_task, synthetic_time_ns
from tilearena.table import Floats, Ints, Table, Task

TABLE = synthetic_table(600)
TRAIN, TEST = TABLE.take(np.arange(480)), TABLE.take(np.arange(480, 600))


def fitted(train: Table, seed: int = 0) -> MlpFeatures:
    predictor = MlpFeatures()
    predictor.fit(train, seed)
    return predictor


def noiseless(problems: Ints, task: Task) -> Table:
    return Table(task, problems, synthetic_time_ns(problems, task))


def mean_regret(costs: Floats, table: Table) -> float:
    chosen = np.take_along_axis(log_slowdown(table.time_ns), costs.argmin(axis=1)[:, None], axis=1)
    return float(np.expm1(chosen).mean())


def constant_regret(table: Table) -> float:
    """Of the one template that is the best choice for the table itself."""
    return float(np.expm1(log_slowdown(table.time_ns)).mean(axis=0).min())


def with_sms(task: Task, sm_count: int) -> Task:
    return replace(task, device=task.device.model_copy(update={"slug": f"sm{sm_count}", "sm_count": sm_count}))


def test_planted_rule_is_learnt_far_better_than_a_constant():
    train, test = (noiseless(part.problems, part.task) for part in (TRAIN, TEST))
    assert mean_regret(fitted(train).costs(test.problems, test.task), test) < 0.05 * constant_regret(test)


def test_same_seed_gives_the_same_costs_and_another_seed_others():
    few = TRAIN.take(np.arange(60))
    first, again, other = (fitted(few, seed).costs(TEST.problems, TEST.task) for seed in (3, 3, 4))
    assert np.array_equal(first, again)
    assert not np.allclose(first, other, atol=1e-3)


def test_templates_that_were_not_trained_on_are_ranked_well():
    """Those of three stages lie between those of two and of four, which are known."""
    task = synthetic_task()
    known = tuple(i for i, template in enumerate(task.templates) if template.stages != 3)
    train_task = replace(task, templates=tuple(task.templates[i] for i in known), default=0)
    predictor = fitted(noiseless(TRAIN.problems, train_task))
    unseen_task = replace(task, templates=tuple(t for t in task.templates if t.stages == 3), default=0)
    unseen = noiseless(TEST.problems, unseen_task)
    assert mean_regret(predictor.costs(unseen.problems, unseen_task), unseen) < 0.4 * constant_regret(unseen)


def test_several_devices_are_learnt_and_one_between_them_is_served():
    """Told little of 20 and of 132 SMs, it ranks for 60 far better than told of 132 alone."""
    task, few = synthetic_task(), TRAIN.problems[:60]
    many, fewer = noiseless(few, with_sms(task, 132)), noiseless(few, with_sms(task, 20))
    between = noiseless(TEST.problems, with_sms(task, 60))
    both = mean_regret(fitted(replace(many, others=(fewer,))).costs(between.problems, between.task), between)
    assert both < 0.5 * mean_regret(fitted(many).costs(between.problems, between.task), between)
    assert both < 0.05 * constant_regret(between)


def test_problems_of_all_devices_count_together():
    task = synthetic_task()
    six = TRAIN.take(np.arange(6))
    with pytest.raises(Declined, match="mlp-features needs at least 10 measured training problems and got 6"):
        fitted(six)
    four = replace(TRAIN.take(np.arange(6, 10)), task=with_sms(task, 40))
    assert np.isfinite(fitted(replace(six, others=(four,))).costs(TEST.problems, task)).all()


def test_unmeasured_problems_do_not_count():
    time_ns = TRAIN.time_ns.copy()
    time_ns[50:] = np.inf
    with_gaps = fitted(replace(TRAIN, time_ns=time_ns)).costs(TEST.problems, TEST.task)
    assert np.array_equal(with_gaps, fitted(TRAIN.take(np.arange(50))).costs(TEST.problems, TEST.task))


def test_labels_are_learnt_from_as_an_order():
    train, test = (noiseless(part.problems, part.task) for part in (TRAIN, TEST))
    order = np.where(np.arange(9) == train.time_ns.argmin(axis=1)[:, None], 1.0, 2.0)
    labels = replace(train, task=replace(train.task, labels_only=True), time_ns=order)
    assert mean_regret(fitted(labels).costs(test.problems, test.task), test) < 0.05 * constant_regret(test)


def test_loss_is_least_where_scores_are_slowdowns_in_units_of_the_temperature():
    """A network of one linear layer that hands its only feature on."""
    slowdown = jnp.array([[0.0, TEMPERATURE]])
    hand_on = [Layer(jnp.ones((1, 1)), jnp.zeros(1))]
    best, level = (float(loss(hand_on, jnp.array([[[0.0], [score]]]), slowdown)) for score in (-1.0, 0.0))
    share = 1 / (1 + np.exp(-1))
    assert best == pytest.approx(-share * np.log(share) - (1 - share) * np.log(1 - share))
    assert level == pytest.approx(np.log(2))


def test_answer_is_the_mean_of_the_networks():
    networks = [[Layer(jnp.full((1, 1), weight), jnp.zeros(1))] for weight in (1.0, 4.0)]
    assert answer(networks, jnp.array([[[2.0], [4.0]]])).tolist() == [[5.0, 10.0]]


def test_a_feature_that_never_varies_in_training_counts_for_nothing():
    """No template that was trained on is swizzled, so of swizzling nothing is known."""
    task = synthetic_task()
    predictor = fitted(noiseless(TRAIN.problems[:40], task))
    swizzled = replace(task, templates=tuple(t.model_copy(update={"swizzle": 8}) for t in task.templates))
    names = list(named_features(TEST.problems, swizzled))
    varies = (features(TEST.problems, swizzled) != features(TEST.problems, task)).any(axis=(0, 1))
    assert [name for name, differs in zip(names, varies, strict=True) if differs] == ["swizzle"]
    assert np.array_equal(predictor.costs(TEST.problems, swizzled), predictor.costs(TEST.problems, task))


def test_an_epoch_holds_each_problem_once_but_for_an_incomplete_batch():
    batches = shuffled(2 * BATCH + 1, np.random.default_rng(0))
    assert batches.shape == (2 * EPOCHS, BATCH)
    for epoch in batches.reshape(EPOCHS, -1):
        assert len(np.unique(epoch)) == 2 * BATCH
    assert shuffled(BATCH - 1, np.random.default_rng(0)).shape == (EPOCHS, BATCH - 1)


def test_costs_do_not_depend_on_the_parts_that_they_are_answered_in(monkeypatch):
    predictor = fitted(TRAIN.take(np.arange(40)))
    together = predictor.costs(TEST.problems, TEST.task)
    monkeypatch.setattr("tilearena.predictors.mlp_features.ROWS_AT_ONCE", 7 * 9)
    assert np.allclose(predictor.costs(TEST.problems, TEST.task), together, atol=1e-5)


def test_it_is_installed_under_its_name():
    assert isinstance(load("mlp-features"), MlpFeatures)
