"""How two recordings of the same problems differ, and how the race went in each: tables for docs/measuring.md."""

import numpy as np
import numpy.typing as npt

from tilearena.dataset import Recording
from tilearena.records import Protocol
from tilearena.table import Floats, Ints
from tilearena.vendor import CUBLASLT


def repeat_row(name: str, first: Recording, second: Recording) -> list[str]:
    """The best template's time in the repeat over that in the first; the anchors', the clock's, and launch counts."""
    time_ns, again_ns = first.table.time_ns, second.table.time_ns
    best = np.argmin(time_ns, axis=1)[:, None]
    ratio = _ratios(np.take_along_axis(time_ns, best, 1)[:, 0], np.take_along_axis(again_ns, best, 1)[:, 0])
    off = np.quantile(np.abs(ratio / _mean(ratio) - 1), [0.5, 0.95, 0.99, 1.0])
    anchors = [np.array(recording.header.anchors[0].start_ns, dtype=np.float64) for recording in (first, second)]
    clocks = [recording.header.clock for recording in (first, second)]
    empty = [f"{clock.empty_launch_ns / 1e3:.2f}" if clock else "?" for clock in clocks]
    launches, again = (_launches(recording)[:, : time_ns.shape[1]].max(axis=1) for recording in (first, second))
    return [
        name,
        f"{_mean(ratio) - 1:+.1%}",
        *(f"{value:.1%}" for value in off),
        f"{_mean(_ratios(*anchors)) - 1:+.1%}",
        f"{' / '.join(empty)} us",
        f"{(again > launches).mean():.1%} / {(again < launches).mean():.1%}",
    ]


def race_row(name: str, recording: Recording) -> list[str]:
    """Templates that were spared the final, second finals, and samples that are shorter than the protocol asks for."""
    protocol, count = recording.header.protocol, len(recording.templates)
    samples, launches = _samples(recording), _launches(recording)
    fresh = np.vectorize(len)(samples[:, :count]) - np.array(recording.header.screens[:count])
    spared, seconds = (fresh == 0).sum(axis=1).mean(), (fresh > protocol.rounds).any(axis=1).sum()
    cells = [name, f"{spared:.1f} of {count}", str(int(seconds))]
    ids = [candidate.id for candidate in recording.header.candidates]
    best = np.argmin(recording.table.time_ns, axis=1)
    vendor = np.full(len(best), ids.index(CUBLASLT)) if CUBLASLT in ids else None
    return [*cells, *(_short(protocol, samples, launches, which) for which in (best, vendor))]


def _short(
    protocol: Protocol, samples: npt.NDArray[np.object_], launches: Ints, which: npt.NDArray[np.intp] | None
) -> str:
    """Share of the samples of a candidate of each problem that are too short, and the shortest of them."""
    if protocol.name == "cold" or which is None:
        return "-"
    count, short = 0, []
    for p, candidate in enumerate(which):
        count += len(samples[p, candidate])
        if launches[p, candidate] < protocol.hot_max_launches:
            short += [time_ns for time_ns in samples[p, candidate] if time_ns < protocol.hot_fill_ns]
    shortest = f", {min(short) / 1e3:.1f} us" if short else ""
    return f"{len(short) / count:.1%}{shortest}"


def _launches(recording: Recording) -> Ints:
    """In one sample [problems, candidates]."""
    width = len(recording.header.candidates)
    return np.asarray(recording.rows["launches"].to_numpy(), dtype=np.int64).reshape(-1, width)


def _samples(recording: Recording) -> npt.NDArray[np.object_]:
    """Arrays in ns [problems, candidates]."""
    width = len(recording.header.candidates)
    found = np.empty(len(recording.rows), dtype=object)
    found[:] = [np.array(samples, dtype=np.int64) for samples in recording.rows["elapsed_ns"].to_pylist()]
    return found.reshape(-1, width)


def _ratios(before: Floats, after: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = after / before
    return ratio[np.isfinite(ratio) & (ratio > 0)]


def _mean(ratio: Floats) -> float:
    """Geometric mean."""
    return float(np.exp(np.log(ratio).mean()))
