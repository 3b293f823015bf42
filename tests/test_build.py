"""The build cache, with a fake compiler that counts its calls."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tilearena import build, toolchain
from tilearena.build import BuildFailure
from tilearena.errors import BuildError
from tilearena.kernel_source import kernels_of
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


def test_wgmma_for_another_architecture_is_refused_without_the_compiler(nvcc, tmp_path):
    native = load_space("sm90-native").templates("s8")[:3]
    _, library = build.build("lib", native, 80, cache=tmp_path)
    reason = "wgmma exists on sm_90 alone"
    assert library.failures == tuple(BuildFailure(id=template.id, reason=reason) for template in native[1:])
    assert nvcc.calls() == sorted([native[0].id, "harness", "table", "link"])


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
