import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilearena import bootstrap as bootstrap_module
from tilearena.bootstrap import bootstrap, weighted_mean, weighted_quantiles
from tilearena.dataset import Floats, Ints, Table, Task
from tilearena.errors import PredictorError, RecordingError
from tilearena.records import Device, Template
from tilearena.score import FIGURES, Key, Score, constant_costs, constant_pick, rank, score

INF = math.inf
NOT_RUN = [-1, -1, -1, -1]
KEY = Key(
    op="gemm",
    spec="quick",
    space="paper9",
    dtype="s8",
    protocol="cold",
    device="test-card",
    split="random",
    predictor="toy",
    version="1",
    train_spec="quick",
    support="native",
)
DEVICE = Device(
    slug="test-card",
    product="Test card",
    compute_capability=(9, 0),
    sm_count=4,
    l2_bytes=1,
    memory_bytes=1,
    smem_per_block_bytes=1,
    smem_per_sm_bytes=1,
)
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


def template(stages: int) -> Template:
    return Template(
        dtype="s8",
        label=f"small/{stages}",
        threadblock=(64, 64, 64),
        warp=(32, 32, 64),
        instruction=(16, 8, 32),
        stages=stages,
    )


def table(times: Any, rows: Any = None, default: int = 1) -> Table:
    time_ns = np.array(times, dtype=np.float64)
    templates = tuple(template(2 + i) for i in range(time_ns.shape[1]))
    rows = np.arange(len(time_ns)) if rows is None else np.array(rows)
    problems = np.stack([1 + rows, 8 + 0 * rows, 16 + 0 * rows], axis=1).astype(np.int64)
    return Table(Task("gemm", "s8", None, "test", templates, default, DEVICE, "cold"), problems, time_ns)


def judged(times: Any, picks: Any, **options: Any) -> Score:
    return score(table(times), np.array(picks, dtype=np.int64), key=KEY, **options)


def values(result: Score) -> dict[str, float | None]:
    return {name: figure.value for name, figure in result.figures.items()}


def numbers(result: Score) -> dict[str, Any]:
    """Every figure and interval, NaN where there is none."""
    flat = result.flat()
    names = [f"{name}{suffix}" for name in FIGURES for suffix in ("", "_lo", "_hi")]
    return {name: math.nan if flat[name] is None else flat[name] for name in names}


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


@st.composite
def cases(draw: st.DrawFn) -> tuple[Floats, Ints]:
    """Times [P, T] with ties and failures, and picks [P, T] with some missing from the end."""
    n_problems, n_templates = draw(st.integers(1, 8)), draw(st.integers(1, 5))
    time = st.sampled_from([100.0, 101.0, 102.0, 103.0, 150.0, 400.0, 1e9, INF])
    rows = st.lists(time, min_size=n_templates, max_size=n_templates)
    times = np.array(draw(st.lists(rows, min_size=n_problems, max_size=n_problems)))
    picks = np.array([draw(st.permutations(range(n_templates))) for _ in range(n_problems)], dtype=np.int64)
    for row in picks:
        row[draw(st.integers(0, n_templates)) :] = -1
    return times, picks


def scored(times: Floats, picks: Ints, rows: Any = None) -> Score:
    tested = table(times, rows, default=0)
    constant = np.zeros(len(times), dtype=np.int64)
    vendor_ns = times[:, -1] * 0.5
    return score(tested, picks, key=KEY, noise_floor=0.02, constant_picks=constant, repeat=tested, vendor_ns=vendor_ns)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_figures_keep_their_order(case: tuple[Floats, Ints]) -> None:
    found = values(scored(*case))
    if found["top1"] is None:
        assert not np.isfinite(case[0]).any()
        return
    at = [found[f"regret_at_{k}"] for k in (1, 2, 4, 8)]
    assert at == sorted(at, reverse=True)
    assert at[-1] >= 0
    assert found["top1"] <= found["top2"] <= found["top2_tie"]
    assert found["top1"] <= found["top2_measured"]
    assert 0 <= found["regret_p50"] <= found["regret_p90"] <= found["regret_p99"] <= found["regret_max"]
    if found["speedup_geomean"] is not None:
        assert found["speedup_geomean"] <= found["oracle_speedup_geomean"] * (1 + 1e-12)
    if found["speedup_vs_cublaslt_geomean"] is not None:
        limit = found["oracle_speedup_vs_cublaslt_geomean"]
        assert found["speedup_vs_cublaslt_geomean"] <= limit * (1 + 1e-12)


@settings(max_examples=30, deadline=None)
@given(cases(), st.randoms(use_true_random=False))
def test_score_does_not_depend_on_the_order_of_problems(case: tuple[Floats, Ints], random: Any) -> None:
    times, picks = case
    order = list(range(len(times)))
    random.shuffle(order)
    moved = numbers(scored(times[order], picks[order], order))
    assert moved == pytest.approx(numbers(scored(times, picks)), rel=1e-9, nan_ok=True)


@settings(max_examples=30, deadline=None)
@given(cases(), st.integers(-10, 10))
def test_score_does_not_depend_on_the_unit_of_time(case: tuple[Floats, Ints], exponent: int) -> None:
    times, picks = case
    scaled = numbers(scored(times * 2.0**exponent, picks))
    assert scaled == pytest.approx(numbers(scored(times, picks)), rel=1e-9, nan_ok=True)


def test_geometric_means_survive_the_whole_range_of_times() -> None:
    times = np.tile([1e9, 1.0], (20_000, 1))
    picks = np.tile([1, 0], (20_000, 1))
    picks[::2] = [0, 1]
    found = values(score(table(times, default=0), picks, key=KEY, constant_picks=np.zeros(20_000, dtype=np.int64)))
    assert found["speedup_geomean"] == pytest.approx(10**4.5)
    assert found["oracle_speedup_geomean"] == pytest.approx(1e9)
    assert found["gap_closed"] == pytest.approx(0.5)


def random_case(n_problems: int, seed: int = 0) -> tuple[Floats, Ints]:
    rng = np.random.default_rng(seed)
    times = np.exp(rng.normal(10, 1, (n_problems, 1)) + rng.normal(0, 0.3, (n_problems, 4)))
    return times, rank(times * np.exp(rng.normal(0, 0.2, times.shape)))


def test_intervals_hold_their_value() -> None:
    times, picks = random_case(200)
    options = {"noise_floor": 0.02, "constant_picks": np.full(200, 1), "vendor_ns": times[:, 2]}
    result = judged(times, picks, **options)
    for name in FIGURES[: FIGURES.index("ceiling_top1")]:
        figure = result.figures[name]
        assert figure.lo <= figure.value <= figure.hi, name  # type: ignore[operator]
        if name not in ("regret_p50", "slowdown_max", "regret_max"):
            assert figure.lo < figure.hi, name  # type: ignore[operator]


def test_intervals_match_a_plain_loop_over_drawn_groups() -> None:
    times, picks = random_case(40)
    groups = np.array([7, 2, 5, 9, 0, 1, 3, 4, 6, 8]).repeat([7, 1, 3, 4, 5, 6, 2, 9, 2, 1])
    members = [np.flatnonzero(groups == label) for label in range(10)]
    regret = times[np.arange(40), picks[:, 0]] / times.min(axis=1) - 1
    bits = np.random.PCG64(3)
    resamples = []
    for _ in range(1000):
        drawn = [int(raw >> np.uint64(32)) * 10 // 2**32 for raw in bits.random_raw(10)]
        sample = regret[np.concatenate([members[i] for i in drawn])]
        resamples.append([sample.mean(), *np.quantile(sample, [0.5, 0.9, 0.99, 1]), (sample == 0).mean()])
    expected = np.quantile(resamples, [0.025, 0.975], axis=0).T
    result = score(table(times), picks, key=KEY, groups=groups, seed=3)
    names = ("regret_mean", "regret_p50", "regret_p90", "regret_p99", "regret_max", "top1")
    found = [(result.figures[name].lo, result.figures[name].hi) for name in names]
    assert np.array(found) == pytest.approx(expected, rel=1e-12)


def test_intervals_depend_on_the_seed_and_widen_with_groups() -> None:
    times, picks = random_case(120)
    one, same, other = (judged(times, picks, seed=seed).figures["regret_mean"] for seed in (0, 0, 1))
    assert one == same != other
    # four equal problems are one observation, so that the interval doubles
    times, picks = np.repeat(times, 4, axis=0), np.repeat(picks, 4, axis=0)
    apart = judged(times, picks).figures["regret_mean"]
    whole = judged(times, picks, groups=np.repeat(np.arange(120), 4)).figures["regret_mean"]
    assert (whole.hi - whole.lo) / (apart.hi - apart.lo) == pytest.approx(2, rel=0.15)  # type: ignore[operator]


def test_bootstrap_works_in_chunks_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def estimate(weights: Floats) -> dict[str, Floats]:
        sizes.append(weights.size)
        return {"mean": weighted_mean(weights, np.arange(6.0))}

    whole = bootstrap(estimate, np.arange(6), 0)
    assert sizes == [6, 6000]
    sizes.clear()
    monkeypatch.setattr(bootstrap_module, "_CHUNK", 100)
    assert bootstrap(estimate, np.arange(6), 0) == whole
    assert (max(sizes), sum(sizes)) == (96, 6006)


def test_bootstrap_skips_resamples_that_leave_a_figure_undefined() -> None:
    only_first = np.array([5.0, np.nan])
    found = bootstrap(lambda weights: {"mean": weighted_mean(weights, only_first)}, np.arange(2), 0)
    assert found["mean"] == (5, 5, 5)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), min_size=1, max_size=9),
    st.floats(0, 1),
)
def test_weighted_quantiles_are_those_of_repeated_values(pairs: list[tuple[int, int]], share: float) -> None:
    numbers, weights = np.array(pairs, dtype=np.float64).T
    (found,) = weighted_quantiles(weights[None], np.append(numbers, np.nan)[:-1], (share,))
    repeated = np.repeat(numbers, weights.astype(np.int64))
    expected = np.quantile(repeated, share) if len(repeated) else np.nan
    assert found == pytest.approx([expected], nan_ok=True, abs=1e-9)


def test_weighted_quantiles_leave_nan_out() -> None:
    weights = np.ones((1, 3))
    assert weighted_quantiles(weights, np.array([3, np.nan, 1]), (0.5, 1.0)) == [[2], [3]]
