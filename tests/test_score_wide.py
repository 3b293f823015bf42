"""Figures of a space of 300 templates, some infeasible on every problem; counted by hand."""

from dataclasses import replace

import numpy as np
import pytest
import scoring
from scoring import INF, KEY, values

from tilearena.picks import padded, picks_fingerprint, read_picks, write_picks
from tilearena.score import constant_costs, constant_pick, rank, score
from tilearena.table import Table

#: The default, 1, is feasible everywhere.
T, DEFAULT = 300, 1


def wide(times: list[dict[int, float]]) -> Table:
    """One row a problem; a template that is not named is infeasible there."""
    narrow = scoring.table(np.ones((len(times), 2)))
    time_ns = np.full((len(times), T), INF)
    for row, named in zip(time_ns, times, strict=True):
        row[list(named)] = list(named.values())
    templates = tuple(scoring.template(2).model_copy(update={"label": str(i)}) for i in range(T))
    return replace(narrow, task=replace(narrow.task, templates=templates), time_ns=time_ns)


#: Best 299, then 7, 1 and 0; best 250, 1 slowest; only 1 and 2 run, tied; only the default runs.
TABLE = wide([{299: 100, 7: 110, 1: 200, 0: 400}, {250: 50, 299: 60, 1: 100}, {1: 30, 2: 30}, {1: 80}])
#: Best first; infeasible, then best; infeasible seven times, then the best; none.
PICKS = np.array(
    [
        [299, 7, 1, 0, 2, 3, 4, 5],
        [7, 250, 1, 0, 2, 3, 4, 5],
        [299, 7, 250, 0, 100, 3, 4, 2],
        [-1, -1, -1, -1, -1, -1, -1, -1],
    ]
)


def test_ranking_of_300_templates_puts_infeasible_ones_last():
    ranked = rank(TABLE.time_ns)
    assert ranked.shape == (4, T)
    assert ranked[:, :4].tolist() == [[299, 7, 1, 0], [250, 299, 1, 0], [1, 2, 0, 3], [1, 0, 2, 3]]


def test_figures_with_infeasible_picks_by_hand():
    """An infeasible or missing first pick takes as long as the slowest that runs: 100 and 30 (a tie) and 80."""
    result = score(TABLE, PICKS, key=KEY, noise_floor=0.01, intervals=False)
    figures = values(result)
    assert (result.n_problems, result.n_failed, result.n_unmeasured, result.n_no_default) == (4, 3, 0, 0)
    assert (figures["top1"], figures["top2"], figures["top2_tie"]) == (1 / 4, 2 / 4, 2 / 4)
    assert figures["top2_measured"] == 1 / 4
    regret = [0, 100 / 50 - 1, 0, 0]
    assert figures["regret_mean"] == figures["regret_at_1"] == sum(regret) / 4
    assert figures["regret_max"] == 1
    assert (figures["regret_at_2"], figures["regret_at_4"], figures["regret_at_8"]) == (0, 0, 0)
    assert figures["speedup_geomean"] == pytest.approx(2 ** (1 / 4))
    assert figures["oracle_speedup_geomean"] == pytest.approx((2 * 2) ** (1 / 4))


def test_regret_at_k_is_of_the_best_of_the_first_k_that_run():
    picks = np.array([[0, 1, 5, 7, 9, 10, 11, 299]])
    figures = values(score(wide([{299: 100, 7: 110, 1: 200, 0: 400}]), picks, key=KEY, intervals=False))
    assert [figures[f"regret_at_{k}"] for k in (1, 2, 4, 8)] == pytest.approx([3, 1, 0.1, 0])


def test_tie_band_does_not_reach_infeasible_templates():
    figures = values(score(wide([{299: 100, 7: 101, 1: 200}]), np.array([[7, 5]]), key=KEY, noise_floor=0.02))
    assert (figures["top2"], figures["top2_tie"], figures["top2_measured"]) == (0, 1, 1)
    figures = values(score(wide([{299: 100, 7: 101, 1: 200}]), np.array([[5, 6]]), key=KEY, noise_floor=0.02))
    assert (figures["top2"], figures["top2_tie"], figures["top2_measured"]) == (0, 0, 0)


def test_constant_counts_as_the_slowest_where_it_is_infeasible():
    """Template 1 always runs: log 2, log 2, 0, 0. Template 299 fails twice, at no cost: 0, log 1.2, 0, 0."""
    costs = constant_costs(TABLE)
    assert costs[[1, 299]].tolist() == pytest.approx([2 * np.log(2) / 4, np.log(1.2) / 4])
    assert costs[3] == pytest.approx((np.log(4) + np.log(2)) / 4)  # infeasible everywhere
    assert constant_pick(TABLE) == 299


def test_ceiling_by_a_repeat_whose_fastest_is_infeasible_here():
    repeat = wide([{5: 90, 7: 100}, {250: 50, 1: 70}, {2: 30, 1: 31}, {1: 80}])
    figures = values(score(TABLE, PICKS, key=KEY, repeat=repeat, intervals=False))
    assert figures["ceiling_top1"] == 3 / 4
    assert figures["ceiling_top2"] == 3 / 4
    assert figures["ceiling_regret_mean"] == pytest.approx((400 / 100 - 1) / 4)


def test_picks_of_300_templates_come_back_as_written(tmp_path):
    path = tmp_path / "picks.parquet"
    ranked = rank(TABLE.time_ns)
    write_picks(path, [ranked])
    (back,) = read_picks(path, path.read_bytes(), ["s8/cold/random"])
    assert (back == ranked[:, :8]).all()
    assert (padded(ranked) == ranked[:, :8]).all()
    assert picks_fingerprint(back) == picks_fingerprint(ranked)
