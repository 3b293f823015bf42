"""The build cache, with a fake compiler that counts its calls."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tilearena import build, dataset, root, toolchain
from tilearena.build import BuildFailure
from tilearena.errors import BuildError
from tilearena.kernel_source import kernels_of, table_source
from tilearena.spec import load_space

SPACE = load_space("paper9")
S8 = SPACE.templates("s8")


@pytest.fixture
def no_nvcc(tmp_path, monkeypatch):
    """Neither a system's nvcc nor the wheels'."""
    monkeypatch.setenv("PATH", str(tmp_path / "hidden"))
    monkeypatch.setattr(toolchain, "_wheel_nvcc", lambda: None)


def objects(cache):
    return sorted(path.name for path in (cache / "objects").iterdir())


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
    assert [id_[-3:] for id_ in unit.ids] == ["k2a", "k4a"]
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


def test_build_compiles_once_and_links_once(nvcc, tmp_path):
    seen = []
    path, library = build.build("lib", S8[:2], 90, cache=tmp_path / "cache", progress=lambda *a: seen.append(a))
    assert nvcc.calls() == sorted([S8[0].id, S8[1].id, "harness", "table", "link"])
    assert [(done, total) for done, total, _ in seen] == [(1, 3), (2, 3), (3, 3)]
    assert {label for _, _, label in seen} == {S8[0].id, S8[1].id, "harness"}
    assert library.failures == ()
    assert library.versions["nvcc"] == "13.0.88"
    assert path == tmp_path / "cache" / library.file
    assert build.build("lib", S8[:2], 90, cache=tmp_path / "cache") == (path, library)
    assert nvcc.calls() == []


def test_build_compiles_only_what_is_new(nvcc, tmp_path):
    first, _ = build.build("lib", S8[:2], 90, cache=tmp_path)
    nvcc.calls()
    second, _ = build.build("lib", S8[:3], 90, cache=tmp_path)
    assert nvcc.calls() == sorted([S8[2].id, "table", "link"])
    assert first != second
    assert first.is_file()


def test_template_of_several_in_a_unit_that_does_not_compile_takes_all_of_it_along(nvcc, tmp_path, monkeypatch):
    templates = load_space("sm80-wide").templates("s8")[:4]
    assert [len(unit.ids) for unit in kernels_of(templates)] == [1, 3]
    monkeypatch.setenv("FAKE_ERROR", f"{templates[1].id}*")
    _, library = build.build("lib", templates, 90, cache=tmp_path)
    assert [failure.id for failure in library.failures] == [t.id for t in templates[1:]]


@pytest.mark.parametrize("name", ["workspace.cuh", "serial.cuh", "sm90.cuh"])
def test_headers_of_wide_kernels_do_not_change_paper9(nvcc, tmp_path, monkeypatch, name):
    wide = load_space("h200-all").templates("s8")
    copy = tmp_path / "sources"
    shutil.copytree(build.kernel_sources(), copy)
    before = {space: build.sources_hash(kernels_of(templates)) for space, templates in (("nine", S8), ("wide", wide))}
    (copy / name).write_text((copy / name).read_text() + "// changed\n")
    monkeypatch.setattr(build, "kernel_sources", lambda: copy)
    assert build.sources_hash(kernels_of(S8)) == before["nine"]
    assert build.sources_hash(kernels_of(wide)) != before["wide"]


@pytest.mark.parametrize("change", ["flags", "arch", "header", "version"])
def test_key_changes_with_whatever_changes_the_object(nvcc, tmp_path, monkeypatch, change):
    first, _ = build.build("lib", S8[:1], 90, cache=tmp_path / "cache")
    nvcc.calls()
    arch = 90
    if change == "flags":
        monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-lineinfo"))
    elif change == "arch":
        arch = 80
    elif change == "version":
        monkeypatch.setenv("FAKE_VERSION", "13.1.1")
    else:
        copy = tmp_path / "sources"
        copy.mkdir()
        for source in build.kernel_sources().glob("*.*"):
            (copy / source.name).write_text(source.read_text())
        (copy / "gemm.cuh").write_text((copy / "gemm.cuh").read_text() + "// changed\n")
        monkeypatch.setattr(build, "kernel_sources", lambda: copy)
    second, _ = build.build("lib", S8[:1], arch, cache=tmp_path / "cache")
    assert nvcc.calls() == sorted([S8[0].id, "harness", "table", "link"])
    assert first.name != second.name


def test_key_does_not_change_with_the_cache_folder(nvcc, tmp_path):
    (first, _), (second, _) = (build.build("lib", S8[:1], 90, cache=tmp_path / name) for name in ("a", "b"))
    assert first.name == second.name
    assert objects(tmp_path / "a") == objects(tmp_path / "b")


def test_cache_folder_is_the_one_of_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEARENA_CACHE", str(tmp_path))
    assert build.cache_folder() == tmp_path


def test_template_that_does_not_compile_is_a_failure_and_the_rest_link(nvcc, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_ERROR", S8[1].id)
    path, library = build.build("lib", S8[:3], 90, cache=tmp_path)
    (failure,) = library.failures
    assert failure.id == S8[1].id
    assert failure.reason.endswith("error: warp does not divide")
    table = next(
        p for p in path.read_text().split() if p.endswith(".o") and "ta_entry_count = 2" in Path(p).read_text()
    )
    assert re.findall(r'\{"(\w+)"', Path(table).read_text()) == [S8[0].id, S8[2].id]
    nvcc.calls()
    assert build.build("lib", S8[:3], 90, cache=tmp_path) == (path, library)
    assert nvcc.calls() == []


def test_build_without_one_template_that_compiles_says_why(nvcc, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_ERROR", "s8_*")
    with pytest.raises(BuildError, match=r"^lib: no template compiles for sm_90; .*warp does not divide$"):
        build.build("lib", S8[:2], 90, cache=tmp_path)


def test_harness_that_does_not_compile_stops_the_build(nvcc, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_ERROR", "harness")
    with pytest.raises(BuildError, match=r"the harness does not compile for sm_90: .*warp does not divide"):
        build.build("lib", S8[:2], 90, cache=tmp_path)


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("FAKE_KILL", "nvcc was killed by signal 9"),
        ("FAKE_STAGE", "died due to signal 9"),
        ("FAKE_FATAL", "Could not open output file"),
        ("FAKE_FULL", "No space left on device"),
    ],
)
def test_compiler_that_was_stopped_is_asked_again(nvcc, tmp_path, monkeypatch, mode, reason):
    monkeypatch.setenv(mode, S8[0].id)
    _, library = build.build("lib", S8[:2], 90, cache=tmp_path)
    assert [f.id for f in library.failures] == [S8[0].id]
    assert reason in library.failures[0].reason
    monkeypatch.delenv(mode)
    nvcc.calls()
    _, library = build.build("lib", S8[:2], 90, cache=tmp_path)
    assert library.failures == ()
    assert nvcc.calls() == sorted([S8[0].id, "table", "link"])


def test_build_leaves_no_scratch_files(nvcc, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_ERROR", S8[0].id)
    monkeypatch.setenv("FAKE_KILL", S8[1].id)
    build.build("lib", S8[:3], 90, cache=tmp_path / "cache")
    names = [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    objects_ = [name for name in names if re.fullmatch(r"[0-9a-f]{20}\.o", name)]
    failed = [name for name in names if re.fullmatch(r"[0-9a-f]{20}\.failed\.json", name)]
    libraries = [name for name in names if re.fullmatch(r"lib-[0-9a-f]{20}\.so", name)]
    assert (len(objects_), len(failed), len(libraries)) == (3, 1, 1)
    assert {*names} - {*objects_, *failed, *libraries} <= {"lib.json", "lib.lock"}


def test_damaged_cache_files_are_made_again(nvcc, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_ERROR", S8[0].id)
    _, library = build.build("lib", S8[:2], 90, cache=tmp_path)
    failed = next((tmp_path / "objects").glob("*.failed.json"))
    manifest = tmp_path / "sm_90" / "lib.json"
    for text in ("", "{", "[]", '{"id": 3}'):
        failed.write_text(text)
        manifest.write_text(text)
        assert build.build("lib", S8[:2], 90, cache=tmp_path)[1] == library
        assert BuildFailure.model_validate_json(failed.read_text()) == library.failures[0]
        assert json.loads(manifest.read_text())["failures"] == [library.failures[0].model_dump()]


def test_two_processes_compile_each_unit_once(nvcc, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_SLEEP", "0.3")
    monkeypatch.setenv("TILEARENA_CACHE", str(tmp_path / "cache"))
    script = (
        "from tilearena.build import build\nfrom tilearena.spec import load_space\n"
        "print(build('lib', load_space('paper9').templates('s8')[:2], 90)[0])"
    )
    children = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    first, second = (child.communicate(timeout=60)[0] for child in children)
    assert [child.returncode for child in children] == [0, 0]
    assert first == second
    assert nvcc.calls() == sorted([S8[0].id, S8[1].id, "harness", "table", "link"])


def test_build_without_nvcc_says_how_to_install_it(no_nvcc, tmp_path):
    with pytest.raises(BuildError) as caught:
        build.build("lib", S8[:1], 90, cache=tmp_path)
    assert str(caught.value) == f"no nvcc on PATH nor in the Python environment; run: {toolchain.INSTALL}"


def test_library_that_was_built_elsewhere_is_used_without_nvcc(nvcc, tmp_path, request):
    built = build.build("lib", S8[:2], 90, cache=tmp_path / "cache")
    request.getfixturevalue("no_nvcc")
    assert build.build("lib", S8[:2], 90, cache=tmp_path / "cache") == built
    for other in (
        lambda: build.build("lib", S8[:1], 90, cache=tmp_path / "cache"),
        lambda: build.build("lib", S8[:2], 80, cache=tmp_path / "cache"),
    ):
        with pytest.raises(BuildError, match="no nvcc"):
            other()
    (tmp_path / "cache" / "sm_90" / "lib.json").write_text("{")
    with pytest.raises(BuildError, match="no nvcc"):
        build.build("lib", S8[:2], 90, cache=tmp_path / "cache")


def test_library_that_was_built_elsewhere_is_not_used_when_the_sources_changed(nvcc, tmp_path, monkeypatch, request):
    build.build("lib", S8[:2], 90, cache=tmp_path / "cache")
    request.getfixturevalue("no_nvcc")
    monkeypatch.setattr(build, "_headers_hash", lambda: "another")
    with pytest.raises(BuildError, match="no nvcc"):
        build.build("lib", S8[:2], 90, cache=tmp_path / "cache")


def test_missing_host_compiler_is_named(nvcc, tmp_path, monkeypatch):
    (tmp_path / "bin" / "g++").unlink()
    (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(BuildError, match=r"^no g\+\+ on PATH, and nvcc compiles host code with it; install it"):
        build.build("lib", S8[:1], 90, cache=tmp_path / "cache")


def test_interrupted_build_begins_no_more_compilers(nvcc, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_SLEEP", "0.3")

    def interrupt(done, total, label):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build.build("lib", S8[:5], 90, cache=tmp_path, jobs=1, progress=interrupt)
    assert len(nvcc.calls()) <= 2  # of six: the one that is done, and the next, which may have begun
