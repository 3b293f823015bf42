"""The tree behind `tilearena.pick`: the terms that it looks at, what can run, and how it grows."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilearena.feasible import rejection
from tilearena.picker import terms
from tilearena.picker.able import can_run
from tilearena.picker.grow import MIN_WEIGHT, N_COMPARED, SPREAD, evaluate, grow
from tilearena.picker.model import LEAF
from tilearena.picker.prune import model_of
from tilearena.predictors.geometry import geometry
from tilearena.records import K_ALIGNMENT, MAX_EXTENT, N_ALIGNMENT, Problem
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


def test_tree_of_one_leaf_is_a_model_too():
    templates = load_space("paper9").templates("s8")
    asked = [("m", ())]
    tree = grow(asked, np.ones((50, 1), dtype=np.int64), np.tile(np.arange(9.0), (50, 1)), np.ones(50))
    model = model_of(tree, templates, SMS, {})
    assert (model.templates, model.index(1, 8, 16)) == (
        (templates[0].model_dump(mode="json", exclude_defaults=True),),
        0,
    )
