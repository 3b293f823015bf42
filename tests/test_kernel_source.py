"""Templates as CUDA: what a unit instantiates, which templates share one, and what it includes."""

import re

import pytest

from tilearena import build, dataset, root
from tilearena.kernel_source import kernels_of, table_source
from tilearena.spec import load_space

SPACE = load_space("paper9")
S8 = SPACE.templates("s8")


def test_template_source_instantiates_the_shapes_of_the_template():
    source = kernels_of([S8[1]])[0].source
    assert '#include "gemm.cuh"' in source
    name = "ta_launch_s8_128x256x64_w64x64x64_i16x8x32_st3"
    assert f"int {name}(const ta_gemm* gemm, int launches, cudaStream_t stream)" in source
    shapes = "GemmShape<128, 256, 64>, GemmShape<64, 64, 64>, GemmShape<16, 8, 32>, 3>>(gemm, launches, stream)"
    assert f"Gemm<int8_t, cutlass::arch::OpMultiplyAddSaturate, {shapes}" in source


@pytest.mark.parametrize(
    ("dtype", "bit_op", "element", "operator"),
    [
        ("s4", None, "cutlass::int4b_t", "OpMultiplyAddSaturate"),
        ("b1", "and", "cutlass::uint1b_t", "OpAndPopc"),
        ("b1", "xor", "cutlass::uint1b_t", "OpXorPopc"),
    ],
)
def test_template_source_has_the_element_and_operator_of_the_dtype(dtype, bit_op, element, operator):
    assert f"Gemm<{element}, cutlass::arch::{operator}, " in kernels_of(SPACE.templates(dtype, bit_op)[:1])[0].source


def unit_of(id_, space="h200-all", dtype="s8"):
    """The unit that holds a template."""
    (unit,) = (unit for unit in kernels_of(load_space(space).templates(dtype, "and")) if id_ in unit.ids)
    return unit


def launches(source, id_):
    """What the launcher of a template calls."""
    return re.search(rf"int ta_launch_{id_}\(.*?\n  return (.*?);\n", source)[1]


def test_split_k_of_one_kernel_is_one_unit_and_an_argument():
    plain, two, eight = (f"s8_64x64x64_w32x32x64_i16x8x32_st4{end}" for end in ("", "_k2", "_k8"))
    unit = unit_of(two)
    assert unit.ids == tuple(f"{plain}_k{split}" for split in (2, 4, 8))
    kernel = (
        "WideGemm<int8_t, cutlass::arch::OpMultiplyAddSaturate, GemmShape<64, 64, 64>, GemmShape<32, 32, 64>, "
        "GemmShape<16, 8, 32>, 4, 1, true>"
    )
    assert launches(unit.source, two) == f"launch_serial<{kernel}>(gemm, 2, launches, stream)"
    assert launches(unit.source, eight) == f"launch_serial<{kernel}>(gemm, 8, launches, stream)"
    assert unit.headers == ("abi.h", "gemm.cuh", "workspace.cuh", "serial.cuh")
    assert unit.arch_features == ""
    # without split-K it is the kernel of paper9, whose object in the cache serves
    assert unit_of(plain) == unit_of(plain, "paper9")


def test_swizzle_is_a_kernel_of_its_own():
    unit = unit_of("s8_128x256x64_w64x64x64_i16x8x32_st3_z4")
    assert unit.ids == ("s8_128x256x64_w64x64x64_i16x8x32_st3_z4",)
    assert re.search(r"launch<WideGemm<.*, 3, 4, false>>\(gemm, launches, stream\)", unit.source)
    assert '#include "serial.cuh"' in unit.source


def test_wgmma_unit_has_tile_cluster_and_schedule_and_compiles_for_sm_90a():
    id_ = "s8_256x128x128_c2x1_cooperative_st4"
    unit = unit_of(id_)
    tile, cluster = "Shape<Int<256>, Int<128>, Int<128>>", "Shape<Int<2>, Int<1>, Int<1>>"
    assert launches(unit.source, id_) == (
        f"launch_sm90<Sm90<Mainloop<{tile}, {cluster}, Cooperative, 4>, {tile}, {cluster}, Cooperative, "
        "cutlass::gemm::PersistentScheduler, false, false>>(gemm, gemm->k, 1, launches, stream)"
    )
    assert (unit.headers, unit.arch_features) == (("abi.h", "workspace.cuh", "sm90.cuh"), "a")


def test_stream_k_and_split_k_on_wgmma_share_a_kernel_and_its_unit():
    first = "s8_128x128x128_c1x1_cooperative_st5"
    unit = unit_of(f"{first}_k2")
    assert unit.ids == tuple(f"{first}{end}" for end in ("_k2", "_k4", "_k8", "_streamk"))
    assert "cutlass::gemm::StreamKScheduler, false, false>" in unit.source
    splits = [launches(unit.source, id_).split(", ")[-3] for id_ in unit.ids]
    assert splits == ["2", "4", "8", "1"]
    assert unit_of(first).ids == (first,)


def test_swapped_kernel_computes_the_transpose():
    unit = unit_of("s8_16x128x128_c1x1_cooperative_st8_swapped")
    assert "Mainloop<Shape<Int<128>, Int<16>, Int<128>>, " in unit.source
    assert "cutlass::gemm::PersistentScheduler, true, false>" in unit.source


def test_adding_kernel_has_no_scheduler_of_split_k():
    unit = unit_of("s8_64x128x128_c1x1_pingpong_st6_k2a")
    assert [id_[-3:] for id_ in unit.ids] == ["k2a", "k4a", "k8a"]
    assert "Pingpong, cutlass::gemm::PersistentScheduler, false, true>" in unit.source


def test_b1_on_wgmma_counts_k_in_bytes():
    id_ = "b1and_128x64x1024_c1x1_cooperative_st6"
    unit = unit_of(id_, "sm90-native", "b1")
    tile = "Shape<Int<128>, Int<64>, Int<128>>"
    assert f"Sm90<BitMainloop<{tile}, " in unit.source
    assert "::Collective, " in unit.source
    assert launches(unit.source, id_).endswith("(gemm, gemm->k / 8, 1, launches, stream)")
    assert unit.headers == ("abi.h", "workspace.cuh", "sm90.cuh", "sm90_bits.cuh")


@pytest.mark.parametrize("space", ["paper9", "sm80-wide", "sm90-native", "h200-all"])
def test_units_hold_every_template_once(space):
    templates = load_space(space).templates("s8" if space == "h200-all" else "b1", "and")
    ids = [id_ for unit in kernels_of(templates) for id_ in unit.ids]
    assert sorted(ids) == sorted(t.id for t in templates)


@pytest.mark.parametrize("space", ["paper9", "sm80-wide"])
def test_sources_on_mma_sync_are_those_of_the_recordings(space, checkout):
    """A change of what is compiled would part what is committed from what can be measured again."""
    recorded = {}
    for path in root.recorded(checkout):
        header = dataset.read_header(path)[0]
        if header.space == space:
            recorded.setdefault((header.dtype, header.bit_op), set()).add(header.versions["kernels"])
    assert recorded
    for (dtype, bit_op), found in recorded.items():
        assert found == {build.sources_hash(kernels_of(load_space(space).templates(dtype, bit_op)))}


def test_table_source_lists_the_launchers_in_order():
    source = table_source(["b", "a"])
    assert re.findall(r'\{"(\w+)", (\w+)\}', source) == [("b", "ta_launch_b"), ("a", "ta_launch_a")]
    assert "const int ta_entry_count = 2;" in source
