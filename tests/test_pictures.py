"""What the pictures show, read back from the figures, and that their files are the same every time."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from standin import templates

from tilearena.agreement import matched
from tilearena.datasheet import pictures
from tilearena.datasheet.collection import collect
from tilearena.datasheet.pictures import Picture, PictureError, draw, save
from tilearena.datasheet.pictures_of_choice import _legend, k_bands, majority, template_colours, winner_shares
from tilearena.datasheet.pictures_of_speed import running
from tilearena.datasheet.roofline import PEAKS, moved_bytes, operations
from tilearena.table import Table, Task


@pytest.fixture(scope="module")
def collection(shared_root):
    return collect(shared_root)


@pytest.fixture(scope="module")
def drawn(collection):
    return {picture.name: picture for picture in draw(collection)}


def table(shapes, best):
    """Template ``best[p]`` is the fastest on problem p."""
    time_ns = np.full((len(shapes), 9), 200.0)
    time_ns[np.arange(len(shapes)), best] = 100.0
    task = Task("gemm", "s8", None, "paper9", templates("s8"), 1, None, "cold")
    return Table(task, np.array(shapes), time_ns)


def test_map_has_the_template_that_wins_most_of_a_cell():
    shapes = [(1, 128, 512), (1, 130, 512), (1, 140, 512), (64, 128, 512), (64, 256, 512)]
    m, n, cells = majority(table(shapes, [4, 7, 7, 0, 8]))
    assert (m[0], m[-1], n[0], n[-1]) == (1, 64, 128, 256)
    assert cells.shape == (12, 2)
    assert (cells[0, 0], cells[11, 0], cells[11, 1]) == (7, 0, 8)
    assert cells.count() == 3  # the others are of no problem


def test_map_of_nothing_is_empty():
    _, _, cells = majority(table([(1, 128, 512)], [0]).take(np.array([], dtype=int)))
    assert cells.count() == 0


def test_bands_of_k_are_powers_of_two_between_the_extremes():
    k = np.array([192, 200, 256, 500, 520, 1000, 1100, 4000, 4096, 5000])
    assert k_bands(np.stack([k, k, k], axis=1)) == [192, 256, 1024, 4096, 5001]
    assert k_bands(np.full((5, 3), 64)) == [64, 65]


def test_every_template_has_a_colour_of_its_own():
    colours = template_colours(table([(1, 8, 64)], [0]))
    assert len(set(colours)) == 9
    assert winner_shares(table([(1, 8, 64), (2, 8, 64), (3, 8, 64)], [8, 8, 2])).tolist() == pytest.approx(
        [0, 0, 1 / 3, 0, 0, 0, 0, 0, 2 / 3]
    )


def test_operations_and_bytes_are_counted_as_two_a_multiply_add_and_each_operand_once():
    problems = np.array([[3, 8, 128], [1 << 15, 1 << 15, 1 << 8]])
    assert operations(problems).tolist() == [2 * 3 * 8 * 128, 2.0**39]
    assert moved_bytes(problems, "s8")[0] == 11 * 128 + 4 * 24
    assert moved_bytes(problems, "b1")[0] == 11 * 16 + 4 * 24
    assert PEAKS["NVIDIA H200"].tops == {"s8": 1979.0}


def test_only_problems_of_both_are_matched_and_bins_with_few_are_left_out():
    one, other = matched(table([(1, 8, 64), (2, 8, 64)], [0, 1]), table([(2, 8, 64), (5, 8, 64)], [3, 4]))
    assert one.problems.tolist() == other.problems.tolist() == [[2, 8, 64]]
    x = np.concatenate([np.full(400, 5.0), np.full(19, 20.0)])
    middles, quartiles = running(x, np.concatenate([np.repeat(np.arange(20.0), 20), np.zeros(19)]))
    assert middles == pytest.approx([2**2.5])
    assert quartiles.tolist() == [[4.75], [9.5], [14.25]]
    assert running(x[:10], x[:10])[1].tolist() == [[5], [5], [5]]


def test_all_pictures_are_drawn_and_their_axes_are_named(drawn):
    assert list(drawn) == [
        *("best-template-s8", "best-template-b1", "winners", "speedup", "hot-cold", "partitions", "roofline"),
    ]
    for picture in drawn.values():
        last = picture.figure.axes[-1]
        assert last.get_xlabel()
        assert any(axis.get_ylabel() for axis in picture.figure.axes) or last.get_yticklabels()
        assert len(picture.caption) > 50


def test_files_are_the_same_every_time(collection, tmp_path):
    for folder in ("one", "two"):
        save([picture for picture in draw(collection) if picture.name in ("winners", "partitions")], tmp_path / folder)
    files = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    assert set(files) == {"winners.png", "partitions.png"}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "two").iterdir()}
    assert all(content.startswith(b"\x89PNG") for content in files.values())


def test_speedups_are_shown_as_the_share_of_problems(collection, drawn):
    panels = drawn["speedup"].figure.axes
    assert [{line.get_label().split(" ")[0] for line in axis.lines} for axis in panels] == [{"s8", "b1"}, {"s4"}]
    lines = {line.get_label().split(",")[0]: line for axis in panels for line in axis.lines}
    assert set(lines) == {"s8 cold", "s8 hot", "b1 cold", "b1 hot", "s4 cold"}
    (b1,) = (one for one in collection.firsts if one.name == "lowbit-full b1 hot")
    times = b1.recording.table.time_ns
    ratios = np.sort(times[:, 1] / times.min(axis=1))
    assert lines["b1 hot"].get_xdata()[1:].tolist() == pytest.approx(ratios.tolist())
    assert lines["b1 hot"].get_ydata()[[0, -1]].tolist() == [0, 100]


def test_bars_are_of_the_problems_that_all_have(drawn):
    titles = [axis.get_title(loc="left") for axis in drawn["winners"].figure.axes]
    assert titles == [
        "s8: 20 problems of lowbit-full",  # the partition has 20 of 30
        "b1: 30 problems of lowbit-full",
        "s4, emulated: 5 problems of lowbit-random",
    ]
    ticks = [label.get_text() for label in drawn["winners"].figure.axes[0].get_yticklabels()]
    assert ticks == ["cold, 132 SMs", "cold, 72 SMs", "hot, 132 SMs"]


def test_label_is_drawn_as_it_is_written(tmp_path):
    odd, *rest = templates("s8")
    plain, figure = table([(1, 128, 512)], [0]), Figure()
    space = (odd.model_copy(update={"label": r"$\frac{1$"}), *rest)
    _legend(figure, replace(plain, task=replace(plain.task, templates=space)))
    save([Picture("odd", "text", figure)], tmp_path)
    assert (tmp_path / "odd.png").is_file()


def test_settings_that_keep_matplotlib_from_starting_are_one_sentence():
    code = "from tilearena.datasheet.pictures import save; save([], None)"
    environment = os.environ | {"MPLBACKEND": "nonsense"}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert ended.stderr.splitlines()[-1].startswith(
        "tilearena.datasheet.pictures.PictureError: matplotlib does not start: Key backend: 'nonsense' is not a valid"
    )


def test_without_matplotlib_the_extra_is_named(collection, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.style", None)
    with pytest.raises(PictureError, match=r"pip install 'tilearena\[docs\]'"):
        pictures.draw(collection)
