"""Intervals of figures, and the weighted statistics that they are made of."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scoring import KEY, judged, random_case, table

from tilearena import bootstrap as bootstrap_module
from tilearena.bootstrap import bootstrap, weighted_mean, weighted_quantiles
from tilearena.score import FIGURES, score
from tilearena.table import Floats


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
