"""Plotly figures of the page. Pure: arrays in, figure out; a colour means one template, or one predictor, all over."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tilearena.leaderboard.table import Slice
from tilearena.table import Floats, Ints

#: One hue a tile, dark to light with the stages; told apart without red against green.
TILE_SHADES = (
    ("#08306b", "#2171b5", "#6baed6", "#bdd7e7"),
    ("#7f2704", "#d94801", "#fd8d3c", "#fdbe85"),
    ("#00441b", "#238b45", "#74c476", "#bae4b3"),
    ("#3f007d", "#6a51a3", "#9e9ac8", "#cbc9e2"),
    ("#252525", "#636363", "#969696", "#cccccc"),
)
#: Stages also have a shape, for print and for colour-blind readers.
SYMBOLS = ("circle", "square", "diamond", "triangle-up")
#: Okabe and Ito's palette (jfly.uni-koeln.de/color), without its black and yellow.
PREDICTOR_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
BASELINE_STYLE = {
    "oracle": ("#111111", "dash"),
    "nearest": ("#555555", "dashdot"),
    "constant": ("#888888", "dash"),
    "default": ("#aaaaaa", "dot"),
}
#: Regrets below this share are drawn at it, since a log axis has no zero.
REGRET_FLOOR = 1e-4
#: Picks with more regret than this get a ring on the map: the slowdown limit of the glossary.
COSTLY = 0.02
RING = "#e31a1c"
FONT = "Inter, Source Sans Pro, sans-serif"


def repeats(labels: Sequence[str]) -> bool:
    """Whether several tiles have to share a hue, or several templates of one tile a shade and a shape."""
    tiles = Counter(label.partition("/")[0] for label in labels)
    return len(tiles) > len(TILE_SHADES) or max(tiles.values(), default=0) > len(SYMBOLS)


def template_style(labels: Sequence[str]) -> dict[str, tuple[str, str]]:
    """(colour, symbol) of each template label ``tile/stages/...``, in space order; ``none`` is a grey cross."""
    tiles: dict[str, list[str]] = {}
    for label in labels:
        tiles.setdefault(label.partition("/")[0], []).append(label)
    style = {}
    for i, members in enumerate(tiles.values()):
        shades = TILE_SHADES[i % len(TILE_SHADES)]
        for j, label in enumerate(members):
            style[label] = (shades[j % len(shades)], SYMBOLS[j % len(SYMBOLS)])
    return style | {"none": ("#999999", "x")}


def predictor_style(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """(colour, dash) of each predictor; it depends on the set of names alone, not on their order."""
    others = sorted(set(names) - set(BASELINE_STYLE))
    colours = {name: PREDICTOR_COLOURS[i % len(PREDICTOR_COLOURS)] for i, name in enumerate(others)}
    return BASELINE_STYLE | {name: (colour, "solid") for name, colour in colours.items()}


def regret_ecdf(regrets: Mapping[str, Floats], style: Mapping[str, tuple[str, str]]) -> go.Figure:
    """Share of problems with at most so much regret; one line a predictor, NaN left out.

    Args:
        regrets: by the name in the legend, ``predictor`` or ``predictor version``; fractions [P].
        style: from ``predictor_style``.
    """
    known = {name: np.maximum(values[~np.isnan(values)], REGRET_FLOOR) for name, values in regrets.items()}
    edge = max((values.max() for values in known.values() if len(values)), default=REGRET_FLOOR)
    figure = go.Figure()
    for name, values in known.items():
        # every line runs from edge to edge, also that of a predictor without any regret
        x = np.unique([REGRET_FLOOR, *values, edge])
        share = np.searchsorted(np.sort(values), x, side="right") / max(1, len(values))
        colour, dash = style[name.split(" ")[0]]
        figure.add_trace(
            go.Scatter(
                x=100 * x,
                y=100 * share,
                name=name,
                mode="lines",
                line={"color": colour, "dash": dash, "width": 2.2, "shape": "hv"},
                hovertemplate=f"{name}: %{{y:.1f}} % of problems within %{{x:.2g}} %<extra></extra>",
            )
        )
    figure.update_xaxes(type="log", title=f"regret, % (below {100 * REGRET_FLOOR:g} % drawn there)", **_ticks())
    figure.update_yaxes(title="problems with at most that regret, %", range=[0, 102])
    return _dressed(figure, height=420)


def template_map(chosen: Slice, labels: Sequence[str], picker: str) -> go.Figure:
    """Best template by M and N: the measured one on the left, ``picker``'s first pick on the right.

    Args:
        chosen: problems with a similar K.
        labels: of all templates, in space order.
        picker: name for the title of the right half.
    """
    style = template_style(labels)
    figure = make_subplots(
        cols=2, shared_yaxes=True, horizontal_spacing=0.03, subplot_titles=("measured best", f"picked by {picker}")
    )
    for label, marker in style.items():
        left, right = (np.flatnonzero(np.array(names) == label) for names in (chosen.best, chosen.pick))
        if len(left):
            figure.add_trace(_marks(chosen, left, label, marker), row=1, col=1)
        if len(right):
            figure.add_trace(_marks(chosen, right, label, marker, legend=not len(left), regret=True), row=1, col=2)
    m, n, _ = chosen.problems[chosen.regret > COSTLY].T
    ring = {"color": RING, "symbol": "circle-open", "size": 14, "line": {"width": 2}}
    name = f"costs > {100 * COSTLY:g} %"
    figure.add_trace(go.Scatter(x=m, y=n, name=name, mode="markers", marker=ring, hoverinfo="skip"), row=1, col=2)
    figure.update_xaxes(type="log", title="M", matches="x", **_ticks())
    figure.update_yaxes(type="log", **_ticks())
    figure.update_yaxes(title="N", col=1)
    figure.update_yaxes(minor_ticks="", col=2)
    return _dressed(figure, height=520)


def _marks(
    chosen: Slice, rows: Ints, label: str, marker: tuple[str, str], *, legend: bool = True, regret: bool = False
) -> go.Scatter:
    m, n, k = chosen.problems[rows].T
    cost = "<br>regret %{customdata[1]:.2f} %" if regret else ""
    return go.Scatter(
        x=m,
        y=n,
        customdata=np.column_stack([k, 100 * chosen.regret[rows]]),
        name=label,
        legendgroup=label,
        showlegend=legend,
        mode="markers",
        marker={"color": marker[0], "symbol": marker[1], "size": 9, "line": {"color": "white", "width": 0.6}},
        hovertemplate=f"<b>{label}</b><br>M %{{x}}, N %{{y}}, K %{{customdata[0]}}{cost}<extra></extra>",
    )


def _ticks() -> dict[str, object]:
    return {"dtick": 1, "tickformat": "~r", "minor": {"ticks": "outside", "dtick": "D1", "ticklen": 3}}


def _dressed(figure: go.Figure, height: int) -> go.Figure:
    figure.update_layout(
        template="plotly_white",
        height=height,
        font={"family": FONT, "size": 14},
        margin={"l": 60, "r": 20, "t": 40, "b": 60},
        legend={"orientation": "v", "itemsizing": "constant"},
        hoverlabel={"font_size": 13},
    )
    return figure
