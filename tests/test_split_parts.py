"""Every split's training and tested part, counted by hand on a few shapes."""

from dataclasses import replace

import numpy as np
import pytest
from scoring import DEVICE
from test_splits import TASK, grid, table

from tilearena.errors import RecordingError
from tilearena.final import is_final
from tilearena.splits import Fold, plan, random_folds
from tilearena.table import Ints, Table

#: m of shapes m x 136 x 144, the locked ones of lowbit-full first.
MS = np.arange(1, 41)
LOCKED = MS[is_final(np.array([[m, 136, 144] for m in MS]))]
OPEN = MS[~np.isin(MS, LOCKED)]


def full(ms: Ints) -> Table:
    return table(np.array([[m, 136, 144] for m in ms]))


def ms(problems: Ints) -> list[int]:
    return sorted(problems[:, 0].tolist())


def parts(fold: Fold, tested: Table) -> tuple[list[int], list[int]]:
    return ms(fold.train.problems), ms(tested.problems[fold.test_rows])


def on(sm_count: int, problems: Ints) -> Table:
    device = DEVICE.model_copy(update={"sm_count": sm_count})
    return table(problems, replace(TASK, device=device))


def test_some_shapes_are_locked_and_some_are_not():
    assert len(LOCKED) >= 5
    assert len(OPEN) >= 20


def test_final_trains_on_all_that_is_not_locked_and_tests_the_rest():
    tested = full(MS)
    (fold,) = plan("final", "lowbit-full", tested)
    assert parts(fold, tested) == (OPEN.tolist(), LOCKED.tolist())
    rows = [tested.problems[:, 0].tolist().index(m) for m in OPEN]
    assert fold.train.time_ns.tolist() == tested.time_ns[rows].tolist()


def test_random_folds_the_unlocked_problems_alone():
    tested = full(MS)
    folds = plan("random", "lowbit-full", tested)
    assert len(folds) == 5
    trained, asked = zip(*(parts(fold, tested) for fold in folds), strict=True)
    assert sorted(m for test in asked for m in test) == OPEN.tolist()
    for train, test in zip(trained, asked, strict=True):
        assert sorted(train + test) == OPEN.tolist()
    whole = plan("random", "lowbit-random", tested)
    assert sorted(m for fold in whole for m in parts(fold, tested)[1]) == MS.tolist()


def test_random_folds_are_those_of_the_unlocked_problems_by_themselves():
    alone = full(OPEN)
    expected = [ms(alone.problems[test]) for _, test in random_folds(alone.problems)]
    assert [parts(fold, full(MS))[1] for fold in plan("random", "lowbit-full", full(MS))] == expected


def test_extrapolate_trains_below_2_to_the_30_multiply_adds_and_tests_the_others():
    small, exact, large = [1 << 10, 1 << 10, 1008], [1 << 10, 1 << 10, 1 << 10], [1 << 20, 1 << 20, 1 << 20]
    tested = table(np.array([large, small, exact, [1, 8, 16]]))
    (fold,) = plan("extrapolate", "quick", tested)
    assert fold.train.problems.tolist() == [small, [1, 8, 16]]
    assert fold.test_rows.tolist() == [0, 2]


def test_extrapolate_leaves_locked_problems_out_of_both_parts():
    small, large = [[m, 1024, 1008] for m in range(1, 40)], [[m, 1024, 1024] for m in range(1024, 1064)]
    tested = table(np.array(small + large))
    locked = is_final(tested.problems)
    assert locked[:39].any()
    assert locked[39:].any()
    (fold,) = plan("extrapolate", "lowbit-full", tested)
    assert fold.train.problems.tolist() == tested.problems[:39][~locked[:39]].tolist()
    assert fold.test_rows.tolist() == (39 + np.flatnonzero(~locked[39:])).tolist()


def test_models_trains_on_lowbit_full_without_its_locked_part():
    tested = full(OPEN[:2])
    (fold,) = plan("models", "networks", tested, full(MS), train_spec="lowbit-full")
    assert parts(fold, tested) == (OPEN[2:].tolist(), OPEN[:2].tolist())
    (fold,) = plan("models", "networks", tested, full(MS))  # no part of lowbit-random is locked
    assert parts(fold, tested) == (sorted({*MS.tolist()} - {*OPEN[:2].tolist()}), OPEN[:2].tolist())


def test_device_trains_on_the_other_devices_without_the_tested_shapes():
    """12 shapes on the tested device; of these 1..6 and 101 on the one, 5..9 on the other."""
    tested = on(100, np.array([[m, 8, 16] for m in range(1, 13)]))
    near, far = on(90, np.array([[m, 8, 16] for m in (*range(1, 7), 101)])), on(40, grid_of(range(5, 10)))
    folds = plan("device", "quick", tested, replace(near, others=(far,)))
    assert sorted(m for fold in folds for m in parts(fold, tested)[1]) == list(range(1, 13))
    for fold in folds:
        asked = set(parts(fold, tested)[1])
        first, second = fold.train.tables
        assert (first.task.device.sm_count, second.task.device.sm_count) == (90, 40)
        assert ms(first.problems) == sorted({*range(1, 7), 101} - asked)
        assert ms(second.problems) == sorted({*range(5, 10)} - asked)
        assert first.time_ns.tolist() == near.time_ns[np.isin(near.problems[:, 0], list(asked), invert=True)].tolist()


def grid_of(values: range) -> Ints:
    return np.array([[m, 8, 16] for m in values])


def test_device_leaves_locked_problems_out_of_every_table():
    tested, others = full(MS), replace(full(MS[::-1]), others=(full(MS[:30]),))
    folds = plan("device", "lowbit-full", tested, others)
    assert sorted(m for fold in folds for m in parts(fold, tested)[1]) == OPEN.tolist()
    trained = {m for fold in folds for part in fold.train.tables for m in ms(part.problems)}
    assert trained == set(OPEN.tolist())


@pytest.mark.parametrize(
    ("split", "spec", "tested", "train", "message"),
    [
        ("final", "lowbit-full", full(OPEN), None, "split 'final' leaves no shape of 'lowbit-full' to test"),
        ("final", "lowbit-full", full(LOCKED), None, "split 'final' leaves no shape of 'lowbit-full' to train on"),
        ("extrapolate", "quick", table(grid(9)), None, "split 'extrapolate' leaves no shape of 'quick' to test"),
        (
            "device",
            "quick",
            table(grid(9)),
            None,
            "trains on a recording of another device of 'quick', and there is none",
        ),
        (
            "device",
            "quick",
            table(grid(9)),
            replace(table(grid(9)), others=(table(grid(9), replace(TASK, protocol="hot")),)),
            "'quick' has another op, dtype, protocol or space than the tested one",
        ),
        (
            "device",
            "quick",
            table(grid(9)),
            replace(table(grid(9)), others=(table(grid(1)),)),
            "split 'device' leaves no shape of 'quick' to train on",
        ),
    ],
)
def test_empty_part_of_a_split_is_refused(split, spec, tested, train, message):
    with pytest.raises(RecordingError, match=message):
        plan(split, spec, tested, train)
