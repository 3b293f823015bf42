import numpy as np
import pytest

from tilearena.leaderboard.charts import (
    TILE_SHADES,
    predictor_style,
    regret_ecdf,
    repeats,
    template_map,
    template_style,
)
from tilearena.leaderboard.table import Slice

LABELS = [f"{tile}/{stages}" for tile in ("large", "medium", "small") for stages in (2, 3, 4)]


def test_template_style_tells_all_templates_apart():
    style = template_style(LABELS)
    assert list(style) == [*LABELS, "none"]
    assert len({colour for colour, _ in style.values()}) == 10
    assert [style[f"{tile}/3"][1] for tile in ("large", "medium", "small")] == ["square"] * 3


def test_templates_of_one_tile_have_one_hue_whatever_else_is_in_their_labels():
    style = template_style(["large/3", "large/3/k2", "flat/4/z4", "large/4"])
    hues = {
        label: next(i for i, shades in enumerate(TILE_SHADES) if style[label][0] in shades)
        for label in style
        if label != "none"
    }
    assert hues == {"large/3": 0, "large/3/k2": 0, "flat/4/z4": 1, "large/4": 0}
    assert len({style[label] for label in style}) == 5


def test_colours_repeat_where_there_are_more_tiles_than_hues_or_more_templates_than_shades():
    assert not repeats([*LABELS, "small/5"])
    assert repeats([*LABELS, "small/5", "small/6"])
    assert not repeats([f"t{i}/3" for i in range(5)])
    assert repeats([f"t{i}/3" for i in range(6)])


def test_predictor_style_does_not_depend_on_the_order():
    assert predictor_style(["mlp", "gbdt", "oracle"]) == predictor_style(["oracle", "gbdt", "mlp"])
    assert predictor_style(["gbdt"])["gbdt"][1] == "solid"
    assert predictor_style(["gbdt"])["oracle"][1] == "dash"


def test_ecdf_reaches_each_share_at_its_regret():
    values = {"gbdt 1": np.array([0.0, 0.01, 0.01, np.nan, 0.04]), "oracle 1": np.zeros(4)}
    figure = regret_ecdf(values, predictor_style(["gbdt", "oracle"]))
    gbdt, oracle = figure.data
    assert list(gbdt.x) == pytest.approx([0.01, 1, 4])
    assert list(gbdt.y) == pytest.approx([25, 75, 100])
    assert list(oracle.x) == pytest.approx([0.01, 4])
    assert list(oracle.y) == [100, 100]
    assert figure.layout.xaxis.type == "log"


def test_ecdf_draws_nothing_for_no_problem():
    figure = regret_ecdf({"gbdt 1": np.array([np.nan])}, predictor_style(["gbdt"]))
    assert list(figure.data[0].y) == [0]


def test_map_draws_best_left_and_pick_right_in_one_colour():
    problems = np.array([[1, 128, 512], [64, 256, 512], [9, 8, 512]])
    chosen = Slice(problems, ["large/2", "small/3", "small/3"], ["small/3", "small/3", "none"], np.array([0.5, 0, 3]))
    figure = template_map(chosen, LABELS, "gbdt 1")
    shown = {(t.name, t.xaxis): list(zip(t.x, t.y, strict=True)) for t in figure.data}
    assert shown == {
        ("large/2", "x"): [(1, 128)],
        ("small/3", "x"): [(64, 256), (9, 8)],
        ("small/3", "x2"): [(1, 128), (64, 256)],
        ("none", "x2"): [(9, 8)],
        ("costs > 2 %", "x2"): [(1, 128), (9, 8)],
    }
    left, right = (t for t in figure.data if t.name == "small/3")
    assert left.marker.color == right.marker.color
    assert (left.showlegend, right.showlegend) == (True, False)
    assert [a.text for a in figure.layout.annotations] == ["measured best", "picked by gbdt 1"]
