"""The keys of a space beyond tile and stages: which templates they make, how these are named, and what is refused."""

import pytest

from tilearena.errors import SpecError
from tilearena.records import Template
from tilearena.spec import load_space, load_workload

HEAD = """\
name: mine
version: 1
tiles:
  big: {threadblock: [128, 256], warp: [64, 64], stages: [3]}
"""
TAIL = """\
dtypes: [s8, b1]
default: {tile: big, stages: 3}
"""


def space_of(folder, *tiles, head=HEAD, tail=TAIL):
    """A space of the default's tile and of others, each a line of YAML."""
    path = folder / "mine.yaml"
    path.write_text(head + "".join(f"  {tile}\n" for tile in tiles) + tail)
    return load_space(str(path))


def added(folder, tile, dtype="s8"):
    """The templates that one more tile makes."""
    return space_of(folder, tile).templates(dtype, "and")[1:]


def test_tile_of_its_own_stages_k_split_and_swizzles_makes_every_combination(tmp_path):
    tile = "t: {threadblock: [64, 32], warp: [32, 16], stages: [4, 6], k_bytes: 128, swizzles: [1, 4], split_k: [1, 2]}"
    found = added(tmp_path, tile)
    assert [t.label for t in found] == [
        *("t/4", "t/4/k2", "t/4/z4", "t/4/z4/k2"),
        *("t/6", "t/6/k2", "t/6/z4", "t/6/z4/k2"),
    ]
    assert [t.id for t in found[:4]] == [
        "s8_64x32x128_w32x16x128_i16x8x32_st4",
        "s8_64x32x128_w32x16x128_i16x8x32_st4_k2",
        "s8_64x32x128_w32x16x128_i16x8x32_st4_z4",
        "s8_64x32x128_w32x16x128_i16x8x32_st4_z4_k2",
    ]
    assert {(t.generator, t.schedule, t.warps) for t in found} == {("cutlass2", "multistage", 4)}
    assert found[0].smem_bytes == 4 * (64 + 32) * 128
    assert added(tmp_path, tile, "b1")[0].id == "b1and_64x32x1024_w32x16x1024_i16x8x256_st4"


def test_stages_and_k_of_the_space_are_those_of_tiles_that_give_none(tmp_path):
    tail = TAIL + "stages: [2, 4]\nk_bytes: 128\n"
    found = space_of(tmp_path, "t: {threadblock: [64, 64], warp: [32, 32]}", tail=tail).templates("s8")
    assert [t.label for t in found] == ["big/3", "t/2", "t/4"]
    assert {t.threadblock[2] for t in found} == {128}


def test_wgmma_tile_makes_every_schedule_and_cluster_and_counts_warp_groups(tmp_path):
    tile = (
        "w: {generator: cutlass3, threadblock: [128, 64], schedules: [pingpong, cooperative], stages: [5], "
        "k_bytes: 128, clusters: [[1, 1], [2, 1]]}"
    )
    found = added(tmp_path, tile)
    assert [(t.label, t.id) for t in found] == [
        ("w/5/pingpong", "s8_128x64x128_c1x1_pingpong_st5"),
        ("w/5/pingpong/c2x1", "s8_128x64x128_c2x1_pingpong_st5"),
        ("w/5/cooperative", "s8_128x64x128_c1x1_cooperative_st5"),
        ("w/5/cooperative/c2x1", "s8_128x64x128_c2x1_cooperative_st5"),
    ]
    # two warp groups share the rows of a tile, or each has tiles of its own; a third one loads
    assert [t.warp for t in found[1:3]] == [(128, 64, 128), (64, 64, 128)]
    assert {t.instruction for t in found} == {(64, 64, 32)}
    assert {t.warps for t in found} == {12}
    assert added(tmp_path, tile, "b1")[0].instruction == (64, 64, 256)


def test_stream_k_comes_once_beside_each_split(tmp_path):
    tile = (
        "k: {generator: cutlass3, threadblock: [128, 64], schedules: [cooperative], stages: [6], split_k: [2, 4], "
        "stream_k: true}"
    )
    found = added(tmp_path, tile)
    assert [t.label for t in found] == ["k/6/cooperative/k2", "k/6/cooperative/k4", "k/6/cooperative/streamk"]
    assert [t.id.removeprefix("s8_128x64x64_c1x1_cooperative_st6") for t in found] == ["_k2", "_k4", "_streamk"]
    assert [(t.split_k, t.stream_k) for t in found] == [(2, False), (4, False), (1, True)]


def test_swapped_tile_gives_n_the_rows_of_a_wgmma(tmp_path):
    (one,) = added(
        tmp_path,
        "s: {generator: cutlass3, threadblock: [16, 128], schedules: [cooperative], stages: [8], swapped: true}",
    )
    assert (one.id, one.label) == ("s8_16x128x64_c1x1_cooperative_st8_swapped", "s/8/cooperative")
    assert (one.warp, one.instruction) == ((16, 64, 64), (16, 64, 32))
    (one,) = added(
        tmp_path,
        "s: {generator: cutlass3, threadblock: [8, 64], schedules: [warp_specialized], stages: [12], swapped: true}",
    )
    assert (one.warp, one.warps) == ((8, 64, 64), 8)


def test_adding_tile_has_an_a_in_its_ids(tmp_path):
    found = added(
        tmp_path,
        "a: {generator: cutlass3, threadblock: [64, 128], schedules: [pingpong], stages: [6], split_k: [2, 4], "
        "adding: true}",
    )
    assert [t.id for t in found] == [f"s8_64x128x64_c1x1_pingpong_st6_k{split}a" for split in (2, 4)]
    assert all(t.adding for t in found)


def test_tile_serves_its_own_dtypes(tmp_path):
    space = space_of(tmp_path, "t: {threadblock: [64, 64], warp: [32, 32], stages: [2], dtypes: [b1]}")
    assert [t.label for t in space.templates("s8")] == ["big/3"]
    assert [t.label for t in space.templates("b1", "and")] == ["big/3", "t/2"]


def test_included_spaces_come_first_and_of_equal_templates_the_first_counts(tmp_path):
    space = space_of(
        tmp_path,
        "again: {threadblock: [128, 128], warp: [64, 64], stages: [2, 5]}",
        head="name: mine\nversion: 1\ninclude: [paper9]\ntiles:\n",
        tail="dtypes: [s8]\ndefault: {tile: large, stages: 3}\n",
    )
    labels = [t.label for t in space.templates("s8")]
    assert labels == [t.label for t in load_space("paper9").templates("s8")] + ["again/5"]
    assert space.default_index("s8") == 1
    alone = space_of(
        tmp_path,
        head="name: mine\nversion: 1\ninclude: [paper9]\n",
        tail="dtypes: [s8]\ndefault: {tile: large, stages: 3}\n",
    )
    assert alone.templates("s8") == load_space("paper9").templates("s8")


def test_fingerprint_follows_what_is_included(tmp_path):
    head, tail = "name: mine\nversion: 1\ninclude: [{}]\n", "dtypes: [s8]\ndefault: {tile: large, stages: 3}\n"
    one, other, both = (
        space_of(tmp_path, head=head.format(names), tail=tail).fingerprint
        for names in ("paper9", "sm80-wide", "paper9, sm80-wide")
    )
    assert len({one, other, both}) == 3


def test_screen_replaces_what_the_workload_says(tmp_path):
    space = space_of(tmp_path, tail=TAIL + "screen: {rounds: 4, contenders: 8}\n")
    protocol = load_workload("quick").protocol("cold", "s8")
    screened = space.screened(protocol)
    assert (protocol.screen_rounds, protocol.max_contenders) == (3, None)
    assert (screened.screen_rounds, screened.max_contenders, screened.rounds) == (4, 8, protocol.rounds)
    assert load_space("paper9").screened(protocol) is protocol


def test_h200_all_holds_what_it_includes_once_and_the_nine_of_paper9():
    wide, native, every = (load_space(name).templates("s8") for name in ("sm80-wide", "sm90-native", "h200-all"))
    assert every[: len(wide)] == wide
    # the default is in both
    assert len(every) == len(wide) + len(native) - 1
    assert {t.id for t in load_space("paper9").templates("s8")} < {t.id for t in wide}
    assert len({t.id for t in every}) == len({t.label for t in every}) == len(every)


@pytest.mark.parametrize("name", ["paper9", "sm80-wide", "sm90-native", "h200-all"])
def test_default_of_every_space_is_cutlass_own(name):
    space = load_space(name)
    for dtype in space.dtypes:
        default = space.templates(dtype, "and")[space.default_index(dtype)]
        assert (default.label, default.threadblock[:2], default.split_k) == ("large/3", (128, 256), 1)


W = "w: {generator: cutlass3, threadblock: [128, 64], schedules: [cooperative], stages: [5]"


@pytest.mark.parametrize(
    ("tile", "says"),
    [
        ("t: {threadblock: [64, 64], warp: [32, 32]}", "tiles.t.stages are missing; give them here or for the space"),
        ("t: {threadblock: [64, 64], stages: [2]}", "tiles.t.warp is missing; cutlass2 needs it"),
        ("t: {threadblock: [64, 64], warp: [32, 32], stages: [2], swapped: true}", "tiles.t.swapped is of cutlass3"),
        ("t: {threadblock: [64, 64], warp: [32, 32], stages: [2], stream_k: true}", "tiles.t.stream_k is of cutlass3"),
        ("t: {threadblock: [64, 64], warp: [32, 32], stages: [2], adding: true}", "tiles.t.adding is of cutlass3"),
        (
            "t: {threadblock: [64, 64], warp: [32, 32], stages: [2], clusters: [[2, 1]]}",
            "tiles.t.clusters is of cutlass3; remove it, or set generator",
        ),
        (
            "t: {threadblock: [64, 64], warp: [32, 32], stages: [2], schedules: [pingpong]}",
            "tiles.t.schedules is of cutlass3",
        ),
        (W + ", warp: [64, 64]}", "tiles.w.warp is of cutlass2; remove it, or leave generator out"),
        (W + ", swizzles: [1, 2]}", "tiles.w.swizzles is of cutlass2"),
        (W.replace("cooperative", "multistage") + "}", "tiles.w.schedules needs one or more of warp_specialized"),
        (W.replace("schedules: [cooperative], ", "") + "}", "tiles.w.schedules needs one or more of"),
        (
            W.replace("[128, 64]", "[64, 128]") + "}",
            r"tiles.w.threadblock is \[64, 128\], .* of 128 rows and 8 columns",
        ),
        (W + ", swapped: true}", r"tiles.w.threadblock is \[128, 64\], .* multiples of 128 rows"),
        (W.replace("[128, 64]", "[128, 60]") + "}", "tiles.w.threadblock is .* 8 columns"),
        (W + ", dtypes: [s4]}", "tiles.w.dtypes has s4, which wgmma does not compute"),
        (W + ", adding: true}", "tiles.w.adding is of split_k above 1, without stream_k"),
        (W + ", adding: true, split_k: [2], stream_k: true}", "tiles.w.adding is of split_k above 1, without stream_k"),
        (W.replace("cooperative", "pingpong") + ", split_k: [2]}", "tiles.w.schedules has to be cooperative alone"),
        (W.replace("cooperative", "pingpong") + ", stream_k: true}", "tiles.w.schedules has to be cooperative alone"),
        (W + ", clusters: [[3, 1]]}", "tiles.w.clusters.0.0 should be 1, 2 or 4"),
        (W + ", split_k: [3]}", "tiles.w.split_k.0 should be 1, 2, 4, 8 or 16"),
        (W.replace("[5]", "[13]") + "}", "tiles.w.stages.0 should be less than or equal to 12"),
    ],
)
def test_tile_mistake_names_line_and_key(tmp_path, tile, says):
    with pytest.raises(SpecError, match=f"mine.yaml line 5: {says}"):
        space_of(tmp_path, tile)


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ("include: [nope]\n", "no space named 'nope'; use h200-all, paper9"),
        ("include: [h200-all]\n", "include names 'h200-all', which has no b1"),
        ("include: paper9\n", "include should be a list"),
        ("screen: {rounds: 4}\n", "screen.contenders is missing"),
        ("screen: {rounds: 4, contenders: 1}\n", "screen.contenders should be greater than or equal to 2"),
        ("screen: {rounds: 0, contenders: 8}\n", "screen.rounds should be greater than or equal to 1"),
    ],
)
def test_space_mistake_names_the_key(tmp_path, extra, says):
    with pytest.raises(SpecError, match=says):
        space_of(tmp_path, tail=TAIL + extra)


def test_default_has_to_be_the_plain_kernel_of_every_dtype(tmp_path):
    with pytest.raises(SpecError, match=r"default\.stages is 3; use one of \[4\]"):
        space_of(tmp_path, head=HEAD.replace("stages: [3]", "stages: [4]"))
    with pytest.raises(SpecError, match=r"default\.tile is 'big'; use one of the tiles t"):
        space_of(
            tmp_path,
            "t: {threadblock: [64, 64], warp: [32, 32], stages: [3]}",
            head=HEAD.replace("stages: [3]}", "stages: [3], dtypes: [s8]}"),
        )


def test_template_of_paper9_has_the_fields_of_before_alone():
    """Recordings and fingerprints of before stay what they are."""
    one = load_space("paper9").templates("s8")[0]
    plain = {"dtype", "label", "threadblock", "warp", "instruction", "stages"}
    assert set(one.model_dump(exclude_defaults=True)) == plain
    assert Template.model_validate(one.model_dump(include={"generator", *plain})) == one
