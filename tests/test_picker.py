"""The tree behind `tilearena.pick`: its terms, how it grows, what is stored of it, and the predictor that it is."""

import json
import subprocess
import sys
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilearena.conformance import synthetic_table
from tilearena.errors import PredictorError, SpecError
from tilearena.feasible import rejection
from tilearena.figures import log_slowdown, with_failures
from tilearena.final import is_final
from tilearena.picker import choose, terms
from tilearena.picker.able import can_run
from tilearena.picker.grow import MIN_WEIGHT, N_COMPARED, SPREAD, evaluate, grow
from tilearena.picker.model import LEAF, read
from tilearena.picker.prune import model_of
from tilearena.picker.train import SEED, SOURCES, about, open_part, train
from tilearena.plugin_code import code_fingerprint
from tilearena.plugins import Declined
from tilearena.predictors import picker as distil
from tilearena.predictors.geometry import geometry
from tilearena.predictors.picker import Picker
from tilearena.records import K_ALIGNMENT, MAX_EXTENT, N_ALIGNMENT, PROTOCOLS, Problem
from tilearena.root import load
from tilearena.spec import load_space

SMS = 132
WIDE = {dtype: load_space(space).templates(dtype, "and") for space, dtype in (("h200-all", "s8"), ("sm80-wide", "b1"))}
EXTENTS = st.tuples(*(st.integers(1, MAX_EXTENT) for _ in "mnk"))


def value(term, m, n, k):
    return int(evaluate([term], np.array([[m, n, k]]), SMS)[0, 0])


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (("m", ()), 300),
        (("mnk", ()), 300 * 1000 * 512),
        (("power_of_m", ()), 4),
        (("power_of_n", ()), 8),
        (("aspect", ()), 300 * 1024 // 1000),
        (("tiles", (128, 256)), 3 * 4),
        (("useful", (128, 256)), 300 * 1000 * 1024 // (12 * 128 * 256)),
        (("full", (64, 64, 1, 1, 1, 1)), 80 * 1024 // SMS),  # 5 x 16 blocks, one wave
        (("full", (64, 64, 1, 1, 4, 1)), 320 * 1024 // (3 * SMS)),  # K shared by 4: three waves
        (("full", (64, 64, 1, 1, 4, 2)), 320 * 1024 // (2 * 2 * SMS)),
        (("full", (128, 128, 2, 1, 1, 1)), 4 * 8 * 1024 // SMS),  # clusters of two along M: 4 rows of tiles for 3
        (("busy", (64, 64, 1, 1, 1, 128, 128, 1, 1, 1)), (1 * 4096 * 1024) // (1 * 16384)),
        (("busy", (64, 64, 1, 1, 4, 128, 128, 1, 1, 1)), (3 * 1024 * 1024) // (1 * 16384)),
    ],
)
def test_term_is_what_it_says(term, expected):
    assert value(term, 300, 1000, 512) == expected


@pytest.mark.parametrize("dtype", WIDE)
@given(EXTENTS)
def test_every_term_is_the_same_in_numpy_as_in_python_and_fits_64_bits(dtype, shape):
    asked = terms.candidates(WIDE[dtype][::5])
    exact = [eval(terms.expression(term, SMS), {}, dict(zip("mnk", shape, strict=True))) for term in asked]
    assert evaluate(asked, np.array([shape]), SMS)[0].tolist() == exact
    assert max(exact) < 1 << 63


@pytest.mark.parametrize("dtype", WIDE)
def test_what_can_run_is_what_is_not_rejected(dtype, checkout):
    """On every corner and 200 shapes of all sizes, for every template; memory alone is no reason here."""
    space = {"s8": "h200-all", "b1": "sm80-wide"}[dtype]
    header = load(checkout, "nvidia-h200", "lowbit-random", space, dtype, "cold").header
    roomy = header.device.model_copy(update={"memory_bytes": 1 << 62})
    units = np.array([1, N_ALIGNMENT, K_ALIGNMENT[dtype]])
    shapes = np.exp2(np.random.default_rng(0).uniform(0, 20, (200, 3))).astype(np.int64) // units * units
    corners = np.array(list(product(*zip(units.tolist(), [MAX_EXTENT] * 3, strict=True))))
    shapes = np.maximum(np.concatenate([shapes, corners]), units)
    able = can_run(WIDE[dtype], shapes)
    bit_op = WIDE[dtype][0].bit_op
    for (m, n, k), row in zip(shapes.tolist(), able, strict=True):
        problem = Problem(m=m, n=n, k=k, dtype=dtype, bit_op=bit_op)
        assert row.tolist() == [rejection(problem, template, roomy) is None for template in WIDE[dtype]]
    assert 0 < able.mean() < 1


@pytest.mark.parametrize("dtype", WIDE)
def test_terms_count_blocks_as_the_features_do(dtype, checkout):
    """How full waves of one block an SM are, of every template, clusters and split-K included."""
    space = {"s8": "h200-all", "b1": "sm80-wide"}[dtype]
    task = load(checkout, "nvidia-h200", "lowbit-random", space, dtype, "cold").table.task
    units = np.array([1, N_ALIGNMENT, K_ALIGNMENT[dtype]])
    shapes = np.exp2(np.random.default_rng(0).uniform(7, 14, (50, 3))).astype(np.int64) // units * units
    counted = geometry(shapes, task)
    asked = [("full", (*t.threadblock[:2], *t.cluster, t.split_k, 1)) for t in task.templates]
    waves = np.ceil(counted.blocks / SMS)
    assert np.array_equal(evaluate(asked, shapes, SMS), np.floor(counted.blocks * 1024 / (waves * SMS)))


def planted():
    """Problems, three templates' costs by a rule of one term, and the terms."""
    problems = np.array([(m, 8 * n, 512) for m in range(1, 65) for n in range(1, 33)])
    asked = [("n", ()), ("power_of_m", ()), ("m", ())]
    best = np.where(problems[:, 0] <= 20, 0, np.where(problems[:, 1] <= 96, 1, 2))
    return problems, asked, 1.0 - np.eye(3)[best], best


def test_tree_finds_a_planted_rule_and_nothing_else():
    problems, asked, costs, best = planted()
    values = evaluate(asked, problems, SMS)
    tree = grow(asked, values, costs, np.ones(len(problems)))
    assert (tree.costs[tree.leaves(problems, SMS)].argmin(axis=1) == best).all()
    assert {(tree.terms[t], int(at)) for t, at in zip(tree.term, tree.threshold, strict=True) if t != LEAF} == {
        (("m", ()), 20),
        (("n", ()), 96),
    }
    flat = grow(asked, values, np.tile([0.5, 0.1, 0.3], (len(problems), 1)), np.ones(len(problems)))
    assert flat.term.tolist() == [LEAF]
    assert flat.costs.tolist() == [pytest.approx([0.5, 0.1, 0.3])]


def test_first_split_lowers_the_most_what_the_module_says_of_the_cheapest_templates():
    """Found here by trying all; were all templates compared it would now and then be another."""
    problems = np.array(list(product(range(1, 9), range(8, 72, 8), (128, 256))))
    asked = [("m", ()), ("n", ()), ("k", ())]
    values, others = evaluate(asked, problems, SMS), []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        costs, weights = rng.random((len(problems), 40)) ** 2, rng.integers(1, 4, len(problems)).astype(float)
        cheapest = np.argsort((costs * weights[:, None]).sum(axis=0))
        tree = grow(asked, values, costs, weights)
        first = tree.terms[tree.term[0]], int(tree.threshold[0])
        assert first == best_split(asked, values, costs[:, cheapest[:N_COMPARED]], weights)
        others.append(first != best_split(asked, values, costs, weights))
    assert 0 < sum(others) < len(others)


def best_split(asked, values, costs, weights):
    """By the module's text alone."""

    def impurity(rows):
        c, w = costs[rows], weights[rows][:, None]
        roots = np.sqrt(c)
        spread = w * np.square(roots - (w * roots).sum(axis=0) / w.sum())
        return (w * c).sum(axis=0).min() + SPREAD * spread.sum()

    splits = {}
    for column, term in zip(values.T, asked, strict=True):
        for at in np.unique(column)[:-1].tolist():
            yes = column <= at
            assert min(weights[yes].sum(), weights[~yes].sum()) >= MIN_WEIGHT
            splits[term, at] = impurity(yes) + impurity(~yes)
    return min(splits, key=splits.get)


def test_tree_minds_what_is_lost_and_not_how_often():
    """Of ten problems that no term tells apart, nine lose little with template 1 and one loses much."""
    problems = np.tile([[8, 8, 128]], (100, 1))
    costs = np.array([[0.02, 0.0]] * 90 + [[0.0, 1.0]] * 10)
    tree = grow([("m", ())], evaluate([("m", ())], problems, SMS), costs, np.ones(100))
    assert tree.costs.argmin(axis=1).tolist() == [0]


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


def test_tree_of_one_leaf_is_a_model_too():
    templates = load_space("paper9").templates("s8")
    asked = [("m", ())]
    tree = grow(asked, np.ones((50, 1), dtype=np.int64), np.tile(np.arange(9.0), (50, 1)), np.ones(50))
    model = model_of(tree, templates, SMS, {})
    assert (model.templates, model.index(1, 8, 16)) == (
        (templates[0].model_dump(mode="json", exclude_defaults=True),),
        0,
    )


@pytest.mark.parametrize(("spec", "space", "dtype"), SOURCES)
def test_shipped_models_were_trained_by_this_code_on_these_recordings_and_on_nothing_locked(
    spec, space, dtype, checkout
):
    for protocol in PROTOCOLS:
        recording = load(checkout, "nvidia-h200", spec, space, dtype, protocol)
        part = open_part(recording)
        assert not (spec == "lowbit-full" and is_final(part.problems).any())
        stored = choose.load(dtype, "nvidia-h200", space, protocol)
        assert stored.about == about(recording, len(part.problems))
        assert (stored.about["code_fingerprint"], stored.about["seed"]) == (code_fingerprint("picker"), SEED)
        assert stored.sm_count == recording.header.device.sm_count


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--space", "nope"], "no picker is trained for any dtype of 'nope'; known are s8 of paper9, "),
        (["--space", "h200-all", "--dtype", "b1"], "no picker is trained for 'b1' of 'h200-all'; known are "),
        (["--root", "."], "recorded devices: none"),
    ],
)
def test_training_that_cannot_be_is_one_sentence(options, sentence, tmp_path):
    program = [sys.executable, "-m", "tilearena.picker.train", *options]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("tilearena: ")
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_training_on_too_few_problems_is_the_users_mistake(monkeypatch, checkout):
    def decline(self, table, seed):
        raise Declined("picker needs more")

    monkeypatch.setattr(Picker, "fit", decline)
    shipped = choose.Shipped("nvidia-h200", "paper9", "s4", "cold")
    with pytest.raises(PredictorError, match="lowbit-random, paper9: picker needs more; record more"):
        train(checkout, shipped, "lowbit-random")


def test_page_says_how_many_problems_are_drawn(checkout):
    assert f"{distil.MOST_DRAWN:,} drawn problems" in (checkout / "docs" / "pick.md").read_text()
