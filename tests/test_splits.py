from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scoring import DEVICE, template

from tilearena.errors import RecordingError, SpecError
from tilearena.splits import (
    groups_for,
    models_split,
    plan,
    random_folds,
    shape_codes,
    train_spec_for,
)
from tilearena.table import Ints, Table, Task

TEMPLATES = (template(2), template(3))
TASK = Task("gemm", "s8", None, "test", TEMPLATES, 0, DEVICE, "cold")

shapes = st.tuples(st.integers(1, 4), st.integers(1, 1 << 20), st.integers(1, 4))


def table(problems: Ints, task: Task = TASK) -> Table:
    return Table(task, problems, np.arange(1.0, 2 * len(problems) + 1).reshape(-1, 2))


def grid(n: int) -> Ints:
    return np.array([[1 + i, 8 * (i % 3 + 1), 16 * (i % 2 + 1)] for i in range(n)], dtype=np.int64)


@given(st.lists(shapes, min_size=2, max_size=40))
def test_shape_codes_are_equal_only_for_equal_shapes(rows: list[tuple[int, int, int]]) -> None:
    codes = shape_codes(np.array(rows, dtype=np.int64))
    assert len(set(codes.tolist())) == len(set(rows))


def test_shape_codes_hold_the_largest_extents() -> None:
    largest = 1 << 20
    assert shape_codes(np.array([[largest, largest, largest]])).tolist() == [
        (largest << 42) + (largest << 21) + largest
    ]


@given(st.lists(shapes, min_size=1, max_size=60), st.integers(0, 3))
def test_random_folds_test_each_problem_once_and_leak_no_shape(rows: list[tuple[int, int, int]], seed: int) -> None:
    problems = np.array(rows + [(9, i, 9) for i in range(5)], dtype=np.int64)
    folds = random_folds(problems, seed=seed)
    assert len(folds) == 5
    assert sorted(np.concatenate([test for _, test in folds]).tolist()) == list(range(len(problems)))
    for train, test in folds:
        assert sorted([*train, *test]) == list(range(len(problems)))
        trained, tested = ({tuple(p) for p in problems[part].tolist()} for part in (train, test))
        assert not trained & tested


def test_random_folds_are_balanced_in_shapes() -> None:
    assert sorted(len(test) for _, test in random_folds(grid(23))) == [4, 4, 5, 5, 5]


def test_random_folds_do_not_depend_on_the_order_of_problems() -> None:
    problems = grid(23)
    order = np.random.default_rng(1).permutation(23)
    for (_, test), (_, moved) in zip(random_folds(problems), random_folds(problems[order]), strict=True):
        assert sorted(order[moved]) == test.tolist()


def test_random_folds_are_pinned_for_a_seed() -> None:
    assert [test.tolist() for _, test in random_folds(grid(7), n_folds=3, seed=0)] == [[3, 5, 6], [0, 2], [1, 4]]
    assert [test.tolist() for _, test in random_folds(grid(7), n_folds=3, seed=1)] == [[0, 1, 2], [4, 6], [3, 5]]


def test_random_folds_refuse_fewer_shapes_than_folds() -> None:
    with pytest.raises(SpecError, match="needs at least 5 distinct shapes and got 4; measure more"):
        random_folds(np.concatenate([grid(4), grid(4)]))


def test_models_split_takes_shared_shapes_from_training() -> None:
    train = table(np.array([[1, 8, 16], [2, 8, 16], [1, 16, 8]]))
    test = table(np.array([[2, 8, 16], [3, 8, 16]]))
    train_rows, test_rows = models_split(train, test)
    assert (train_rows.tolist(), test_rows.tolist()) == ([0, 2], [0, 1])


def test_plan_random_gives_the_training_part_of_each_fold() -> None:
    tested = table(grid(11))
    folds = plan("random", "quick", tested)
    assert len(folds) == 5
    for fold, (train, test) in zip(folds, random_folds(tested.problems), strict=True):
        assert fold.test_rows.tolist() == test.tolist()
        assert fold.train.problems.tolist() == tested.problems[train].tolist()
        assert fold.train.time_ns.tolist() == tested.time_ns[train].tolist()


def test_plan_models_is_one_fold_that_tests_everything() -> None:
    tested = table(np.array([[2, 8, 16], [3, 8, 16]]))
    (fold,) = plan("models", "networks", tested, table(np.array([[1, 8, 16], [2, 8, 16]])))
    assert fold.train.problems.tolist() == [[1, 8, 16]]
    assert fold.train.time_ns.tolist() == [[1.0, 2.0]]
    assert fold.test_rows.tolist() == [0, 1]


def test_train_spec_follows_split_and_spec() -> None:
    assert train_spec_for("random", "networks") == "networks"
    assert train_spec_for("models", "networks") == "lowbit-random"
    assert train_spec_for("models", "networks", "lowbit-full") == "lowbit-full"
    for split in ("random", "extrapolate", "device", "final"):
        assert train_spec_for(split, "lowbit-full", "lowbit-random") == "lowbit-full"


@pytest.mark.parametrize(
    ("split", "spec", "message"),
    [
        ("models", "quick", "split 'models' tests the spec 'networks', not 'quick'; use --split random"),
        ("later", "quick", "no split named 'later'; choose one of random, models, final, extrapolate, device"),
        ("final", "lowbit-random", "split 'final' tests the spec 'lowbit-full', which alone has a locked part"),
    ],
)
def test_plan_refuses_an_unsuited_split(split: str, spec: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        plan(split, spec, table(grid(9)), table(grid(9)))


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (None, "split 'models' trains on a recording of 'lowbit-random', and there is none; measure it first"),
        (table(grid(9), replace(TASK, protocol="hot")), "'lowbit-random' has another op, dtype, protocol or space"),
        (table(grid(9), replace(TASK, templates=TEMPLATES[::-1])), "'lowbit-random' has another op"),
        (table(grid(3)), "leaves no shape of 'lowbit-random' to train on"),
    ],
)
def test_plan_refuses_unusable_training_tables(train: Table | None, message: str) -> None:
    with pytest.raises(RecordingError, match=message):
        plan("models", "networks", table(grid(9)), train)


def test_groups_for_networks_join_token_counts_of_a_layer() -> None:
    problems = np.array([[1, 8, 16], [2, 8, 16], [1, 16, 8]])
    layers, single = groups_for("networks", problems), groups_for("quick", problems)
    assert layers[0] == layers[1] != layers[2]
    assert len(set(single.tolist())) == 3
