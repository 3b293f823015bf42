"""Each figure follows the glossary, on tables counted by hand."""

import json
import math
from typing import Any

import numpy as np
import pytest
from scoring import INF, KEY, judged, random_case, table, values

from tilearena.errors import PredictorError, RecordingError
from tilearena.score import FIGURES, Key, constant_costs, constant_pick, rank, score

NOT_RUN = [-1, -1, -1, -1]
#: Made up so that every rule of the glossary decides a figure; template 1 is the default.
TIMES = [
    [100, 200, 100, 400],  # a tie for best, picked
    [100, 150, INF, 300],  # the pick is infeasible, the second pick is right
    [100, 101, 250, 400],  # the pick is the default, 1 % from the best
    [200, INF, 100, 160],  # the default failed
    [INF, INF, INF, INF],  # nothing ran
    [100, 80, 50, 200],  # no pick
    [120, 100, 110, 400],  # the default is best
]
PICKS = [[2, 0, 1, 3], [2, 0, 1, 3], [1, 2, 3, 0], [3, 2, 0, 1], [0, 1, 2, 3], NOT_RUN, [2, 1, 0, 3]]
#: Of cuBLASLt: known for problems 0, 1, 3 and 5, where templates ran too.
VENDOR = np.array([150, 150, INF, 80, 100, 100, math.nan])
#: Judges problems 0, 1 and 2: the fourth has no times in it, the fifth none in the table, and one is foreign.
REPEAT_ROWS = [2, 1, 0, 3, 4, 7]
REPEAT = [
    [400, 101, 100, 250],
    [100, 90, INF, 300],
    [150, 200, 100, 400],
    [INF, INF, INF, INF],
    [100, 200, 300, 400],
    [100, 200, 300, 400],
]


def test_score_follows_the_glossary_on_a_table_counted_by_hand() -> None:
    result = judged(
        TIMES,
        PICKS,
        repeat=table(REPEAT, REPEAT_ROWS),
        noise_floor=0.015,
        predict_us=12.5,
        constant_picks=np.zeros(7, dtype=np.int64),
        vendor_ns=VENDOR,
    )
    assert (result.status, result.reason) == ("ok", "")
    assert (result.n_problems, result.n_failed, result.n_unmeasured, result.n_no_default) == (7, 2, 1, 1)
    assert result.n_vendor == 4
    found = values(result)
    assert found == pytest.approx(
        {
            "top1": 1 / 6,
            "top2": 4 / 6,
            "top2_measured": 4 / 6,
            "top2_tie": 5 / 6,
            # regrets 0, 0.01, 0.1, 0.6, and 2 and 3 for the picks that did not run
            "regret_mean": 5.71 / 6,
            "regret_p50": 0.35,
            "regret_p90": 2.5,
            "regret_p99": 2.95,
            "regret_max": 3,
            # problem 3 has no default
            "speedup_geomean": (2 * 0.5 * 1 * 0.4 / 1.1) ** (1 / 5),
            "oracle_speedup_geomean": (2 * 1.5 * 1.01 * 1.6 * 1) ** (1 / 5),
            # the picks of problems 1 and 5 did not run and count as the slowest: 300 and 200
            "speedup_vs_cublaslt_geomean": (150 / 100 * 150 / 300 * 80 / 160 * 100 / 200) ** (1 / 4),
            "oracle_speedup_vs_cublaslt_geomean": (150 / 100 * 150 / 100 * 80 / 100 * 100 / 50) ** (1 / 4),
            "gap_closed": 1 - math.log(3 * 1.01 * 1.6 * 4 * 1.1) / math.log(2 * 2 * 1.2),
            "slowdown_share": 3 / 5,
            "slowdown_max": 2.5,
            "ceiling_top1": 1 / 3,
            "ceiling_top2": 2 / 3,
            "ceiling_regret_mean": (0 + 0.5 + 1.5) / 3,
            "regret_at_1": 5.71 / 6,
            "regret_at_2": 3.01 / 6,
            "regret_at_4": 3 / 6,
            "regret_at_8": 3 / 6,
            "predict_us": 12.5,
        }
    )
    assert list(found) == list(FIGURES)


def test_figures_without_their_source_are_null() -> None:
    unknown = {name for name, value in values(judged(TIMES, PICKS)).items() if value is None}
    assert unknown == {
        "top2_tie", "gap_closed", "ceiling_top1", "ceiling_top2", "ceiling_regret_mean", "predict_us",
        "speedup_vs_cublaslt_geomean", "oracle_speedup_vs_cublaslt_geomean",
    }  # fmt: skip


def test_vendor_without_any_time_leaves_its_figures_null() -> None:
    result = judged(TIMES, PICKS, vendor_ns=np.array([INF, math.nan, INF, INF, 100, INF, INF]))
    assert (result.n_vendor, result.figures["speedup_vs_cublaslt_geomean"].value) == (0, None)


def test_vendor_as_fast_as_the_default_gives_the_speedups_over_the_default() -> None:
    times, picks = random_case(50)
    figures = judged(times, picks, vendor_ns=times[:, 1]).figures
    assert figures["speedup_vs_cublaslt_geomean"] == figures["speedup_geomean"]
    assert figures["oracle_speedup_vs_cublaslt_geomean"] == figures["oracle_speedup_geomean"]


def test_score_refuses_vendor_times_of_other_problems() -> None:
    with pytest.raises(RecordingError, match=r"times of cuBLASLt are \[2\]; one for each of 1 is needed"):
        judged([[100, 200]], [[0]], vendor_ns=np.array([100.0, 200.0]))


def test_tie_band_is_at_most_two_per_cent() -> None:
    times, picks = [[100, 102, 300], [100, 103, 300]], [[1, 2], [1, 2]]
    assert values(judged(times, picks, noise_floor=0.5))["top2_tie"] == 0.5
    assert values(judged(times, picks, noise_floor=0.01))["top2_tie"] == 0
    assert values(judged(times, picks))["top2"] == 0


def test_top2_measured_counts_ties_for_second() -> None:
    assert values(judged([[100, 200, 200, 300]], [[2, 3]]))["top2_measured"] == 1
    assert values(judged([[100, 100, 200, 300]], [[2, 3]]))["top2_measured"] == 0


def test_failed_pick_is_never_right_even_where_all_templates_tie() -> None:
    found = values(judged([[100, INF, 100]], [[1, -1]], noise_floor=0.02))
    assert [found[name] for name in ("top1", "top2", "top2_measured", "top2_tie", "regret_mean")] == [0, 0, 0, 0, 0]
    assert judged([[100, INF, 100]], [[1, -1]]).n_failed == 1


def test_slowdown_starts_above_two_per_cent() -> None:
    times = [[102, 100], [103, 100]]
    assert values(judged(times, [[0], [0]]))["slowdown_share"] == 0.5


def test_ceilings_of_the_same_times_are_perfect() -> None:
    found = values(judged(TIMES, PICKS, repeat=table(TIMES)))
    assert [found[f"ceiling_{name}"] for name in ("top1", "top2", "regret_mean")] == [1, 1, 0]


def test_ceiling_choice_that_failed_in_the_repeat_is_no_choice() -> None:
    found = values(judged([[200, 100]], [[0]], repeat=table([[100, INF]])))
    assert [found[f"ceiling_{name}"] for name in ("top1", "top2", "regret_mean")] == [0, 0, 1]


def test_one_template_is_always_right() -> None:
    found = values(score(table([[100], [200]], default=0), np.zeros((2, 1), dtype=np.int64), key=KEY))
    assert [found[name] for name in ("top1", "top2", "top2_measured", "speedup_geomean")] == [1, 1, 1, 1]


def test_constant_closes_no_gap() -> None:
    constant = np.full(len(TIMES), 0)
    figure = judged(TIMES, constant[:, None], constant_picks=constant).figures["gap_closed"]
    assert (figure.value, figure.lo, figure.hi) == (0, 0, 0)


def test_oracle_closes_the_gap() -> None:
    oracle = judged(TIMES, rank(np.array(TIMES)), constant_picks=np.full(len(TIMES), 0))
    for name, expected in {"top1": 1, "top2": 1, "regret_mean": 0, "regret_max": 0, "gap_closed": 1}.items():
        figure = oracle.figures[name]
        assert (name, figure.value, figure.lo, figure.hi) == (name, expected, expected, expected)
    assert oracle.figures["speedup_geomean"] == oracle.figures["oracle_speedup_geomean"]


def test_gap_closed_is_null_where_the_constant_is_perfect() -> None:
    assert values(judged([[100, 200]], [[1]], constant_picks=np.array([0])))["gap_closed"] is None


def test_unmeasured_problems_leave_every_figure_null() -> None:
    result = judged([[INF, INF], [INF, INF]], [[0, 1], [1, 0]], noise_floor=0.01, constant_picks=np.array([0, 0]))
    assert set(values(result).values()) == {None}
    assert (result.n_problems, result.n_unmeasured, result.n_failed, result.status) == (2, 2, 0, "ok")


def test_failed_predictor_scores_as_the_slowest() -> None:
    result = judged(TIMES, [NOT_RUN] * 7, reason="toy declined: no s8")
    found = values(result)
    assert (result.status, result.reason, result.n_failed) == ("failed", "toy declined: no s8", 6)
    assert found["top2"] == 0
    # regrets 3, 2, 3, 1, 3, 3 of the six measured problems
    assert (found["regret_mean"], found["regret_at_8"]) == (2.5, 2.5)


def test_predictor_without_a_runnable_pick_is_failed() -> None:
    result = judged([[100, INF], [INF, 100]], [[1, 0], [-1, -1]])
    assert (result.status, result.reason) == ("failed", "no problem has a first pick that runs")


def test_flat_score_is_json_without_nan() -> None:
    flat = judged(TIMES, PICKS, predict_us=math.inf).flat()
    assert json.loads(json.dumps(flat, allow_nan=False)) == flat
    names = [f"{name}{suffix}" for name in FIGURES for suffix in ("", "_lo", "_hi")]
    counts = ["n_problems", "n_failed", "n_unmeasured", "n_no_default", "n_vendor"]
    assert list(flat) == [*Key.model_fields, "status", "reason", *counts, *names]
    assert (flat["dtype"], flat["top1"], flat["predict_us"], flat["status"]) == ("s8", 1 / 6, None, "ok")


@pytest.mark.parametrize(
    ("picks", "message"),
    [
        ([[0, 2]], r"picks must lie in -1..1, got 0..2"),
        ([[-2, 0]], r"picks must lie in -1..1, got -2..0"),
        ([[0, 1], [1, 0]], r"picks are int64 \[2, 2\]; integers \[1, 2\] are needed"),
        ([0], r"picks are int64 \[1\]; integers \[1, 1\] are needed"),
        ([[0] * 9], r"picks are int64 \[1, 9\]; integers \[1, 8\] are needed"),
    ],
)
def test_score_refuses_impossible_picks(picks: Any, message: str) -> None:
    with pytest.raises(PredictorError, match=message):
        judged([[100, 200]], picks)


def test_score_refuses_float_picks_and_short_constants() -> None:
    with pytest.raises(PredictorError, match=r"picks are float64 \[1, 1\]; integers \[1, 1\]"):
        score(table([[100, 200]]), np.zeros((1, 1)), key=KEY)  # type: ignore[arg-type]
    with pytest.raises(PredictorError, match=r"constant picks are int64 \[2\]; integers \[1\]"):
        judged([[100, 200]], [[0]], constant_picks=np.array([0, 0]))


def test_score_refuses_a_repeat_of_other_templates() -> None:
    with pytest.raises(RecordingError, match="repeat recording has other templates"):
        judged([[100, 200]], [[0]], repeat=table([[100, 200, 300]]))


def test_rank_keeps_space_order_of_equal_costs() -> None:
    assert rank(np.array([[2.0, 1, 1, INF, 0]])).tolist() == [[4, 1, 2, 0, 3]]
    assert rank(np.arange(100)[None] % 2.0).tolist() == [[*range(0, 100, 2), *range(1, 100, 2)]]


def test_constant_pick_has_the_lowest_geometric_mean() -> None:
    # template 0: 1, 1, 4 (failed: the slowest feasible); template 1: 1.5, 1.5, 1; template 2: 2, 2, 4
    times = [[100, 150, 200], [10, 15, 20], [INF, 100, 400], [INF, INF, INF]]
    assert np.exp(3 * constant_costs(table(times))) == pytest.approx([4, 2.25, 16])
    assert constant_pick(table(times)) == 1
    assert constant_pick(table(times[:2])) == 0


def test_constant_pick_refuses_a_table_without_times() -> None:
    with pytest.raises(RecordingError, match="no problem of the training part has a time"):
        constant_pick(table([[INF, INF]]))
