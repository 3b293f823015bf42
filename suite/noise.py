"""How far the times of a recording can be trusted: its A/A difference and the spread of its samples."""

from statistics import median

import numpy as np

from tilearena.dataset import Recording

#: The A/A difference of all problems but the most extreme ones.
QUANTILE = 0.95


def noise_floor(recording: Recording) -> float | None:
    """95th percentile over problems of |t(control) / t(default) - 1|, the A/A difference; None without a control."""
    header = recording.header
    control = next((i for i, c in enumerate(header.candidates) if c.origin == "control"), None)
    if control is None:
        return None
    default, again = recording.column_ns(header.default), recording.column_ns(control)
    both = np.isfinite(default) & np.isfinite(again)
    if not both.any():
        return None
    return float(np.quantile(np.abs(again[both] / default[both] - 1), QUANTILE))


def spread(recording: Recording) -> float | None:
    """Median over rows of (largest - smallest) / median of the samples that a row's time is the median of.

    None where no row has a time.
    """
    screens = recording.header.screens.tolist()
    spreads = []
    for candidate, row in zip(
        recording.rows["candidate"].to_pylist(), recording.rows["elapsed_ns"].to_pylist(), strict=True
    ):
        samples = row[screens[candidate] :] or row
        if samples:
            spreads.append((max(samples) - min(samples)) / median(samples))
    return float(median(spreads)) if spreads else None
