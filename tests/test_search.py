"""Searches without a model on times that can be counted by hand."""

import sys
from itertools import combinations, permutations
from types import SimpleNamespace

import numpy as np
import pytest
from scoring import INF, table

from tilearena import search
from tilearena.errors import PredictorError
from tilearena.score import constant_pick


def test_counts_double_up_to_the_size_of_the_space():
    assert search.counts(9) == (1, 2, 4, 8, 9)
    assert search.counts(8) == (1, 2, 4, 8)
    assert search.counts(1) == (1,)
    assert search.counts(300, 32) == (1, 2, 4, 8, 16, 32)
    assert search.counts(9, 32) == (1, 2, 4, 8, 9)
    assert search.counts(300, 20) == (1, 2, 4, 8, 16, 20)


def test_kept_is_the_first_of_the_fastest_so_far():
    reward_ns = np.array([[30.0, INF, 10.0, 10.0], [INF, INF, 5.0, 7.0]])
    picks = np.array([[1, 0, 3, 2], [0, 3, 2, -1]])
    assert search.kept(reward_ns, picks).tolist() == [[-1, 0, 3, 3], [-1, 3, 2, 2]]


def test_random_expects_the_best_of_each_draw():
    # regrets 0, 1, 3, 7: of the 6 pairs 3 hold the fastest, 2 more the second; of the 4 triples 1 lacks the fastest
    times = table([[20, 10, 80, 40]])
    expected = [[(0 + 1 + 3 + 7) / 4, (3 * 0 + 2 * 1 + 1 * 3) / 6, (3 * 0 + 1 * 1) / 4, 0]]
    assert search.random_regret(times, times.time_ns, (1, 2, 3, 4)) == pytest.approx(np.array(expected))


def test_random_draw_of_failed_templates_alone_counts_as_the_slowest():
    times = table([[INF, 10, INF, 40]])
    # 3 of the 6 pairs hold the only fast one
    expected = [[(0 + 3 + 3 + 3) / 4, 3 * 3 / 6]]
    assert search.random_regret(times, times.time_ns, (1, 2)) == pytest.approx(np.array(expected))


def test_random_keeps_templates_of_equal_reward_equally_often():
    judging, reward_ns = table([[10, 20, 30]]), np.array([[5.0, 5.0, 9.0]])
    # pairs: the tied two 0 or 1, the first and third 0, the second and third 1
    expected = [[(0 + 1 + 2) / 3, (0.5 + 0 + 1) / 3, 0.5]]
    assert search.random_regret(judging, reward_ns, (1, 2, 3)) == pytest.approx(np.array(expected))


@pytest.mark.parametrize("seed", range(3))
def test_random_is_the_mean_over_all_orders_of_another_reward(seed):
    rng = np.random.default_rng(seed)
    time_ns, reward_ns = rng.integers(1, 9, (2, 4, 5)).astype(float)
    time_ns[rng.random(time_ns.shape) < 0.2], reward_ns[rng.random(time_ns.shape) < 0.2] = INF, INF
    time_ns[:, 0] = 6.0
    judging = table(time_ns)
    orders = np.array(list(permutations(range(5))))
    every = [search.regret(judging, search.kept(reward_ns, np.tile(order, (4, 1)))) for order in orders]
    assert search.random_regret(judging, reward_ns, (1, 2, 3, 4, 5)) == pytest.approx(np.mean(every, axis=0))


def test_constant_set_adds_what_complements_and_not_the_next_best_constant():
    train = table([[10, 12, 40], [10, 12, 40], [40, 30, 10]])
    # alone the second is better than the third, but where the first is bad, the third is best
    assert search.constant_set(train, 3).tolist() == [0, 2, 1]
    assert search.constant_set(train, 2).tolist() == [0, 2]
    assert search.constant_set(train, 9).tolist() == [0, 2, 1]


def test_constant_set_counts_a_failure_as_the_slowest_and_passes_over_what_nothing_ran_on():
    # alone each loses log 4 once: the first by its failure
    train = table([[INF, 10, 40], [10, 40, 40], [INF, INF, INF]])
    assert search.constant_set(train, 2).tolist() == [0, 1]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_constant_set_begins_with_the_best_constant_and_each_step_is_the_best_one(depth):
    rng = np.random.default_rng(depth)
    train = table(np.exp(rng.normal(0, 1, (30, 5))))
    chosen = search.constant_set(train, depth).tolist()
    assert chosen[0] == constant_pick(train)
    loss = np.log(train.time_ns / train.time_ns.min(axis=1, keepdims=True))
    rivals = [c for c in combinations(range(5), depth) if set(chosen[:-1]) <= set(c)]
    assert set(min(rivals, key=lambda c: loss[:, list(c)].min(axis=1).mean())) == set(chosen)


def test_constant_picks_come_from_the_fold_that_tests_a_problem():
    first, second = table([[10, 40]]), table([[40, 10]])
    folds = [SimpleNamespace(train=first, test_rows=np.array([2])), SimpleNamespace(train=second, test_rows=[0])]
    assert search.constant_picks(folds, 3, 2).tolist() == [[1, 0], [-1, -1], [0, 1]]


def test_tpe_that_measures_all_finds_the_best_on_every_problem():
    rng = np.random.default_rng(0)
    times = table(rng.integers(100, 200, (4, 11)))
    picks = search.tpe_picks(times, times.time_ns, 99, [0])
    assert np.sort(picks, axis=1).tolist() == [list(range(11))] * 4
    assert search.regret(times, search.kept(times.time_ns, picks))[:, -1].tolist() == [0] * 4
    assert search.tpe_picks(times, times.time_ns, 99, [0]).tolist() == picks.tolist()
    assert search.tpe_picks(times, times.time_ns, 3, [0]).tolist() == picks[:, :3].tolist()
    assert search.tpe_picks(times, times.time_ns, 99, [1]).tolist() != picks.tolist()
    assert len({tuple(row) for row in picks.tolist()}) == 4  # problems do not share a seed


def test_tpe_spends_a_measurement_on_a_template_that_fails():
    times = table([[INF] * 10 + [7]])
    picks = search.tpe_picks(times, times.time_ns, 11, [1])
    found = picks[0].tolist().index(10)
    assert found > 0
    assert search.kept(times.time_ns, picks)[0].tolist() == [-1] * found + [10] * (11 - found)
    assert search.tpe_picks(times, times.time_ns, found, [1]).tolist() == picks[:, :found].tolist()


def test_tpe_learns_from_recorded_speed(recorded):
    times = recorded("quick", "s8", "cold").table
    ks = (4,)
    picks = search.tpe_picks(times, times.time_ns, 4, [0])
    reached = search.regret(times, search.kept(times.time_ns, picks))[:, -1].mean()
    assert reached < 0.6 * search.random_regret(times, times.time_ns, ks).mean()


def test_tpe_reports_how_many_studies_are_done():
    times, seen = table([[1, 2], [2, 1], [1, 1]]), []
    search.tpe_picks(times, times.time_ns, 1, [0], lambda done, total: seen.append((done, total)))
    assert seen == [(0, 3), (1, 3), (2, 3)]


def test_tpe_without_optuna_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    times = table([[1, 2]])
    with pytest.raises(PredictorError, match=r"strategy 'tpe' needs Optuna .*pip install 'tilearena\[search\]'$"):
        search.tpe_picks(times, times.time_ns, 1, [0])
