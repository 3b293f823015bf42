"""What holds for the figures of any table."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scoring import INF, KEY, table, values

from tilearena.score import FIGURES, Score, score
from tilearena.table import Floats, Ints


def numbers(result: Score) -> dict[str, Any]:
    """Every figure and interval, NaN where there is none."""
    flat = result.flat()
    names = [f"{name}{suffix}" for name in FIGURES for suffix in ("", "_lo", "_hi")]
    return {name: math.nan if flat[name] is None else flat[name] for name in names}


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
