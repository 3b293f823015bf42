"""The predictor behind `tilearena.pick`: what it draws, what its tree is grown on, and what is stored of it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tilearena.conformance import synthetic_table
from tilearena.errors import SpecError
from tilearena.figures import log_slowdown, with_failures
from tilearena.final import is_final
from tilearena.picker import terms
from tilearena.picker.able import can_run
from tilearena.picker.model import read
from tilearena.plugins import Declined
from tilearena.predictors import picker as distil
from tilearena.predictors.picker import Picker
from tilearena.records import K_ALIGNMENT, N_ALIGNMENT
from tilearena.root import load


@pytest.fixture(scope="module")
def trained(request):
    """A picker of h200-all, fitted on 150 problems with few drawn ones, and the table."""
    table = load(request.config.rootpath, "nvidia-h200", "lowbit-random", "h200-all", "s8", "cold").table
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distil, "MOST_DRAWN", 2000)
        patch.setattr(distil, "MOST_TEMPLATES", 12)
        picker = Picker()
        picker.fit(table.take(np.arange(len(table.problems)) % 4 == 0), 0)
    return picker, table


def test_drawn_problems_go_beyond_the_training_part_but_not_far(trained):
    _, table = trained
    drawn, measured = distil._drawn(table, 4000, 0), table.problems
    assert len(drawn) > 3000
    assert (drawn.max(axis=0) > 2 * measured.max(axis=0)).all()
    assert (drawn.max(axis=0) <= 4 * measured.max(axis=0) + 128).all()
    assert 2 < drawn.prod(axis=1).max() / measured.prod(axis=1).max() <= 4
    # three quarters within, and of those from wider ranges what happens to be
    within = (drawn <= measured.max(axis=0)).all(axis=1) & (drawn.prod(axis=1) <= measured.prod(axis=1).max())
    assert 0.8 < within.mean() < 0.95
    assert (drawn % np.array([1, N_ALIGNMENT, K_ALIGNMENT["s8"]]) == 0).all()


def test_stored_model_picks_what_the_predictor_ranks_first(trained):
    picker, table = trained
    model = picker.model({"trained_on": []})
    ranked = picker.costs(table.problems, table.task).argmin(axis=1)
    ids = [t.id for t in table.task.templates]
    picks = [model.records[model.index(*shape)].id for shape in table.problems.tolist()]
    assert picks == [ids[i] for i in ranked]
    assert len(set(picks)) > 5


def test_what_is_lost_is_the_root_of_the_distance_up_to_a_limit():
    assert distil._cost(np.array([0.0, 0.25, 1.0, 4.0])).tolist() == [0.0, 0.5, 1.0, 1.0]


def test_tree_is_grown_on_measured_problems_and_on_what_the_teacher_says_of_drawn_ones(monkeypatch):
    asked, grown = [], []

    class Teacher:
        def __init__(self, n_corrections):
            asked.append(n_corrections)

        def fit(self, train, seed):
            asked.append((len(train.problems), seed))

        def costs(self, problems, task, columns, shortlist):
            asked.append((len(columns), shortlist))
            return np.tile(0.1 + 0.04 * np.arange(len(columns)), (len(problems), 1))

    monkeypatch.setattr(distil, "Gbdt", Teacher)
    monkeypatch.setattr(distil, "grow", lambda terms, values, costs, weights: grown.append((costs, weights)))
    table = synthetic_table(100)
    Picker().fit(table, 7)
    (costs, weights), n_templates = grown[0], len(table.task.templates)
    slowdown = log_slowdown(table.time_ns)
    n_drawn = min(distil.DRAWN_EACH * slowdown.size, distil.MOST_DRAWN)
    assert asked[:2] == [distil.CORRECTIONS, (100, 7)]
    assert set(asked[2:]) == {(n_templates, distil.SHORTLIST)}
    np.testing.assert_allclose(costs[:100], np.minimum(slowdown, 1.0) ** 0.25)
    np.testing.assert_allclose(costs[100:], np.tile(np.sqrt(0.04 * np.arange(n_templates)), (len(costs) - 100, 1)))
    assert weights.tolist() == [distil.MEASURED_WEIGHT] * 100 + [1.0] * (len(costs) - 100)
    assert 0.85 * n_drawn < len(costs) - 100 <= n_drawn


def test_predictor_learns(trained):
    """On problems that it was not fitted on it loses a tenth of what the default loses, at most."""
    picker, table = trained
    other = table.take(np.arange(len(table.problems)) % 4 != 0)
    times = with_failures(other.time_ns)
    rows, best = np.arange(len(times)), times.min(axis=1)
    lost = times[rows, picker.costs(other.problems, other.task).argmin(axis=1)] / best - 1
    assert lost.mean() < 0.1 * (times[:, other.task.default] / best - 1).mean()


def test_predictor_ranks_every_template_and_those_that_cannot_run_last(trained):
    picker, table = trained
    problems = np.array([[1, 8, 16], [16, 1 << 20, 32], [5000, 5000 // 8 * 8, 4096]])
    costs = picker.costs(problems, table.task)
    able = can_run(table.task.templates, problems)
    assert costs.shape == (3, len(table.task.templates))
    assert np.isfinite(costs).all()
    assert not able[0].all()
    for row, runs in zip(costs, able, strict=True):
        assert runs.all() or row[runs].max() < row[~runs].min()


def test_predictor_declines_other_templates(trained):
    picker, table = trained
    other = replace(table.task, templates=table.task.templates[::-1])
    with pytest.raises(Declined, match="picker ranks only the templates that it was trained on"):
        picker.costs(table.problems, other)


def test_predictor_serves_devices_with_other_sm_counts(checkout):
    """Of three partitions of a card each: the tree knows how many SMs there are from the terms alone."""
    tables = [
        load(checkout, device, "lowbit-full", "paper9", "s8", "cold").table
        for device in ("nvidia-h200-sm72", "nvidia-h200-sm112")
    ]
    tables = [table.take(~is_final(table.problems)) for table in tables]
    picker = Picker()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distil, "MOST_DRAWN", 4000)
        picker.fit(replace(tables[0].take(np.arange(len(tables[0].problems)) % 3 == 0), others=(tables[1],)), 0)
    losses = []
    for table in tables:
        best, rows = table.time_ns.min(axis=1), np.arange(len(table.problems))
        picks = picker.costs(table.problems, table.task).argmin(axis=1)
        losses.append((table.time_ns[rows, picks] / best - 1).mean())
    assert max(losses) < 0.02


def test_model_is_read_as_it_was_written_and_nothing_else_is(trained, tmp_path):
    model = trained[0].model({"trained_on": [], "device": "x"})
    path = tmp_path / "model.json"
    path.write_text(model.text())
    assert read(path) == model
    parts = json.loads(model.text())
    for change, sentence in (
        ({"schema_version": 9}, "schema version 9, this tilearena reads 1; update it"),
        ({"terms": 3}, "no picker's model"),
        ({"more": 3}, "no picker's model"),
    ):
        path.write_text(json.dumps(parts | change))
        with pytest.raises(SpecError, match=sentence):
            read(path)
    for text in ("", "[]", "{", model.text()[:-100]):
        path.write_text(text)
        with pytest.raises(SpecError, match="no picker's model"):
            read(path)


def test_pruned_model_is_smaller_and_lists_only_what_can_be_picked(trained):
    picker, _ = trained
    model = picker.model({"trained_on": []})
    assert len(model.term) < len(picker._tree.term)
    assert {i for list_ in model.lists for i in list_} == set(range(len(model.templates)))
    for list_ in model.lists:
        restricted = [bool(terms.conditions(model.records[i])) for i in list_]
        assert restricted[-1] is False
        assert all(restricted[:-1])


def test_page_says_how_many_problems_are_drawn(checkout):
    assert f"{distil.MOST_DRAWN:,} drawn problems" in (checkout / "docs" / "pick.md").read_text()
