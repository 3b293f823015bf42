"""What lies below some folders cannot be read by a process that gave up its reach; all else can."""

import os
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


@pytest.fixture
def tree(tmp_path):
    """Two forbidden folders, and files beside them and beside what leads to them."""
    for name in ("a/secret/deep/f", "a/open/f", "a/f", "b/secret/f", "b/f", "c/f"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "c" / "link").symlink_to(tmp_path / "a" / "secret" / "deep" / "f")
    (tmp_path / "a" / "way").symlink_to(tmp_path / "b" / "secret")
    return tmp_path


def outcomes(tree, *statements):
    """What each statement prints in a process that may not reach below the two folders: ``yes`` or an error's name."""
    lines = [
        "import os, pathlib, shutil, subprocess",
        "from concurrent.futures import ThreadPoolExecutor",
        "from tilearena.out_of_reach import deny",
        f"os.chdir({str(tree)!r})",
        "print(deny([pathlib.Path('a/secret'), pathlib.Path('b/secret')]))",
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
def test_what_lies_beside_can_be_read_and_written(tree):
    readable = [f"open({path!r}).read()" for path in ("a/open/f", "a/f", "b/f", "c/f", "/proc/self/status")]
    writable = ["open('a/open/new', 'w').write('x')", "open('c/f', 'w').write('x')", "open(os.devnull, 'w').write('x')"]
    assert outcomes(tree, *readable, *writable, "import colorsys", "os.listdir('a/secret')") == ["yes"] * 10


@landlock
def test_forbidden_folder_can_be_neither_changed_nor_moved_to_where_it_could_be_read(tree):
    tries = (
        "open('a/secret/deep/f', 'w')",
        "open('a/secret/new', 'w')",
        "os.unlink('a/secret/deep/f')",
        "os.truncate('a/secret/deep/f', 0)",
        "os.rename('a/secret/deep/f', 'c/moved')",
        "os.rename('a/secret', 'c/moved')",
        "os.rename('a', 'moved')",
        "os.link('a/secret/deep/f', 'c/linked')",
        "shutil.copy('a/secret/deep/f', 'c/copied')",
    )
    assert not set(outcomes(tree, *tries)) - {"PermissionError", "OSError"}
    assert (tree / "a" / "secret" / "deep" / "f").read_text() == "a/secret/deep/f"
    assert sorted(os.listdir(tree / "c")) == ["f", "link"]


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
