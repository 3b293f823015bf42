"""How two recordings of the same problems differ, and how the race went in each: tables for docs/measuring.md."""

from itertools import compress

import numpy as np
import numpy.typing as npt

from tilearena.dataset import Floats, Recording


def repeat_row(name: str, first: Recording, second: Recording) -> list[str]:
    """The best template's time in the repeat over that in the first, launch counts, and the anchors at the start."""
    time_ns, again_ns = first.table.time_ns, second.table.time_ns
    best = np.argmin(time_ns, axis=1)[:, None]
    ratio = _ratios(np.take_along_axis(time_ns, best, 1)[:, 0], np.take_along_axis(again_ns, best, 1)[:, 0])
    off = np.quantile(np.abs(ratio - 1), [0.5, 0.95])
    launches = [recording.rows["launches"].to_numpy().reshape(len(time_ns), -1) for recording in (first, second)]
    other = (launches[0] != launches[1])[:, : time_ns.shape[1]].any(axis=1).mean()
    anchors = [np.array(recording.header.anchors[0].start_ns, dtype=np.float64) for recording in (first, second)]
    return [
        name,
        *(f"{value:.1%}" for value in off),
        f"{_mean(ratio) - 1:+.1%}",
        f"{_mean(_ratios(*anchors)) - 1:+.1%}",
        f"{other:.1%}",
    ]


def race_row(name: str, recording: Recording) -> list[str]:
    """Templates that were spared the final, second finals, and samples of the best template that are too short."""
    protocol, count = recording.header.protocol, len(recording.templates)
    elapsed_ns = _grid(recording)
    screens = np.array(recording.header.screens[:count])
    fresh = np.vectorize(len)(elapsed_ns) - screens
    spared = (fresh == 0).sum(axis=1).mean()
    cells = [name, f"{spared:.1f} of {count}", str(int((fresh > protocol.rounds).any(axis=1).sum()))]
    if protocol.name == "cold":
        return [*cells, "-", "-"]
    best = np.argmin(recording.table.time_ns, axis=1)
    launches = recording.rows["launches"].to_numpy().reshape(len(best), -1)[np.arange(len(best)), best]
    medians = np.array([np.median(row[b]) for row, b in zip(elapsed_ns, best, strict=True)])
    short = (medians < protocol.hot_fill_ns) & (launches < protocol.hot_max_launches)
    shortest = min(compress(medians, short), default=None)
    return [*cells, f"{short.mean():.1%}", "-" if shortest is None else f"{shortest / 1e3:.1f} us"]


def _grid(recording: Recording) -> npt.NDArray[np.object_]:
    """Samples [problems, templates], in ns."""
    samples = recording.rows["elapsed_ns"].to_pylist()
    width = len(recording.header.candidates)
    grid = np.empty(len(samples), dtype=object)
    grid[:] = samples
    return grid.reshape(-1, width)[:, : len(recording.templates)]


def _ratios(before: Floats, after: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = after / before
    return ratio[np.isfinite(ratio) & (ratio > 0)]


def _mean(ratio: Floats) -> float:
    """Geometric mean."""
    return float(np.exp(np.log(ratio).mean()))
