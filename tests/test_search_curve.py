"""Curves of searches and predictors: which problems, which reward, which figures."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scoring
from scoring import INF

from tilearena.errors import RecordingError, SpecError
from tilearena.judge import Sources
from tilearena.score import score
from tilearena.search_curve import Course, Curve, course, of_picks, of_random, of_tpe, rows, with_intervals

KS = (1, 2, 4)


def course_of(times, reward_ns=None):
    table = scoring.table(times)
    every = np.arange(len(table.problems))
    reward_ns = table.time_ns if reward_ns is None else np.array(reward_ns)
    return Course(every, table, reward_ns, every, len(every))


@pytest.fixture
def sources(arena):
    """Of 40 problems, recorded twice."""
    return Sources.open(arena.root, arena.key("lowbit-random", "s8"))


def fold(*test_rows):
    return SimpleNamespace(train=None, test_rows=np.array(test_rows))


def test_curve_of_picks_has_the_regret_and_the_failures_of_the_first_k():
    # regrets 0, 1, 3, and a failure as the slowest
    found = of_picks("mine", course_of([[10, 20, 40, INF]]), np.array([[3, 2, 1, 0]]), KS)
    assert (found.strategy, found.ks) == ("mine", KS)
    assert found.regret.tolist() == [[3, 3, 0]]
    assert found.failed.tolist() == [[1, 1, 1]]


def test_curve_of_few_picks_ends_with_them():
    found = of_picks("mine", course_of([[10, 20, 40, 80]]), np.array([[1, 2, -1]]), KS)
    assert (found.ks, found.regret.tolist(), found.failed.tolist()) == ((1, 2), [[1, 1]], [[0, 0]])


@pytest.mark.parametrize("seed", range(3))
def test_curve_of_picks_is_regret_at_k_of_the_score(seed):
    times, picks = scoring.random_case(30, seed)
    times[np.random.default_rng(seed).random(times.shape) < 0.2] = INF
    times[:, 1] = 1e5
    (one, two, four) = rows([of_picks("toy", course_of(times), picks, KS)], np.arange(30))
    figures = scoring.judged(times, picks).figures
    for row, k in ((one, 1), (two, 2), (four, 4)):
        expected = figures[f"regret_at_{k}"]
        assert (row["strategy"], row["k"]) == ("toy", k)
        assert [row[f"regret_mean{s}"] for s in ("", "_lo", "_hi")] == [expected.value, expected.lo, expected.hi]


def test_reward_of_another_recording_chooses_and_the_recording_judges():
    # by the reward the second is the fastest of all, and the third of the last two; the first has no reward
    one = course_of([[10, 20, 40, 80]], [[INF, 1.0, 2.0, 3.0]])
    found = of_picks("mine", one, np.array([[0, 3, 2, 1]]), KS)
    assert (found.regret.tolist(), found.failed.tolist()) == ([[7, 7, 1]], [[1, 1, 1]])


def test_random_curve_counts_its_expected_failures():
    found = of_random(course_of([[10, 20, 40, INF], [10, INF, INF, INF]]), KS)
    assert found.failed.tolist() == [[0.25, 0.5, 1], [0.75, 1.5, 3]]
    assert found.regret[0, 0] == pytest.approx((0 + 1 + 3 + 3) / 4)


def test_tpe_curve_is_the_mean_of_its_runs():
    times = course_of([[10, 20, 40, INF, 80], [50, 40, 30, 20, 10]])
    done = []
    one, both = (
        of_tpe(times, (1, 2), runs=runs, seed=4, progress=lambda *heard: done.append(heard)) for runs in (1, 2)
    )
    assert (both.strategy, both.ks) == ("tpe", (1, 2))
    assert done[-4:] == [(i, 4, "tpe") for i in range(4)]
    second = 2 * both.regret - one.regret
    possible = [[0, 1, 3, 7], [0, 1, 2, 3, 4]]
    for own, regrets in zip(second, possible, strict=True):
        assert all(np.isclose(own[:, None], regrets).any(axis=1))
    assert of_tpe(times, (1, 2), runs=1, seed=4).regret.tolist() == one.regret.tolist()


def test_rows_have_means_with_intervals_over_problems_in_order():
    curve = Curve("mine", (1, 4), np.array([[0.0, 0.0], [0.5, 0.0]]), np.array([[0.0, 1.0], [1.0, 2.0]]))
    first, second = rows([curve], np.array([0, 1]))
    assert list(first) == ["strategy", "k", "regret_mean", "regret_mean_lo", "regret_mean_hi", "n_failed_mean"]
    assert list(first.values()) == ["mine", 1, 0.25, 0.0, 0.5, 0.5]
    assert list(second.values()) == ["mine", 4, 0.0, 0.0, 0.0, 1.5]
    one_group = rows([curve], np.array([7, 7]))[0]  # whole groups are drawn
    assert [one_group[f"regret_mean{s}"] for s in ("", "_lo", "_hi")] == [0.25] * 3


def test_intervals_leave_out_what_is_unknown():
    columns = {"some": np.array([1.0, np.nan, 3.0]), "none": np.full(3, np.nan)}
    flat = with_intervals(columns, np.arange(3), 0)
    assert flat["some"] == 2.0
    assert (flat["none"], flat["none_lo"], flat["none_hi"]) == (None, None, None)


def test_course_has_what_the_folds_test_evenly_sampled(sources):
    groups = np.arange(40) // 2
    found = course(sources, [fold(30, 2, 4), fold(0, 8, 6)], groups)
    assert (found.rows.tolist(), found.n_of) == ([0, 2, 4, 6, 8, 30], 6)
    assert found.table.problems.tolist() == sources.test.table.problems[found.rows].tolist()
    assert found.reward_ns.tolist() == found.table.time_ns.tolist()
    assert found.groups.tolist() == [0, 1, 2, 3, 4, 15]
    few = course(sources, [fold(30, 2, 4), fold(0, 8, 6)], groups, sample=3)
    assert (few.rows.tolist(), few.n_of) == ([0, 4, 8], 6)
    assert course(sources, [fold(1, 2)], groups, sample=3).rows.tolist() == [1, 2]


def test_course_rewards_by_the_repeat_what_that_has_measured(sources, arena):
    shapes = sources.test.table.problems
    arena.record("lowbit-random", "s8", shapes[::-2], seed=1, repeat=True)
    partial = Sources.open(arena.root, arena.key("lowbit-random", "s8"))
    found = course(partial, [fold(*range(40))], np.arange(40), by_repeat=True)
    assert found.rows.tolist() == list(range(1, 40, 2))
    assert found.reward_ns.tolist() == partial.repeat.table.time_ns[::-1].tolist()
    assert found.table.time_ns.tolist() == partial.test.table.time_ns[1::2].tolist()


def test_search_that_measures_all_is_flattered_by_its_own_reward_alone(sources):
    """By the repeat, nothing is won by measuring all: what is kept is what the ceiling is made of."""
    every, picks = [fold(*range(40))], np.tile(np.arange(9), (40, 1))
    own, other = (
        of_picks("all", course(sources, every, np.arange(40), by_repeat=by_repeat), picks, (9,)).regret.mean()
        for by_repeat in (False, True)
    )
    key = scoring.KEY
    ceiling = score(sources.test.table, picks[:, :8], key=key, repeat=sources.repeat.table, intervals=False)
    assert own == 0
    assert other == pytest.approx(ceiling.figures["ceiling_regret_mean"].value)
    assert other > 0


def test_course_is_refused_without_repeat_times_or_problems(sources):
    everything = [fold(*range(40))]
    with pytest.raises(RecordingError, match=r"^lowbit-random \(s8, cold\) has no repeat; record one with "):
        course(replace(sources, repeat=None), everything, np.arange(40), by_repeat=True)
    nothing = sources.test.table.take(np.zeros(40, dtype=bool))
    labels = SimpleNamespace(
        header=sources.test.header, table=replace(nothing, task=replace(nothing.task, labels_only=True))
    )
    with pytest.raises(RecordingError, match="is of labels, without times; a search needs times"):
        course(replace(sources, test=labels), everything, np.arange(40))
    failed = SimpleNamespace(
        header=sources.test.header, table=replace(sources.test.table, time_ns=np.full((40, 9), INF))
    )
    with pytest.raises(SpecError, match="no problem of lowbit-random is left to search on"):
        course(replace(sources, test=failed), everything, np.arange(40))
