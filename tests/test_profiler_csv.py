"""What a row of `cutlass_profiler` says: a kernel, a problem, one mean time or the reason why there is none."""

import re

import pytest
from foreign_files import B1, CELLS, DEFAULT, PROFILER, WIDE, profiler_file, read_with

from tilearena.errors import RecordingError
from tilearena.exchange import foreign_rows
from tilearena.exchange.foreign_csv import MalformedRowError
from tilearena.exchange.profiler_csv import MISSING, contents, profiled
from tilearena.records import Status
from tilearena.spec import load_space

PAPER9 = load_space("paper9")


def shape(problem):
    return problem.m, problem.n, problem.k


def refusal(**changes):
    with pytest.raises(MalformedRowError) as caught:
        profiled(CELLS | changes)
    return str(caught.value)


def test_profiler_row_is_a_kernel_a_problem_and_a_time():
    found = profiled(CELLS)
    assert found.template.id == "s8_128x256x64_w64x64x64_i16x8x32_st3"
    assert found.template.label == DEFAULT
    assert (found.status, found.elapsed_ns, found.reason) == (Status.OK, 12_300, "")


def test_profiler_problem_with_column_major_output_is_the_transposed_one():
    assert shape(profiled(CELLS).problem) == (512, 1024, 256)
    assert shape(profiled(CELLS | {"C": "s32:row", "D": "s32:row"}).problem) == (1024, 512, 256)


@pytest.mark.parametrize(("dtype", "bits", "k", "name"), [("s8", 8, 64, ""), ("s4", 4, 128, ""), ("b1", 1, 512, "and")])
def test_profiler_default_is_that_of_the_space(dtype, bits, k, name):
    inst_k = 256 // bits
    operation = f"cutlass_tensorop_i168{inst_k}{name}gemm_{dtype}_128x256_{k}x3_tn_align{128 // bits}"
    sizes = {"cta_k": str(k), "inst_k": str(inst_k), "k": "1024"}
    found = profiled(CELLS | sizes | {"Operation": operation, "A": f"{dtype}:row", "B": f"{dtype}:column"})
    expected = PAPER9.templates(dtype, "and")[PAPER9.default_index(dtype)]
    assert found.template.model_copy(update={"label": expected.label}) == expected


def test_profiler_kernel_of_b1_tells_its_bit_operation():
    assert profiled(CELLS | B1).problem.bit_op == "and"
    xor = B1 | {"Operation": B1["Operation"].replace("and", "xor")}
    assert profiled(CELLS | xor).template.id == "b1xor_128x256x512_w64x64x512_i16x8x256_st3"


@pytest.mark.parametrize(
    ("status", "disposition", "expected"),
    [
        ("success", "passed", Status.OK),
        ("success", "incorrect", Status.WRONG_RESULT),
        ("success", "not_verified", Status.WRONG_RESULT),
        ("success", "failed", Status.LAUNCH_FAILED),
        ("success", "not_run", Status.LAUNCH_FAILED),
        ("not_supported", "not_run", Status.INFEASIBLE),
        ("misaligned_operand", "passed", Status.INFEASIBLE),
        ("internal", "failed", Status.LAUNCH_FAILED),
    ],
)
def test_profiler_row_that_failed_or_was_not_verified_has_a_reason_and_no_time(status, disposition, expected):
    found = profiled(CELLS | {"Status": status, "Disposition": disposition})
    assert found.status is expected
    assert (found.elapsed_ns > 0, bool(found.reason)) == (expected is Status.OK, expected is not Status.OK)
    assert found.reason in ("", f"status {status}", f"disposition {disposition}")


@pytest.mark.parametrize(
    ("column", "cell", "words"),
    [
        ("Provider", "cuBLAS", "Provider is 'cuBLAS'; only CUTLASS"),
        ("OperationKind", "spgemm", "only gemm"),
        ("op_class", "simt", "only tensorop"),
        ("accum", "f32", "only s32"),
        ("split_k_slices", "2", "only 1"),
        ("split_k_mode", "parallel", "only serial"),
        ("batch_count", "3", "only 1"),
        ("beta", "1", "beta is '1'; only 0"),
        ("warps_k", "2", "only 1"),
        ("A", "s8:column", "A is 's8:column'; only s8:row"),
        ("B", "u8:column", "only s8:column"),
        ("C", "f32:column", "only s32:row or s32:column"),
        ("D", "s32:row", "only s32:column"),
        ("m", "", "m is '', not a whole number"),
        ("m", "-8", "not a whole number"),
        ("m", "12", "512 x 12 x 256 (s8) is no problem: Value error, n=12 must be a multiple of 8"),
        ("k", "8", "k=8 must be a multiple of 16"),
        ("n", "0", "no problem: m: Input should be greater than or equal to 1"),
        ("n", "99999999", "no problem: m: Input should be less than or equal to 1048576"),
        ("cta_m", "256", "contradicts the columns"),
        ("stages", "4", "contradicts the columns"),
        ("warps_m", "0", "0 x 4 warps do not divide"),
        ("warps_n", "3", "2 x 3 warps do not divide"),
        ("inst_m", "48", "contradicts the columns"),
        ("Operation", DEFAULT.replace("_tn_", "_nt_"), "is no CUTLASS 2.x tensor-core kernel"),
        ("Operation", DEFAULT.replace("gemm_s8", "gemm_b1"), "contradicts the columns"),
        ("Operation", DEFAULT.replace("align16", "align4"), "is not of alignment 16 (128 bits)"),
        (
            "Operation",
            "cutlass3x_sm90_tensorop_i64x128x32gemm_s8_s8_s32_s32_s32_128x128x128_1x1x1_0_tnt_align16",
            "is no",
        ),
        ("Operation", DEFAULT.replace("i16832", "i16864"), "contradicts the columns"),
        ("Operation", DEFAULT.replace("128x256", f"{'9' * 5000}x256"), "is no CUTLASS 2.x tensor-core kernel"),
        ("Operation", DEFAULT.replace("align16", f"align{'9' * 5000}"), "is no CUTLASS 2.x tensor-core kernel"),
        ("Operation", "\x1b[2J", "Operation '\\x1b[2J' is no"),
        ("Status", "great", "Status is 'great'; use one of success, "),
        ("Disposition", "", "Disposition is ''; use one of passed, "),
        *(
            ("Runtime", cell, "not a time of a launch in ms")
            for cell in ("", "0", "-1", "nan", "inf", "1e999", "1e-9", "1_0")
        ),
        ("Runtime", "3600001", "not a time of a launch in ms"),
    ],
)
def test_profiler_row_that_contradicts_itself_or_is_another_product_is_refused(column, cell, words):
    assert words in refusal(**{column: cell})


@pytest.mark.parametrize(("inst_m", "inst_k"), [("48", "32"), ("16", "0")])
def test_profiler_instruction_that_does_not_divide_the_tile_is_refused(inst_m, inst_k):
    name = DEFAULT.replace("i16832", f"i{inst_m}8{inst_k}")
    said = refusal(Operation=name, inst_m=inst_m, inst_k=inst_k)
    assert f"an instruction of {inst_m} x 8 x {inst_k} does not divide" in said


def test_profiler_stages_that_no_template_has_are_refused():
    name = DEFAULT.replace("64x3", "64x13")
    assert refusal(Operation=name, stages="13") == "stages: Input should be less than or equal to 12"


def test_profiler_file_is_a_grid_of_problems_and_kernels(tmp_path):
    changes = [WIDE, {}, {"m": "64"}, WIDE | {"m": "64", "Disposition": "incorrect"}, WIDE | {"m": "128"}]
    (found,), faults = read_with(contents, profiler_file(tmp_path, *changes), PAPER9)
    assert faults == []
    assert [template.label for template in found.templates] == [WIDE["Operation"], DEFAULT]
    assert (found.space, found.default, found.dtype, found.bit_op) == ("cutlass-profiler", 1, "s8", None)
    assert [shape(p) for p in found.problems] == [(512, 1024, 256), (512, 64, 256), (512, 128, 256)]
    assert found.rows["n"].to_pylist() == [1024, 1024, 64, 64, 128, 128]
    assert found.rows["candidate"].to_pylist() == [0, 1] * 3
    assert found.rows["elapsed_ns"].to_pylist() == [[45_600], [12_300], [], [12_300], [45_600], []]
    assert found.rows["launches"].to_pylist() == [1, 1, 0, 1, 1, 0]
    assert found.rows["status"].to_pylist() == ["ok", "ok", "wrong_result", "ok", "ok", "infeasible"]
    assert found.rows["reason"].to_pylist() == ["", "", "disposition incorrect", "", "", MISSING]


def test_profiler_columns_may_come_in_any_order_with_others_and_without_the_new_ones(tmp_path):
    old = [c for c in PROFILER if c not in ("D", "split_k_mode", "raster_order", "swizzle_size") and "cluster" not in c]
    path = profiler_file(tmp_path, {}, WIDE, columns=["extra", *reversed(old)])
    (found,), faults = read_with(contents, path, PAPER9)
    assert faults == []
    assert found.rows["elapsed_ns"].to_pylist() == [[12_300], [45_600]]


def test_profiler_data_types_are_apart(tmp_path):
    found, _ = read_with(contents, profiler_file(tmp_path, B1, {}, B1 | {"m": "64"}), PAPER9)
    assert [(c.dtype, c.bit_op, len(c.problems)) for c in found] == [("b1", "and", 2), ("s8", None, 1)]


def test_profiler_rows_that_are_there_twice_or_mixed_up_are_left_out(tmp_path):
    xor = B1 | {"Operation": B1["Operation"].replace("and", "xor")}
    other_name = {"Operation": DEFAULT.replace("128x256", "0128x256")}
    path = profiler_file(tmp_path, {}, {"Runtime": "9"}, B1, xor, other_name)
    found, faults = read_with(contents, path, PAPER9)
    assert [c.rows["elapsed_ns"].to_pylist() for c in found] == [[[12_300]], [[12_300]]]
    assert faults == [
        f"line 3: {DEFAULT} on this problem is in line 2, too; that one is taken",
        "line 5: is b1 xor, the rows before it are b1 and; import it from a file of its own",
        f"line 6: {other_name['Operation']} is the same template as {DEFAULT}",
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            [WIDE],
            "has no row of CUTLASS's default for s8, s8_128x256x64_w64x64x64_i16x8x32_st3, to which speedups refer",
        ),
        ([{"Disposition": "not_verified"}], "no row of s8 has a verified time; run the profiler with verification on"),
    ],
)
def test_profiler_file_without_the_default_or_without_a_verified_time_is_refused(tmp_path, changes, words):
    with pytest.raises(RecordingError, match=re.escape(words)):
        read_with(contents, profiler_file(tmp_path, *changes), PAPER9)


def test_profiler_file_without_a_column_is_refused(tmp_path):
    path = profiler_file(tmp_path, {}, columns=[c for c in PROFILER if c not in ("Runtime", "cta_n")])
    with pytest.raises(RecordingError, match="line 1 lacks the column Runtime, cta_n; correct the header"):
        read_with(contents, path, PAPER9)


def test_profiler_grid_that_is_mostly_holes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(foreign_rows, "MAX_CELLS", 3)
    path = profiler_file(tmp_path, {}, WIDE | {"m": "64"})
    with pytest.raises(RecordingError, match="2 problems with 2 templates are more than 3 rows; split it by problems"):
        read_with(contents, path, PAPER9)


@pytest.mark.parametrize("column", ["alpha", "D", "Runtime"])
def test_profiler_column_that_counts_is_not_there_twice(tmp_path, column):
    path = profiler_file(tmp_path, {}, columns=[*PROFILER, column])
    with pytest.raises(RecordingError, match=f"line 1 has twice the column {column}; correct the header"):
        read_with(contents, path, PAPER9)
