"""Pictures of which template is the best, and of what that is worth. Needs matplotlib."""

from collections.abc import Iterator
from functools import reduce
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tilearena.datasheet.collection import SHOWN, Collection, Held, comparable, largest
from tilearena.datasheet.findings import geomean, speedup, whole_card
from tilearena.datasheet.pictures import Picture
from tilearena.figures import measured
from tilearena.records import PROTOCOLS, Dtype
from tilearena.splits import shape_codes
from tilearena.table import Floats, Ints, Table

#: A hue for each tile, from dark to light with the stages: blue, orange and grey differ to every kind of eye.
TILE_SHADES = (
    ("#08306b", "#2f7ec2", "#9ecae1"),
    ("#8c2d04", "#ec7014", "#fdc98a"),
    ("#3a3a3a", "#858585", "#cfcfcf"),
)
#: By dtype; Okabe and Ito's palette (jfly.uni-koeln.de/color).
DTYPE_COLOURS: dict[Dtype, str] = {"s8": "#0072b2", "b1": "#d55e00", "s4": "#666666"}
#: Of the map: cells an octave, and bands of K.
CELLS_AN_OCTAVE, BANDS = 2, 4


def template_colours(table: Table) -> list[str]:
    """One colour of each template, in space order."""
    labels = [template.label for template in table.task.templates]
    tiles = list(dict.fromkeys(label.rpartition("/")[0] for label in labels))
    seen: dict[str, int] = {}
    colours = []
    for label in labels:
        tile = label.rpartition("/")[0]
        shades = TILE_SHADES[tiles.index(tile) % len(TILE_SHADES)]
        colours.append(shades[seen.setdefault(tile, 0) % len(shades)])
        seen[tile] += 1
    return colours


def best_template(collection: Collection) -> Iterator[Picture | None]:
    """One map of M x N for each dtype, by bands of K and protocol."""
    for dtype in SHOWN:
        rows = [one for p in PROTOCOLS if (one := largest(collection.firsts, dtype, p)) is not None]
        if not rows or rows[0].header.support == "emulated":
            continue
        yield _map(dtype, rows)


def _map(dtype: Dtype, rows: list[Held]) -> Picture:
    edges = k_bands(rows[0].recording.table.problems)
    figure = Figure(figsize=(11.2, 1.2 + 2.6 * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), len(edges) - 1, sharex=True, sharey=True, squeeze=False)
    for one, row in zip(rows, axes, strict=True):
        table = one.recording.table.take(measured(one.recording.table))
        colours = template_colours(table)
        norm = BoundaryNorm(np.arange(len(colours) + 1) - 0.5, len(colours))
        for low, high, axis in zip(edges[:-1], edges[1:], row, strict=True):
            inside = (table.problems[:, 2] >= low) & (table.problems[:, 2] < high)
            m_edges, n_edges, cells = majority(table.take(inside))
            axis.pcolormesh(m_edges, n_edges, cells.T, cmap=ListedColormap(colours), norm=norm)
            axis.set_xscale("log", base=2)
            axis.set_yscale("log", base=2)
            axis.set_title(f"{one.header.protocol.name}, K {low:,} to {high - 1:,}")
    for axis in axes[-1]:
        axis.set_xlabel("M, rows")
    for axis in axes[:, 0]:
        axis.set_ylabel("N, columns")
    _legend(figure, table)
    header = rows[0].header
    caption = (
        f"{dtype}: which template of `{header.space}` is the fastest on {header.device.product}, `{header.spec}`. "
        "A cell is half an octave of M by half an octave of N, in the colour of the template that wins most of its "
        "problems; white has none. The best tile grows with M x N, and K and the state of the L2 move the border."
    )
    return Picture(f"best-template-{dtype}", caption, figure)


def k_bands(problems: Ints) -> list[int]:
    """Edges of K: powers of two near the quantiles, so that the bands have about as many problems each."""
    k = problems[:, 2]
    inner = np.round(np.log2(np.quantile(k, np.arange(1, BANDS) / BANDS)))
    edges = {int(k.min()), *(int(2**exponent) for exponent in inner), int(k.max()) + 1}
    return sorted(edge for edge in edges if k.min() <= edge <= k.max() + 1)


def majority(table: Table) -> tuple[Floats, Floats, Any]:
    """Edges of M and of N, and the template that wins most problems of each cell, masked where there are none."""
    best = np.argmin(table.time_ns, axis=1)
    logs = np.log2(table.problems[:, :2]) * CELLS_AN_OCTAVE
    where, low, high = np.floor(logs).astype(int), np.zeros(2, int), np.zeros(2, int)
    if len(logs):
        low = where.min(axis=0)
        high = np.maximum(low, np.ceil(logs.max(axis=0)).astype(int) - 1)  # the largest extent is no cell of its own
    where = np.minimum(where, high)
    counts = np.zeros((*(high - low + 1), table.time_ns.shape[1]), dtype=int)
    np.add.at(counts, (*(where - low).T, best), 1)
    edges = [2.0 ** (np.arange(low[i], high[i] + 2) / CELLS_AN_OCTAVE) for i in range(2)]
    return edges[0], edges[1], np.ma.masked_where(counts.sum(axis=2) == 0, counts.argmax(axis=2))


def winner_shares(table: Table) -> Floats:
    """Share of the problems that each template wins [T]; the first of equals."""
    wins = np.bincount(np.argmin(table.time_ns, axis=1), minlength=table.time_ns.shape[1])
    shares: Floats = wins / max(1, wins.sum())
    return shares


def bars(collection: Collection, dtype: Dtype) -> list[Held]:
    """What can be compared: the largest recording under each protocol, and those of its partitions."""
    found: list[Held] = []
    for protocol in PROTOCOLS:
        whole = largest(collection.firsts, dtype, protocol)
        if whole is not None:
            key = (dtype, protocol)
            alike = [one for one in collection.firsts if (one.header.dtype, one.header.protocol.name) == key]
            found += [whole, *(one for one in alike if one.header.device.sm_total and _of(collection, one, whole))]
    return [one for one in found if comparable(one, found[0])]


def _of(collection: Collection, part: Held, whole: Held) -> bool:
    return whole_card(collection, part) is whole


def in_common(held: list[Held]) -> list[Table]:
    """Their tables, on the problems that all of them measured."""
    tables = [one.recording.table.take(measured(one.recording.table)) for one in held]
    codes = [shape_codes(table.problems) for table in tables]
    common = reduce(np.intersect1d, codes)
    return [table.take(np.isin(own, common)) for table, own in zip(tables, codes, strict=True)]


def winners(collection: Collection) -> Picture | None:
    """Shares of the templates that win, by dtype, protocol and number of SMs."""
    panels = {dtype: held for dtype in SHOWN if (held := bars(collection, dtype))}
    if not panels:
        return None
    heights = [len(held) + 1 for held in panels.values()]
    figure = Figure(figsize=(9.5, 1.1 + 0.32 * sum(heights)), layout="constrained")
    axes = figure.subplots(len(panels), sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axis, (dtype, held) in zip(axes, panels.items(), strict=True):
        tables, header = in_common(held), held[0].header
        _stacked(axis, tables)
        labels = [f"{one.header.protocol.name}, {one.header.device.sm_count} SMs" for one in held]
        axis.set_yticks(range(len(held)), labels)
        emulated = ", emulated" if header.support == "emulated" else ""
        axis.set_title(f"{dtype}{emulated}: {len(tables[0].problems):,} problems of {header.spec}", loc="left")
    axes[-1].set(xlabel="share of problems where the template is the fastest, %", xlim=(0, 100))
    _legend(figure, tables[0])
    caption = (
        "Shares of the templates that win, %, by protocol and number of SMs, on the problems that all bars of a panel "
        "have."
    )
    return Picture("winners", caption, figure)


def _stacked(axis: Axes, tables: list[Table]) -> None:
    """A bar a table, from the top down; shares of less than 6 % bear no figure."""
    left, shares = np.zeros(len(tables)), 100 * np.stack([winner_shares(table) for table in tables])
    for t, colour in enumerate(template_colours(tables[0])):
        axis.barh(range(len(tables)), shares[:, t], left=left, color=colour, edgecolor="white", linewidth=0.6)
        ink = "white" if sum(int(colour[i : i + 2], 16) for i in (1, 3, 5)) < 300 else "black"
        for y, share in enumerate(shares[:, t]):
            if share >= 6:
                axis.text(left[y] + share / 2, y, f"{share:.0f}", color=ink, ha="center", va="center", size=8)
        left += shares[:, t]
    axis.invert_yaxis()
    axis.grid(visible=False, axis="y")


def _legend(figure: Figure, table: Table) -> None:
    pairs = zip(template_colours(table), table.task.templates, strict=True)
    # a label is whatever its YAML says, and matplotlib takes what is between two $ for a formula
    handles = [Patch(color=colour, label=template.label.replace("$", r"\$")) for colour, template in pairs]
    figure.legend(handles=handles, title="tile / stages", loc="outside right center")


def speedups(collection: Collection) -> Picture | None:
    """Distribution of t(default) / t(best)."""
    lines = [one for d in SHOWN for p in PROTOCOLS if (one := largest(collection.firsts, d, p)) is not None]
    lines = [one for one in lines if len(speedup(one))]
    if not lines:
        return None
    # emulated types gain several times as much, for a reason of their own, so they have an axis of their own
    panels = [[one for one in lines if (one.header.support == "emulated") == emulated] for emulated in (False, True)]
    panels = [panel for panel in panels if panel]
    figure = Figure(figsize=(2 + 4.2 * len(panels), 4.2), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, panel in zip(axes, panels, strict=True):
        for one in panel:
            _speedup_line(axis, one)
        axis.set(xlabel="t(default) / t(best of the space), a ratio", ylim=(0, 101))
        axis.set_xlim(left=0.95)
        axis.legend(title="geometric mean of each", loc="lower right", fontsize=9)
    axes[0].set_ylabel("problems with at most that speedup, %")
    caption = (
        "How much faster the best template is than CUTLASS's default, over all problems: the further to the right a "
        "line, the more a choice is worth."
    )
    return Picture("speedup", caption, figure)


def _speedup_line(axis: Axes, one: Held) -> None:
    header, ratios = one.header, np.sort(speedup(one))
    emulated = ", emulated" if header.support == "emulated" else ""
    axis.step(
        np.concatenate([[1], ratios]),
        100 * np.arange(len(ratios) + 1) / len(ratios),
        where="post",
        color=DTYPE_COLOURS[header.dtype],
        linestyle="-" if header.protocol.name == "cold" else (0, (4, 2)),
        label=f"{header.dtype} {header.protocol.name}{emulated}, {header.spec}: {geomean(ratios):.2f}x",
    )
