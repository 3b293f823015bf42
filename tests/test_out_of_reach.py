"""A process that gave up its reach reads nothing below some folders, and writes below its own alone."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from faking import FOLDS, PLUGIN, TABLE

import tilearena
from tilearena import evaluate, out_of_reach, predict
from tilearena.evaluate import Subject, evaluate_each
from tilearena.out_of_reach import NOTICE, places, version
from tilearena.picker.model import MODELS
from tilearena.predict import cross_fit

CHECKOUT = Path(__file__).resolve().parents[1]
RECORDED = "baselines/recordings/nvidia-h200/quick/gemm.paper9.s8.cold.parquet"
landlock = pytest.mark.skipif(not version(), reason="this system has no Landlock")
whole = pytest.mark.skipif(version() < 3, reason="this system's Landlock does not know all kinds of writing")


@pytest.fixture
def tree(tmp_path):
    """Two forbidden folders, files beside them and beside what leads to them, and the folder ``own``."""
    for name in ("a/secret/deep/f", "a/open/f", "a/f", "b/secret/f", "b/f", "c/f", "own/f"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "c" / "empty").mkdir()
    (tmp_path / "c" / "link").symlink_to(tmp_path / "a" / "secret" / "deep" / "f")
    (tmp_path / "a" / "way").symlink_to(tmp_path / "b" / "secret")
    return tmp_path


def outcomes(tree, *statements):
    """What each statement gives in a process that is held to these folders: ``yes`` or an error's name."""
    lines = [
        "import os, pathlib, shutil, socket, stat, subprocess",
        "from concurrent.futures import ThreadPoolExecutor",
        "from tilearena.out_of_reach import deny",
        f"os.chdir({str(tree)!r})",
        "print(deny([pathlib.Path('a/secret'), pathlib.Path('b/secret')], pathlib.Path('own')))",
    ]
    for statement in statements:
        lines += ["try:", f"    {statement}", "    print('yes')", "except Exception as e: print(type(e).__name__)"]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, *found = done.stdout.split()
    assert first == "True"
    return found


@landlock
@pytest.mark.parametrize("path", ["a/secret/deep/f", "b/secret/f", "c/link", "a/way/f", "c/../a/secret/deep/f"])
def test_forbidden_file_cannot_be_read_by_whatever_path(tree, path):
    assert outcomes(tree, f"open({path!r})", f"os.open({path!r}, os.O_RDONLY)") == ["PermissionError"] * 2


@landlock
def test_what_lies_beside_can_be_read(tree):
    readable = [f"open({path!r}).read()" for path in ("a/open/f", "a/f", "b/f", "c/f", "own/f", "/proc/self/status")]
    assert outcomes(tree, *readable, "import colorsys", "os.listdir('a/secret')") == ["yes"] * 8


@whole
def test_its_own_folder_can_be_written_and_what_swallows_all(tree):
    tries = (
        "open('own/new', 'w').write('x')",
        "os.makedirs('own/deep/er')",
        "os.rename('own/new', 'own/deep/er/new')",
        "os.truncate('own/f', 0)",
        "shutil.rmtree('own/deep')",
        "open(os.devnull, 'w').write('x')",
    )
    assert outcomes(tree, *tries) == ["yes"] * len(tries)
    refused = ("os.mknod('own/device', stat.S_IFCHR, os.makedev(1, 3))", "open('/dev/shm/tilearena-test', 'w')")
    assert outcomes(tree, *refused) == ["PermissionError"] * 2
    assert (os.listdir(tree / "own"), (tree / "own" / "f").read_text()) == (["f"], "")


@whole
def test_nothing_else_can_be_changed(tree):
    """Neither what it may read nor what it may not."""
    tree.joinpath("f").write_text("f")
    before = contents(tree)
    tries = [
        statement
        for folder in ("a/open", "a/secret/deep", "c", ".")
        for statement in (
            f"open('{folder}/f', 'a')",
            f"open('{folder}/new', 'w')",
            f"os.mkdir('{folder}/new')",
            f"os.symlink('f', '{folder}/new')",
            f"os.mkfifo('{folder}/new')",
            f"os.mknod('{folder}/new')",
            f"os.mknod('{folder}/new', stat.S_IFCHR, os.makedev(1, 3))",
            f"os.mknod('{folder}/new', stat.S_IFBLK, os.makedev(1, 0))",
            f"socket.socket(socket.AF_UNIX).bind('{folder}/new')",
            f"os.unlink('{folder}/f')",
            f"os.truncate('{folder}/f', 0)",
            f"os.rename('{folder}/f', 'own/moved')",
            f"os.link('{folder}/f', 'own/linked')",
            f"os.rename('own/f', '{folder}/f')",
        )
    ]
    found = outcomes(
        tree, *tries, "os.rename('a', 'own/moved')", "os.rename('c/empty', 'own/e')", "os.rmdir('c/empty')"
    )
    assert not set(found) - {"PermissionError", "OSError"}
    outcomes(tree, "shutil.rmtree('a', ignore_errors=True)")
    assert contents(tree) == before


def contents(tree):
    """Of all files; folders have none."""
    return {path: path.read_bytes() if path.is_file() else None for path in tree.rglob("*")}


@landlock
def test_with_nothing_forbidden_all_can_be_read_and_only_its_own_folder_written(tree):
    lines = (
        "import os, pathlib; from tilearena.out_of_reach import deny",
        f"os.chdir({str(tree)!r}); assert deny([], pathlib.Path('own'))",
        "open('a/secret/deep/f').read(); open('own/new', 'w')",
        "open('c/f', 'w')",
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True)
    assert re.fullmatch(r"PermissionError: .* 'c/f'", done.stderr.splitlines()[-1])
    assert (tree / "own" / "new").exists()


@landlock
def test_processes_and_threads_that_are_started_cannot_read_either(tree):
    in_thread = "ThreadPoolExecutor(1).submit(open, 'b/secret/f').result()"
    in_process = [
        f"subprocess.run(['cat', {path!r}], check=True, stdout=-3, stderr=-3)" for path in ("b/secret/f", "b/f")
    ]
    assert outcomes(tree, in_thread, *in_process) == ["PermissionError", "CalledProcessError", "yes"]


def test_places_are_recordings_submissions_and_history_of_the_root_and_of_the_checkout(tmp_path):
    for name in ("baselines/recordings", "leaderboard/submissions", "docs"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "results" / "leaderboard" / "submissions").mkdir(parents=True)
    (tmp_path / "results" / "benchmarks").mkdir()
    own = {"baselines/recordings", "leaderboard/submissions", "results/leaderboard/submissions"}
    assert set(places(tmp_path)) - set(places()) == {tmp_path / path for path in own}
    assert all(path.is_relative_to(Path(out_of_reach.__file__).resolve().parents[1]) for path in places())
    assert MODELS.resolve() in places()


def plugin(path, error):
    return f"""
        import pyarrow.parquet as pq
        for read in (open, pq.read_table, lambda path: os.open(path, os.O_RDONLY)):
            try:
                read({path!r})
                raise AssertionError("it was read")
            except {error}:
                pass
        return np.zeros((P, T))"""


@landlock
def test_plugin_that_reads_a_recording_of_the_root_is_denied(arena, install_fake):
    path = next(arena.root.glob("baselines/**/*.parquet"))
    install_fake(PLUGIN.format(body=plugin(str(path), "PermissionError")))
    prediction = cross_fit("fake", FOLDS, TABLE, roots=[arena.root])
    assert (prediction.reason, prediction.isolated) == ("", True)
    assert "it was read" in cross_fit("fake", FOLDS, TABLE).reason  # of another root


@landlock
def test_plugin_that_reads_a_recording_of_the_checkout_is_denied(install_fake, monkeypatch):
    """Where tilearena runs from the checkout, as an editable installation does."""
    monkeypatch.setattr(tilearena, "__file__", str(CHECKOUT / "suite" / "__init__.py"))
    install_fake(PLUGIN.format(body=plugin(str(CHECKOUT / RECORDED), "PermissionError")))
    assert cross_fit("fake", FOLDS, TABLE).reason == ""


@landlock
def test_plugin_that_asks_the_picker_is_denied(install_fake):
    """It was trained on all problems that are not locked."""
    body = """
        import tilearena
        try:
            tilearena.pick(16, 4096, 4096, "s8")
        except tilearena.errors.SpecError as error:
            assert "PermissionError" in str(error)
            return np.zeros((P, T))"""
    install_fake(PLUGIN.format(body=body))
    assert cross_fit("fake", FOLDS, TABLE).reason == ""


@landlock
def test_no_thread_of_a_plugins_process_is_free_of_it(install_fake, tmp_path):
    """Landlock holds the thread that asks for it and what it starts: one that were there before could do all."""
    (tmp_path / "kept").write_text("x")
    body = f"""
        import threading
        heard = []
        def reaches(*_):
            try:
                heard.append(open({str(tmp_path / "kept")!r}, "a"))
            except PermissionError as error:
                heard.append(error)
            time.sleep(100)
        if os.killpg.__name__ == "reaches":  # asked a second time
            return np.zeros((P, T))
        os.killpg = reaches
        for fd in map(int, os.listdir("/proc/self/fd")):
            try:
                os.write(os.open(f"/proc/self/fd/{{fd}}", os.O_WRONLY | os.O_NONBLOCK), b"x")
            except OSError:
                pass
        end = time.monotonic() + 20
        while not heard and time.monotonic() < end:
            time.sleep(0.01)
        assert [type(one) for one in heard] == [PermissionError]
        return np.zeros((P, T))"""
    install_fake(PLUGIN.format(body=body))
    assert cross_fit("fake", FOLDS, TABLE).reason == ""


@landlock
def test_plugin_writes_in_its_folder_alone(install_fake, tmp_path):
    """One that removed all that it could reach once emptied ``/etc``."""
    for name in ("kept", "home"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x")
    body = f"""
        import pathlib, shutil, tempfile
        for folder in {[str(tmp_path / "kept"), str(tmp_path / "home")]}:
            shutil.rmtree(folder, ignore_errors=True)
            try:
                open(folder + "/file", "a")
                raise AssertionError("it was opened for writing")
            except PermissionError:
                pass
        with tempfile.NamedTemporaryFile("w") as file, open("beside", "w") as beside:
            assert pathlib.Path(file.name).parent == pathlib.Path.cwd()
        return np.zeros((P, T))"""
    install_fake(PLUGIN.format(body=body))
    assert cross_fit("fake", FOLDS, TABLE).reason == ""
    assert [(tmp_path / name / "file").read_text() for name in ("kept", "home")] == ["x", "x"]


@landlock
@pytest.mark.parametrize("folder", ["results/leaderboard/submissions", "leaderboard/submissions"])
def test_plugin_that_reads_results_of_the_root_is_denied(install_fake, tmp_path, folder):
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "oracle.parquet").write_bytes(b"PAR1")
    body = f"""
        try:
            open({str(tmp_path / folder / "oracle.parquet")!r})
        except PermissionError:
            return np.zeros((P, T))"""
    install_fake(PLUGIN.format(body=body))
    assert cross_fit("fake", FOLDS, TABLE, roots=[tmp_path]).reason == ""


def test_plugin_finds_no_recording_by_the_ordinary_way(install_fake, monkeypatch):
    """With Landlock or without."""
    monkeypatch.setenv("TILEARENA_ROOT", str(CHECKOUT))
    monkeypatch.chdir(CHECKOUT)
    body = """
        from tilearena.errors import RecordingError
        from tilearena.root import find_root, load, recorded
        assert recorded(find_root()) == []
        try:
            load(find_root(), "nvidia-h200", "quick", "paper9", "s8", "cold")
        except RecordingError as error:
            assert "recorded devices: none" in str(error)
            return np.zeros((P, T))"""
    install_fake(PLUGIN.format(body=body))
    assert cross_fit("fake", FOLDS, TABLE).reason == ""


def test_result_says_where_recordings_were_within_reach(arena, monkeypatch, capsys):
    subject = Subject("lowbit-random", "paper9", "s8", "cold", "synthetic-device", "random")
    ((scored,), _) = evaluate_each(arena.root, [subject], ["constant"])
    assert (scored.isolated, scored.result().isolated) == (version() > 0, version() > 0)
    monkeypatch.setattr(predict.out_of_reach, "version", lambda: 0)
    capsys.readouterr()
    ((scored,), _) = evaluate_each(arena.root, [subject], ["constant"])
    assert (scored.isolated, scored.result().isolated) == (False, False)
    assert capsys.readouterr().err.splitlines()[-1] == f"tilearena: {NOTICE}"
    assert evaluate.NOTICE is NOTICE
