"""Percentile bootstrap over groups of problems, as weights: a resample is how often each problem was drawn.

Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13 (percentile interval); drawing whole
groups is the cluster bootstrap (Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 3.8).
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tilearena.table import Floats, Ints

N_RESAMPLES = 1000
INTERVAL = (0.025, 0.975)
#: Weights held in memory at a time (16 MiB of float64), but those of some resamples in any case: what is done once for
#: all of them must not take longer than they do.
_CHUNK, _LEAST = 1 << 21, 16

Estimator = Callable[[Floats], dict[str, Floats]]


def bootstrap(
    estimate: Estimator, groups: Ints, seed: int, n_resamples: int = N_RESAMPLES
) -> dict[str, tuple[float, float, float]]:
    """Value and 95 % interval of every figure; NaN where it is undefined.

    Args:
        estimate: takes weights float64 [B, P] and returns each figure as float64 [B].
        groups: labels int64 [P]; each resample draws as many groups as there are, whole, with replacement.
        seed: of PCG64.
        n_resamples: 0 leaves every interval undefined.

    A resample that leaves a figure undefined (NaN) does not count in that figure's interval.
    """
    values = estimate(np.ones((1, len(groups))))
    chunks = [estimate(weights) for weights in _resamples(groups, seed, n_resamples)]
    return {
        name: (float(value[0]), *_interval(np.concatenate([value[:0], *(chunk[name] for chunk in chunks)])))
        for name, value in values.items()
    }


def weighted_mean(weights: Floats, values: Floats, total: Floats | None = None) -> Floats:
    """Mean [B] of ``values`` [P] under each row of ``weights`` [B, P]; NaN values take no part.

    ``total`` is the sum [B] of each row of ``weights``, given where many means are taken under the same.
    """
    known = ~np.isnan(values)
    if not known.any():
        return np.full(len(weights), np.nan)
    if not known.all() or total is None:
        # einsum rather than @: one thread, and the same sum on every machine's BLAS
        total = np.einsum("bp,p->b", weights, known.astype(np.float64))
        values = np.where(known, values, 0.0)
    # contiguous, since the order in which einsum sums a column of a matrix is another
    summed = np.einsum("bp,p->b", weights, np.ascontiguousarray(values))
    mean: Floats = np.divide(summed, total, out=np.full(len(weights), np.nan), where=total > 0)
    return mean


def ascending(values: Floats) -> Ints:
    """Indices of the ``values`` that are not NaN, from the lowest up."""
    order: Ints = np.argsort(values)[: int((~np.isnan(values)).sum())]
    return order


def weighted_quantiles(
    weights: Floats, values: Floats, q: tuple[float, ...], order: Ints | None = None
) -> list[Floats]:
    """Quantiles [B], one for each of ``q``, of ``values`` [P] repeated ``weights`` [B, P] (whole numbers) times.

    NaN values take no part. Interpolates linearly, as ``numpy.quantile`` does by default; q = 1 is the maximum.
    ``order`` is ``ascending(values)``, given where the same values are asked for under many weights.
    """
    order = ascending(values) if order is None else order
    if not len(order):
        return [np.full(len(weights), np.nan) for _ in q]
    ordered = values[order]
    quantiles = np.full((len(weights), len(q)), np.nan)
    for i, row in enumerate(weights):
        up_to = _narrow(row).take(order).cumsum(dtype=np.int64)
        position = max(up_to[-1] - 1, 0) * np.array(q)
        below = np.floor(position)
        ends = np.array([below, np.ceil(position)], dtype=np.int64)
        low, high = ordered[np.minimum(np.searchsorted(up_to, ends, side="right"), len(ordered) - 1)]
        if up_to[-1] > 0:
            quantiles[i] = low + (position - below) * (high - low)
    return list(quantiles.T)


def weighted_max(weights: Floats, values: Floats) -> Floats:
    """Largest [B] of the ``values`` [P] that ``weights`` [B, P] do not leave out; NaN values take no part."""
    known = np.where(np.isnan(values), -np.inf, values)
    largest = np.array([np.where(row > 0, known, -np.inf).max(initial=-np.inf) for row in weights])
    return np.where(largest > -np.inf, largest, np.nan)


def _narrow(counts: npt.NDArray[Any]) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Whole numbers in as few bytes as hold them, so that a million that are looked up at random fit a cache."""
    return counts.astype(np.min_scalar_type(int(counts.max(initial=0))))


def _resamples(groups: Ints, seed: int, n_resamples: int) -> Iterator[Floats]:
    """Weights [b, P] of ``n_resamples`` resamples in chunks; their values do not depend on the chunk size."""
    labels, group = np.unique(groups, return_inverse=True)
    n_groups = len(labels)
    bits = np.random.PCG64(seed)
    step = max(_LEAST, _CHUNK // max(1, len(groups)))
    for start in range(0, n_resamples, step):
        weights = np.empty((min(step, n_resamples - start), len(groups)))
        for row in weights:
            # raw bits rather than Generator.integers: only the former's stream is fixed for all numpy versions
            drawn = bits.random_raw(n_groups)
            drawn >>= np.uint64(32)
            drawn *= np.uint64(n_groups)
            drawn >>= np.uint64(32)
            row[:] = _narrow(np.bincount(drawn.view(np.int64), minlength=n_groups)).take(group)
        yield weights


def _interval(samples: Floats) -> tuple[float, float]:
    samples = samples[~np.isnan(samples)]
    if not len(samples):
        return np.nan, np.nan
    low, high = np.quantile(samples, INTERVAL)
    return float(low), float(high)
