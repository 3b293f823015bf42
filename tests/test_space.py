import json
import time

import pytest

from tilearena.errors import SpecError
from tilearena.spec import load_space

BASE = """\
name: mine
version: 1
tiles:
  big: {threadblock: [128, 128], warp: [64, 64]}
  little: {threadblock: [64, 64], warp: [32, 32]}
stages: [3, 5]
dtypes: [s8, b1]
default: {tile: little, stages: 3}
"""
S8 = load_space("paper9").templates("s8")


def read(folder, text):
    path = folder / "mine.yaml"
    path.write_text(text)
    return load_space(str(path))


def test_paper9_order_and_default():
    space = load_space("paper9")
    assert [t.label for t in space.templates("s8")] == [
        f"{tile}/{stages}" for tile in ("large", "medium", "small") for stages in (2, 3, 4)
    ]
    assert space.templates("s8")[space.default_index("s8")].label == "large/3"
    assert space.fingerprint == "71abf62178ade267"


@pytest.mark.parametrize(
    ("dtype", "bit_op", "first", "last"),
    [
        ("s8", None, "s8_128x256x64_w64x64x64_i16x8x32_st2", "s8_64x64x64_w32x32x64_i16x8x32_st4"),
        ("s4", None, "s4_128x256x128_w64x64x128_i16x8x64_st2", "s4_64x64x128_w32x32x128_i16x8x64_st4"),
        ("b1", "and", "b1and_128x256x512_w64x64x512_i16x8x256_st2", "b1and_64x64x512_w32x32x512_i16x8x256_st4"),
    ],
)
def test_paper9_templates_have_64_bytes_of_k(dtype, bit_op, first, last):
    templates = load_space("paper9").templates(dtype, bit_op)
    assert (templates[0].id, templates[-1].id) == (first, last)
    assert [t.smem_bytes >> 10 for t in templates] == [48, 72, 96, 32, 48, 64, 16, 24, 32]


def test_templates_ignore_the_bit_operation_unless_b1():
    assert load_space("paper9").templates("s8", "and") == S8
    assert {t.bit_op for t in load_space("paper9").templates("b1", "xor")} == {"xor"}


def test_templates_of_another_dtype_are_refused(tmp_path):
    space = read(tmp_path, BASE)
    with pytest.raises(SpecError, match="'mine' has no s4; it serves s8, b1"):
        space.templates("s4")
    with pytest.raises(SpecError, match="b1 needs a bit_op"):
        space.templates("b1")


def test_default_index_points_at_the_default(tmp_path):
    space = read(tmp_path, BASE)
    assert space.default_index("s8") == 2
    assert space.templates("s8")[2].label == "little/3"


def test_fingerprint_follows_the_order_of_tiles_but_not_of_keys(tmp_path):
    lines = BASE.splitlines(keepends=True)
    plain = read(tmp_path, BASE)
    keys = read(tmp_path, "".join([*lines[5:], "# note\n", *lines[:5], "k_bytes: 64\n"]))
    tiles = read(tmp_path, "".join([*lines[:3], lines[4], lines[3], *lines[5:]]))
    assert keys.fingerprint == plain.fingerprint
    assert tiles.fingerprint != plain.fingerprint
    assert tiles.templates("s8")[0].label == "little/3"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("tile: little", "tile: tiny", "line 8: default.tile is 'tiny'; use one of the tiles big, little"),
        ("little, stages: 3", "little, stages: 4", r"line 8: default.stages is 4; use one of \[3, 5\]"),
        ("stages: [3, 5]", "stages: [3, 3]", "line 6: stages holds a value twice"),
        ("stages: [3, 5]", "stages: [1, 3]", "line 6: stages.0 should be greater than or equal to 2"),
        ("warp: [32, 32]", "warp: [48, 32]", r"line 5: tiles.little.warp is \[48, 32\], which does not divide"),
        ("warp: [32, 32]", "warp: [20, 32]", r"line 5: tiles.little.warp is .* multiples of \[16, 8\]"),
        ("[128, 128], warp: [64, 64]", "[256, 256], warp: [16, 32]", "line 4: tiles.big.warp .* into 1..32 warps"),
        (
            "warp: [32, 32]",
            "wrap: [32, 32]",
            "line 5: tiles.little.wrap is an unknown key; use one of threadblock, generator, warp",
        ),
        ("version: 1", "version: 1\nk_bytes: 48", "line 3: k_bytes should be 64, 128 or 256, but is 48"),
        ("version: 1", "version: 1\ngenerator: cutlass2", "line 3: generator is an unknown key; use one of name"),
        ("[64, 64], warp", "[64, 64], generator: triton, warp", "little.generator should be 'cutlass2' or 'cutlass3'"),
        ("  little:", "  Little:", "line 5: tiles.Little should match the pattern"),
        ("dtypes: [s8, b1]", "dtypes: [s8, s8]", "line 7: dtypes holds a value twice"),
        ("[32, 32]}", "[32, 32], stages: [3, 3]}", "line 5: tiles.little.stages holds a value twice"),
        ("[32, 32]}", "[32, 32], split_k: [2, 2]}", "line 5: tiles.little.split_k holds a value twice"),
        ("[32, 32]}", "[32, 32], swizzles: [1, 1]}", "line 5: tiles.little.swizzles holds a value twice"),
        ("[32, 32]}", "[32, 32], dtypes: [s4]}", "line 5: tiles.little.dtypes has s4, which the space has not"),
        ("[32, 32]}", "[32, 32], split_k: [2]}", "line 8: default.tile is 'little'; use one of the tiles big"),
        (
            "[32, 32]}",
            "[32, 32], dtypes: [s8]}",
            "line 8: default.tile is 'little'; use one of the tiles big",
        ),  # for b1
        ("default:", "include: [paper9]\ndefault:", "line 9: default is little/3, the same as small/3; name that"),
    ],
)
def test_space_mistake_names_line_and_key(tmp_path, old, new, says):
    assert BASE.count(old) == 1
    with pytest.raises(SpecError, match=says):
        read(tmp_path, BASE.replace(old, new))


def test_default_that_no_template_of_a_dtype_can_be_is_refused(tmp_path):
    text = BASE.replace("warp: [64, 64]", "warp: [64, 64], dtypes: [s8]")
    with pytest.raises(SpecError, match=r"default\.tile is 'little'; add such a tile, plain, for b1"):
        read(tmp_path, text.replace("warp: [32, 32]", "warp: [32, 32], dtypes: [s8]"))


def include(folder, name, *names):
    """A space that includes others by the paths of their files."""
    paths = [str(folder / f"{other}.yaml") if other != "paper9" else other for other in names]
    (folder / f"{name}.yaml").write_text(f"{BASE.replace('name: mine', f'name: {name}')}include: {json.dumps(paths)}\n")
    return str(folder / f"{name}.yaml")


@pytest.mark.parametrize(
    ("included", "says"),
    [
        ({"a": ["a"]}, "a.yaml line 9: include.0 leads back to a space that includes this one"),
        ({"a": ["b"], "b": ["a"]}, "b.yaml line 9: include.0 leads back to a space that includes this one"),
        ({"a": ["b", "b"], "b": []}, "a.yaml line 9: include.1 is included a second time"),
        ({"a": ["b"], "b": ["c"], "c": ["d"], "d": ["e"], "e": []}, "d.yaml line 9: include.0 .* more than 3 levels"),
        ({"a": ["b"] * 9, "b": []}, "a.yaml line 9: include has 9 values; give at most 8"),
        ({"a": ["b"]}, "b.yaml: cannot be read"),
    ],
)
def test_spaces_that_cannot_include_one_another_are_refused(tmp_path, included, says):
    for name, names in included.items():
        include(tmp_path, name, *names)
    with pytest.raises(SpecError, match=says):
        load_space(str(tmp_path / "a.yaml"))


def test_space_may_reach_another_by_several_ways(tmp_path):
    include(tmp_path, "d")
    include(tmp_path, "b", "d")
    include(tmp_path, "c", "d")
    assert load_space(include(tmp_path, "a", "b", "c")).templates("s8") == read(tmp_path, BASE).templates("s8")


def many(n_tiles):
    """A space of one plain template and ``n_tiles`` x 220 others."""
    lists = "split_k: [1, 2, 4, 8, 16], swizzles: [1, 2, 4, 8], stages: [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]"
    shapes = [(16 * i, 8 * j) for i in range(1, 17) for j in range(1, 17) if i * j <= 32][:n_tiles]
    tiles = [f"  t{m}x{n}: {{threadblock: [{m}, {n}], warp: [16, 8], {lists}}}\n" for m, n in shapes]
    return BASE.replace("stages: [3, 5]\n", "stages: [3]\n").replace("  little:", "".join([*tiles, "  little:"]))


def test_thousands_of_templates_are_listed_at_once(tmp_path):
    start = time.process_time()
    assert len(read(tmp_path, many(40)).templates("s8")) == 40 * 220 + 2
    assert time.process_time() - start < 5


def test_more_templates_than_recordings_can_index_are_refused_before_they_are_made(tmp_path):
    with pytest.raises(SpecError, match="line 3: tiles make 17602 templates, with what is included; at most 16384 fit"):
        read(tmp_path, many(80))


@pytest.mark.parametrize("name", ["paper9", "sm80-wide", "sm90-native", "h200-all"])
def test_number_of_templates_is_known_before_they_are_made(name):
    space = load_space(name)
    per_dtype = {dtype: space._listed(dtype, "and") for dtype in space.dtypes}
    assert all(len(found) == space._count() for found in per_dtype.values())
