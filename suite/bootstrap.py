"""Percentile bootstrap over groups of problems, as weights: a resample is how often each problem was drawn.

Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13 (percentile interval); drawing whole
groups is the cluster bootstrap (Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 3.8).
"""

from collections.abc import Callable, Iterator

import numpy as np

from tilearena.dataset import Floats, Ints

N_RESAMPLES = 1000
INTERVAL = (0.025, 0.975)
#: Weights held in memory at a time (16 MiB of float64).
_CHUNK = 1 << 21

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
    up_to = weights.take(order, axis=1).cumsum(axis=1)
    total = up_to[:, -1]
    position = np.maximum(total - 1, 0)[:, None] * np.array(q)
    below = np.floor(position)
    ends = np.concatenate([below, np.ceil(position)], axis=1)
    found = np.stack([np.searchsorted(row, at, side="right") for row, at in zip(up_to, ends, strict=True)])
    low, high = np.split(ordered[np.minimum(found, len(ordered) - 1)], 2, axis=1)
    quantiles = np.where(total[:, None] > 0, low + (position - below) * (high - low), np.nan)
    return list(quantiles.T)


def weighted_max(weights: Floats, values: Floats) -> Floats:
    """Largest [B] of the ``values`` [P] that ``weights`` [B, P] do not leave out; NaN values take no part."""
    largest: Floats = np.where((weights > 0) & ~np.isnan(values), values, -np.inf).max(axis=1, initial=-np.inf)
    return np.where(largest > -np.inf, largest, np.nan)


def _resamples(groups: Ints, seed: int, n_resamples: int) -> Iterator[Floats]:
    """Weights [b, P] of ``n_resamples`` resamples in chunks; their values do not depend on the chunk size."""
    labels, group = np.unique(groups, return_inverse=True)
    n_groups = len(labels)
    bits = np.random.PCG64(seed)
    step = max(1, _CHUNK // max(1, len(groups)))
    for start in range(0, n_resamples, step):
        n = min(step, n_resamples - start)
        # raw bits rather than Generator.integers: only the former's stream is fixed for all numpy versions
        drawn = ((bits.random_raw(n * n_groups) >> np.uint64(32)) * np.uint64(n_groups)) >> np.uint64(32)
        cell = drawn.astype(np.int64) + np.repeat(np.arange(n), n_groups) * n_groups
        counts = np.bincount(cell, minlength=n * n_groups).reshape(n, n_groups)
        # take keeps each resample's weights together in memory, and reads of large recordings are many times faster
        yield counts.take(group, axis=1).astype(np.float64)


def _interval(samples: Floats) -> tuple[float, float]:
    samples = samples[~np.isnan(samples)]
    if not len(samples):
        return np.nan, np.nan
    low, high = np.quantile(samples, INTERVAL)
    return float(low), float(high)
