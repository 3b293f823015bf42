"""Pictures of how long the best template takes: hot and cold, with fewer SMs, under the roofline. Needs matplotlib."""

from collections.abc import Iterator
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure

from tilearena.agreement import matched
from tilearena.datasheet.collection import SHOWN, Collection, Held, largest
from tilearena.datasheet.findings import whole_card
from tilearena.datasheet.pictures import Picture
from tilearena.datasheet.pictures_of_choice import DTYPE_COLOURS
from tilearena.datasheet.roofline import PEAKS, Peak, moved_bytes, operations
from tilearena.figures import measured
from tilearena.records import Dtype
from tilearena.table import Floats

#: From the largest partition down; Okabe and Ito's palette, see `pictures_of_choice`.
PARTITION_COLOURS = ("#009e73", "#e69f00", "#cc79a7", "#56b4e9")
#: A bin of a running median has at least so many problems, or this part of all where they are few.
LEAST, LEAST_SHARE = 20, 0.05


def running(x: Floats, y: Floats, octaves: float = 1.0) -> tuple[Floats, Floats]:
    """Middles [B] of bins of log2 ``x``, and the quartiles [3, B] of ``y`` in each that has enough."""
    code = np.floor(np.log2(x) / octaves).astype(int)
    least = min(LEAST, LEAST_SHARE * len(x))
    bins = [b for b in np.unique(code) if (code == b).sum() >= least]
    quartiles = [np.quantile(y[code == b], [0.25, 0.5, 0.75]) for b in bins]
    return 2.0 ** ((np.array(bins) + 0.5) * octaves), np.array(quartiles).reshape(-1, 3).T


def _density(axis: Axes, x: Floats, y: Floats, colour: str, *, log_y: bool) -> None:
    """How many problems lie where, the darker the more."""
    y_bins = np.geomspace(y.min(), y.max() * 1.001, 91) if log_y else np.linspace(y.min(), y.max() * 1.001, 91)
    counts, x_edges, y_edges = np.histogram2d(x, y, bins=(np.geomspace(x.min(), x.max() * 1.001, 121), y_bins))
    shades = LinearSegmentedColormap.from_list("density", ["#e8e8e8", colour])
    norm = LogNorm(1, max(2.0, counts.max()))
    axis.pcolormesh(x_edges, y_edges, np.ma.masked_equal(counts, 0).T, cmap=shades, norm=norm)
    axis.set(xscale="log", yscale="log" if log_y else "linear")


def _native(collection: Collection) -> Iterator[tuple[Dtype, Held]]:
    """Cold."""
    for dtype in SHOWN:
        one = largest(collection.firsts, dtype, "cold")
        if one is not None and one.header.support == "native":
            yield dtype, one


def hot_and_cold(collection: Collection) -> Picture | None:
    """t(cold) / t(hot) of each one's best template, by the bytes of a problem."""
    pairs = [
        (dtype, cold, hot)
        for dtype, cold in _native(collection)
        if (hot := collection.like(cold, protocol="hot")) is not None
    ]
    if not pairs:
        return None
    figure = Figure(figsize=(5 * len(pairs), 3.9), layout="constrained")
    axes = figure.subplots(1, len(pairs), sharex=True, sharey=True, squeeze=False)[0]
    for axis, (dtype, cold, hot) in zip(axes, pairs, strict=True):
        one, other = matched(cold.recording.table, hot.recording.table)
        size_mb = moved_bytes(one.problems, dtype) / 1e6
        ratio = one.time_ns.min(axis=1) / other.time_ns.min(axis=1)
        _density(axis, size_mb, ratio, DTYPE_COLOURS[dtype], log_y=False)
        middles, (low, median, high) = running(size_mb, ratio)
        axis.plot(middles, median, color="black", label="median")
        axis.plot(middles, low, color="black", linewidth=0.8, linestyle="--", label="quartiles")
        axis.plot(middles, high, color="black", linewidth=0.8, linestyle="--")
        l2_mb = cold.header.device.l2_bytes / 1e6
        axis.axvline(l2_mb, color="black", linestyle=":")
        axis.text(l2_mb * 1.15, 0.97, f"L2, {l2_mb:.0f} MB", transform=axis.get_xaxis_transform(), va="top", size=8)
        axis.set(title=f"{dtype}, {cold.header.spec}", xlabel="A, B and D, MB")
        axis.legend(loc="lower left", fontsize=8)
    axes[0].set_ylabel("t(cold) / t(hot), best template of each")
    caption = (
        "Cold over hot time, each of its own best template; the darker, the more problems. Hot launches are faster "
        "while the operands stay in the L2; beyond its size hot comes to be as cold. Of the smallest problems a hot "
        "launch costs less, too, since several share what an interval adds."
    )
    return Picture("hot-cold", caption, figure)


def partitions(collection: Collection) -> Picture | None:
    """t(partition) / t(whole card), cold, of each one's best template, by multiply-adds."""
    parts = [
        (one, whole)
        for one in collection.firsts
        if one.header.device.sm_total is not None
        and one.header.protocol.name == "cold"
        and (whole := whole_card(collection, one)) is not None
    ]
    dtypes = [dtype for dtype in SHOWN if any(one.header.dtype == dtype for one, _ in parts)]
    if not dtypes:
        return None
    figure = Figure(figsize=(5 * len(dtypes), 3.9), layout="constrained")
    axes = figure.subplots(1, len(dtypes), sharex=True, sharey=True, squeeze=False)[0]
    for axis, dtype in zip(axes, dtypes, strict=True):
        mine = [(one, whole) for one, whole in parts if one.header.dtype == dtype]
        for (one, whole), colour in zip(mine, cycle(PARTITION_COLOURS), strict=False):
            _ratio_line(axis, one, whole, colour)
        axis.set(xscale="log", title=f"{dtype} cold, {mine[0][0].header.spec}", xlabel="multiply-adds")
    axes[0].set_ylabel("t(partition) / t(whole card), best of each")
    caption = (
        "What a part of the SMs costs: median over the problems of a size of the best template's time on the partition "
        "over that on the whole card; the band holds half of them. Small products do not need all SMs; large ones take "
        "longer, but less so than the ratio of the numbers of SMs (dotted) says: the memory is the whole card's, and "
        "so is the power, which the whole card may be short of. A line may lie a per cent or two off 1 as a whole, "
        "since two recordings are of two processes, or of two cards."
    )
    return Picture("partitions", caption, figure)


def _ratio_line(axis: Axes, one: Held, whole: Held, colour: str) -> None:
    part, card = matched(one.recording.table, whole.recording.table)
    device = one.header.device
    x, ratio = operations(part.problems) / 2, part.time_ns.min(axis=1) / card.time_ns.min(axis=1)
    middles, (low, median, high) = running(x, ratio, octaves=2.0)
    axis.fill_between(middles, low, high, color=colour, alpha=0.2, linewidth=0)
    axis.plot(middles, median, color=colour, linewidth=2)
    most = (device.sm_total or device.sm_count) / device.sm_count
    axis.axhline(most, color=colour, linestyle=":")
    label = f"{device.sm_count} of {device.sm_total} SMs: {most:.2f}"
    axis.text(0.02, most + 0.01, label, transform=axis.get_yaxis_transform(), size=8)


def roofline(collection: Collection) -> Picture | None:
    """TOPS and GB/s of the best template, cold, by arithmetic intensity, under the published peaks."""
    shown = list(_native(collection))
    if not shown:
        return None
    figure = Figure(figsize=(5 * len(shown), 6.8), layout="constrained")
    axes = figure.subplots(2, len(shown), sharex="col", sharey="row", squeeze=False)
    highest = [0.0, 0.0]
    for column, (dtype, one) in zip(axes.T, shown, strict=True):
        table = one.recording.table.take(measured(one.recording.table))
        best_ns = table.time_ns.min(axis=1)
        ops, moved = operations(table.problems), moved_bytes(table.problems, dtype)
        for i, (axis, rate) in enumerate(zip(column, (ops / best_ns / 1e3, moved / best_ns), strict=True)):
            highest[i] = max(highest[i], rate.max())
            _density(axis, ops / moved, rate, DTYPE_COLOURS[dtype], log_y=True)
        peak = PEAKS.get(one.header.device.product)
        if peak is not None:
            _roofs(column, dtype, peak, ops / moved)
        column[0].set_title(f"{dtype} cold, {one.header.spec}")
        column[1].set_xlabel("operations a byte of A, B and D")
    axes[0, 0].set(ylabel="TOPS (10¹² operations a second)", ylim=(None, 2.5 * highest[0]))
    axes[1, 0].set(ylabel="GB/s (10⁹ bytes a second)", ylim=(None, 2.5 * highest[1]))
    caption = (
        "Speed of the best template, cold, against the published peaks; the darker, the more problems. To the left "
        "memory bounds a product, to the right the tensor cores; what lies far below both is too short to fill the "
        "card, and pays what an interval adds. For b1 no peak is published, so its plots have the memory's roof alone."
    )
    return Picture("roofline", caption, figure)


def _roofs(column: list[Axes], dtype: Dtype, peak: Peak, intensity: Floats) -> None:
    """Of the memory: a slope above, a level below; of the tensor cores the other way round."""
    x = np.geomspace(intensity.min(), intensity.max(), 200)
    tops, rate = peak.dram_gb_s * x / 1e3, np.full(len(x), peak.dram_gb_s)
    most = peak.tops.get(dtype)
    if most is not None:
        tops, rate = np.minimum(tops, most), np.minimum(rate, 1e3 * most / x)
    for axis, roof in zip(column, (tops, rate), strict=True):
        axis.plot(x, roof, color="black", linewidth=1.2)
    column[1].text(x[0], peak.dram_gb_s * 1.15, f"{peak.dram_gb_s / 1e3:g} TB/s", size=8)
    if most is not None:
        column[0].text(x[-1], most * 1.15, f"{most:,.0f} TOPS dense", size=8, ha="right")
