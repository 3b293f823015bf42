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
    ],
)
def test_space_mistake_names_line_and_key(tmp_path, old, new, says):
    assert BASE.count(old) == 1
    with pytest.raises(SpecError, match=says):
        read(tmp_path, BASE.replace(old, new))
