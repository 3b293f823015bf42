"""What runs where, and the reason why something does not."""

import pytest

from tilearena.feasible import rejection, support
from tilearena.records import Device, Problem
from tilearena.spec import load_space

#: Limits of sm_86: 10 GiB, 99 KiB of shared memory for a block (CUDA C++ Programming Guide).
CARD = Device(
    slug="a-card",
    product="A card",
    compute_capability=(8, 6),
    sm_count=68,
    l2_bytes=5 << 20,
    memory_bytes=10 << 30,
    smem_per_block_bytes=99 << 10,
    smem_per_sm_bytes=100 << 10,
)
#: Limits of sm_90, as an H200 has them.
HOPPER = CARD.model_copy(
    update={"compute_capability": (9, 0), "memory_bytes": 140 << 30, "smem_per_block_bytes": 227 << 10}
)
S8 = load_space("paper9").templates("s8")
S8_WIDE = load_space("h200-all").templates("s8")
BY_ID = {t.id: t for t in S8_WIDE}


def device(arch, **changes):
    return CARD.model_copy(update={"compute_capability": divmod(arch, 10), **changes})


@pytest.mark.parametrize(
    ("dtype", "bit_op", "expected"),
    [
        ("s8", None, "unsupported native native native native native native"),
        ("s4", None, "unsupported native native native emulated emulated emulated"),
        ("b1", "and", "unsupported native native native native emulated emulated"),
        ("b1", "xor", "unsupported native native native unsupported emulated emulated"),
    ],
)
def test_support_follows_the_compiled_code(dtype, bit_op, expected):
    assert [support(dtype, bit_op, arch) for arch in (75, 80, 86, 89, 90, 100, 120)] == expected.split()


def test_rejection_passes_what_runs():
    problem = Problem(dtype="s8", m=17, n=136, k=400)
    assert [rejection(problem, t, CARD) for t in S8] == [None] * 9


def test_rejection_counts_shared_memory_of_the_block():
    problem = Problem(dtype="s8", m=17, n=136, k=400)
    turing_like = device(86, smem_per_block_bytes=64 << 10)
    refused = {t.label: rejection(problem, t, turing_like) for t in S8}
    assert [label for label, reason in refused.items() if reason] == ["large/3", "large/4"]
    assert refused["large/4"] == "needs 98304 bytes of shared memory, a block has 65536"


def test_rejection_needs_sm_80():
    problem = Problem(dtype="s8", m=17, n=136, k=400)
    assert rejection(problem, S8[0], device(75)) == "sm_75 is older than sm_80, the first with these instructions"


def test_rejection_of_xor_on_sm_90():
    problem = Problem(dtype="b1", m=1, n=8, k=128, bit_op="xor")
    template = load_space("paper9").templates("b1", "xor")[0]
    assert rejection(problem, template, device(90)) == "b1 xor does not exist on sm_90"
    assert rejection(problem, template, device(89)) is None


def test_rejection_of_a_template_of_another_operation():
    problem = Problem(dtype="b1", m=1, n=8, k=128, bit_op="xor")
    template = load_space("paper9").templates("b1", "and")[0]
    assert rejection(problem, template, CARD) == f"template {template.id} does not compute b1 xor"


def test_rejection_counts_two_slots_of_operands_and_output_and_two_gibibytes():
    problem = Problem(dtype="s8", m=16384, n=16384, k=16384)
    needed = 2 * (2 * 16384**2 + 4 * 16384**2) + (2 << 30)
    assert rejection(problem, S8[0], device(86, memory_bytes=needed)) is None
    reason = rejection(problem, S8[0], device(86, memory_bytes=needed - 1))
    assert reason == f"needs {needed} bytes of device memory, A card has {needed - 1}"


def test_rejection_counts_tiles_along_n_against_the_grid():
    narrow = S8[0].model_copy(update={"threadblock": (64, 8, 64), "warp": (32, 8, 64)})
    assert rejection(Problem(dtype="s8", m=1, n=8 * 65535, k=16), narrow, CARD) is None
    reason = rejection(Problem(dtype="s8", m=1, n=8 * 65536, k=16), narrow, CARD)
    assert reason == "needs 65536 tiles along N, a grid has at most 65535"


def why(id_, m, n, k, device=HOPPER):
    return rejection(Problem(dtype="s8", m=m, n=n, k=k), BY_ID[id_], device)


def test_rejection_of_wgmma_but_on_sm_90():
    id_ = "s8_128x128x128_c1x1_cooperative_st5"
    assert why(id_, 17, 136, 400) is None
    for arch in (89, 100):
        there = HOPPER.model_copy(update={"compute_capability": divmod(arch, 10)})
        assert why(id_, 17, 136, 400, there) == f"wgmma exists on sm_90 alone, A card is sm_{arch}"


@pytest.mark.parametrize(
    ("split", "k", "steps"),
    # 64 of K a step; with 8 threadblocks and 9 steps each takes two, so that the sixth and later have none
    [(2, 65, None), (2, 64, 1), (8, 8 * 64, None), (8, 7 * 64, 7), (8, 9 * 64, 9), (8, 15 * 64, None), (4, 5 * 64, 5)],
)
def test_rejection_wants_a_step_of_k_for_every_threadblock_that_shares_it(split, k, steps):
    reason = why(f"s8_128x256x64_w64x64x64_i16x8x32_st3_k{split}", 17, 136, -(-k // 16) * 16)
    few = f"K has {steps} steps of this template, too few for {split} threadblocks"
    assert reason == (None if steps is None else few)


def test_rejection_counts_the_semaphores_of_serial_split_k():
    id_ = "s8_16x32x64_w16x16x64_i16x8x32_st4_k2"
    # 1024 x 1024 tiles have four bytes each, which is what there is
    assert why(id_, 16 * 1024, 32 * 1024, 128) is None
    reason = why(id_, 16 * 1024 + 1, 32 * 1024, 128)
    assert reason == f"needs {4 * 1025 * 1024} bytes of workspace for partial results, there are {4 << 20}"
    assert why("s8_16x32x64_w16x16x64_i16x8x32_st4", 16 * 1024 + 1, 32 * 1024, 128) is None


def test_rejection_counts_the_partial_sums_of_split_k_on_wgmma():
    id_ = "s8_128x128x128_c1x1_cooperative_st5_k2"
    # 64 x 63 tiles of 128 x 128 sums are 252 MiB, 64 x 64 of them 256 MiB, of which a part is for barriers
    assert why(id_, 64 * 128, 63 * 128, 256) is None
    reason = why(id_, 64 * 128, 64 * 128, 256)
    there = (256 << 20) - (1 << 20)
    assert reason == f"needs {4 * 128 * 128 * 64 * 64} bytes of workspace for partial results, there are {there}"
    assert why("s8_128x128x128_c1x1_cooperative_st5_streamk", 64 * 128 + 1, 64 * 128, 256) is None


def test_rejection_counts_the_partial_sums_of_whole_clusters():
    (template,) = [t for t in S8_WIDE if t.id == "s8_256x128x128_c2x1_cooperative_st4"]
    split = template.model_copy(update={"split_k": 2, "adding": False})
    device = HOPPER.model_copy(update={"memory_bytes": 1 << 62})
    rows = 255 * (1 << 20) // (4 * 256 * 128)  # tiles that fit, an even number
    for m, n, fits in ((rows * 256, 128, True), ((rows - 1) * 256, 128, True), (256, 128 * (rows // 2), True)):
        assert (rejection(Problem(dtype="s8", m=m, n=n, k=256), split, device) is None) == fits
    reason = rejection(Problem(dtype="s8", m=256, n=128 * (rows // 2 + 1), k=256), split, device)
    assert reason == f"needs {4 * 256 * 128 * (rows + 2)} bytes of workspace for partial results, there are {255 << 20}"


@pytest.mark.parametrize(("k", "steps"), [(128, 1), (129, None), (3 * 128, None), (28 * 128, None)])
def test_rejection_knows_that_cutlass3_shares_k_evenly(k, steps):
    reason = why("s8_128x128x128_c1x1_cooperative_st5_k2", 17, 136, -(-k // 16) * 16)
    few = f"K has {steps} steps of this template, too few for 2 threadblocks"
    assert reason == (None if steps is None else few)
    wide = [t for t in S8_WIDE if t.generator == "cutlass3" and t.split_k == 8 and not t.adding]
    assert wide
    for template in wide:  # nine steps for eight threadblocks: one works for two, none for nothing
        problem = Problem(dtype="s8", m=17, n=136, k=9 * template.threadblock[2])
        assert rejection(problem, template, HOPPER) is None


def test_rejection_of_wgmma_on_a_partition_of_the_sms():
    part = HOPPER.model_copy(update={"sm_count": 72, "sm_total": 132})
    reason = "wgmma kernels size their grid by the whole card, not by a partition of its SMs"
    assert why("s8_128x128x128_c1x1_cooperative_st5", 17, 136, 400, part) == reason
    assert why("s8_128x256x64_w64x64x64_i16x8x32_st3", 17, 136, 400, part) is None


def test_rejection_gives_every_part_of_k_a_step_where_they_add_in_memory():
    id_ = "s8_64x128x128_c1x1_pingpong_st6_k4a"
    assert why(id_, 1 << 17, 1 << 12, 512) is None  # it needs no workspace
    assert why(id_, 1, 128, 384) == "K has 3 steps of this template, too few for 4 threadblocks"
    assert why(id_, 1, 128, 384 + 16) is None  # the last part is short
    # two steps for each of the first three, and nothing is left for the fourth
    assert why(id_, 1, 128, 6 * 128) == "K has 6 steps of this template, too few for 4 threadblocks"
    assert why(id_, 1, 128, 6 * 128 + 16) is None


def test_rejection_counts_tiles_along_y_against_the_grid_unless_the_kernel_is_persistent():
    assert why("s8_64x32x64_w32x16x64_i16x8x32_st4", 1, 32 * 32768, 16) is None
    # swapped, tiles of N are along x and those of M along y
    eight = BY_ID["s8_8x64x128_c1x1_warp_specialized_st12_swapped"]
    assert why(eight.id, 1, 1 << 20, 128) is None
    assert why(eight.id, 8 * 65535, 128, 128) is None
    assert why(eight.id, 8 * 65535 + 1, 128, 128) == "needs 65536 tiles along M, a grid has at most 65535"
    assert why("s8_16x128x128_c1x1_cooperative_st8_swapped", 1 << 20, 128, 128) is None
