"""Bad input on the command line: one sentence that names the culprit, a non-zero exit, and other results kept."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tilearena import dataset
from tilearena.cli_options import console

QUICK = "baselines/recordings/nvidia-h200/quick"
SPEC = """
name: mine
version: 1
dtypes: [s8]
problems:
  - list: [[1, 64, 64]]
"""


@pytest.fixture
def refusal(run):
    """Runs a command that must fail: its one sentence."""

    def _refusal(*arguments):
        code, out, err = run(*arguments)
        assert (code, out) == (2, "")
        err = err.lstrip("\n")  # a progress bar that vanished leaves an empty line
        assert err.startswith("tilearena: ")
        assert err.count("\n") == 1
        return err

    return _refusal


@pytest.fixture
def data(tmp_path, checkout):
    """A root with the recording of quick, s8, cold alone."""
    folder = tmp_path / "data" / QUICK
    folder.mkdir(parents=True)
    shutil.copy(checkout / QUICK / "gemm.paper9.s8.cold.parquet", folder)
    return tmp_path / "data"


def assert_one_sentence(done, sentence):
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(f"tilearena: {sentence}", done.stderr.strip()), done.stderr


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (("[1, 64, 64]", "[1, 64, 60]"), "k=60, which is not a multiple of 16"),
        (("[1, 64, 64]", "[1, 63, 64]"), "n=63, which is not a multiple of 8"),
        (("dtypes: [s8]", "dtypes: [f64]"), "dtypes"),
        (("dtypes: [s8]", "dtypes: [s8]\ncolour: red"), "colour"),
        (("- list: [[1, 64, 64]]", "- list: []"), "list"),
        (("[1, 64, 64]", "[1000000, 1000000, 1000000]"), "shrink it or raise limits"),
        (("dtypes: [s8]", "dtypes: [s8"), ""),
    ],
)
def test_bad_spec_is_named_with_file_and_line(refusal, tmp_path, change, key):
    path = tmp_path / "mine.yaml"
    path.write_text(SPEC.replace(*change))
    message = refusal("build", path, "--arch", "80")
    assert re.search(rf"{re.escape(str(path))} line [3-6]: ", message)
    assert key in message


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        (
            "--spec",
            "nope",
            "no workload named 'nope'; use anchors, lowbit-full, lowbit-random, networks, quick, or a path that ends "
            "in .yaml",
        ),
        (
            "--space",
            "nope",
            "no space named 'nope'; use h200-all, paper9, sm80-wide, sm90-native, or a path that ends in .yaml",
        ),
        ("--dtype", "f16", "--dtype 'f16' is unknown; choose from s8, s4, b1"),
        ("--protocol", "warm", "--protocol 'warm' is unknown; choose from cold, hot"),
        ("--split", "rows", "--split 'rows' is unknown; choose from random, models"),
        ("--split", "models", "split 'models' tests the spec 'networks', not 'quick'; use --split random"),
        ("--predictor", "nobody", "--predictor 'nobody' is unknown; choose from "),
        ("--device", "abacus", "abacus/quick/gemm.paper9.s8.cold.parquet: no such recording; "),
        (
            "--device",
            "nvidia-h200/../nvidia-h200",
            "'nvidia-h200/../nvidia-h200' names no recording; use up to 64 letters",
        ),
        ("--device", "", "'' names no recording"),
        ("--root", "/no/such/folder", "/no/such/folder: no such folder; give --root or TILEARENA_ROOT an existing one"),
    ],
)
def test_unknown_value_is_named(refusal, option, value, sentence):
    given = {"--spec": "quick", "--device": "nvidia-h200", "--predictor": "constant"} | {option: value}
    assert sentence in refusal("score", *(part for pair in given.items() for part in pair))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["score", "--spec", "quick"], "Missing option '--device'"),
        (["score", "--spec", "quick", "--device", "nvidia-h200", "--seed", "-1"], "Invalid value for '--seed'"),
        (
            ["score", "--spec", "quick", "--device", "nvidia-h200", "--memory-limit", "inf"],
            "Invalid value for '--memory-limit'",
        ),
        (
            ["score", "--spec", "quick", "--device", "nvidia-h200", "--time-limit", "0"],
            "Invalid value for '--time-limit'",
        ),
        (
            ["submit", "--spec", "quick", "--device", "nvidia-h200", "--submitter", "me", "--seed", "1"],
            "No such option",
        ),
        (["board", "--port", "65536"], "Invalid value for '--port'"),
        (["measure", "quick", "--gpu", "-1"], "Invalid value for '--gpu'"),
        (["build", "quick", "--arch", "80", "--jobs", "0"], "Invalid value for '--jobs'"),
        (["build", "quick", "--arch", "hopper"], "Invalid value for '--arch'"),
        (["cook"], "No such command 'cook'"),
    ],
)
def test_wrong_usage_names_the_option(run, arguments, said):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


def test_unknown_arch_is_refused(refusal):
    assert "--arch 75 is unknown; choose from 80, 86, 89, 90" in refusal("build", "quick", "--arch", "75")


def test_workload_of_a_recorded_name_and_another_content_is_refused(refusal, arena, tmp_path):
    path = tmp_path / "other.yaml"
    path.write_text(SPEC.replace("mine", "lowbit-random"))
    message = refusal("score", "--spec", path, "--device", "synthetic-device", "--root", arena.root)
    assert "lowbit-random (synthetic-device, s8, cold) is of another workload 'lowbit-random'" in message
    assert message.endswith("record it again, or use the version that was recorded\n")


def test_truncated_recording_is_refused(refusal, data):
    path = data / QUICK / "gemm.paper9.s8.cold.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    message = refusal("score", "--spec", "quick", "--device", "nvidia-h200", "--root", data)
    assert message.startswith(f"tilearena: {path}: not a readable Parquet file")


def test_recording_of_another_schema_version_is_refused(refusal, data):
    path = data / QUICK / "gemm.paper9.s8.cold.parquet"
    table = pq.read_table(path)
    header = json.loads(pq.read_metadata(path).metadata[dataset.METADATA_KEY]) | {"schema_version": 3}
    pq.write_table(table.replace_schema_metadata({dataset.METADATA_KEY: json.dumps(header).encode()}), path)
    message = refusal("bench", "quick", "--replay", "--predictor", "constant", "--root", data, "--out", data / "out")
    assert message == f"tilearena: {path}: schema version 3, this tilearena reads 2; update tilearena\n"


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("raise ValueError('no such tile')", "no such tile"),
        ("return np.full((len(problems), len(task.templates)), np.nan)", "no problem has a first pick that runs"),
        ("return np.zeros((1, 1))", "predictor 'bad'"),
        ("import time; time.sleep(600)", "predictor 'bad' took longer than 20 s and was stopped"),
    ],
    ids=["raises", "nan", "shape", "forever"],
)
def test_bad_predictor_is_listed_as_failed_and_the_others_are_kept(run, third_party, body, sentence):
    third_party("bad", body)
    asked = ("--dtype", "s8", "--predictor", "bad", "--predictor", "constant")
    # generous, since the other one must end in time on a busy machine too
    asked += ("--time-limit", "20" if "sleep" in body else "120")
    code, out, err = run("score", "--spec", "quick", "--device", "nvidia-h200", *asked, "--json")
    bad, constant = json.loads(out)
    assert code == 1
    assert (bad["status"], bad["n_failed"], constant["status"]) == ("failed", 42, "ok")
    assert sentence in bad["reason"]
    assert err.strip() == f"tilearena: bad on quick s8 cold: {bad['reason']}"


def test_measure_without_a_gpu_is_one_sentence(child, tmp_path):
    assert_one_sentence(child("measure", "quick"), "no GPU.*")
    assert_one_sentence(child("build", "quick", TILEARENA_CACHE=tmp_path), "no GPU.*")
    asked = ("--spec", "quick", "--device", "nvidia-h200", "--dtype", "s8", "--predictor", "default")
    assert_one_sentence(child("search", *asked, "--live", "2"), "no GPU.*; with --replay the samples are .*")


def test_build_without_nvcc_says_how_to_install_it(child, tmp_path):
    (tmp_path / "nvidia").mkdir()
    (tmp_path / "nvidia" / "__init__.py").touch()
    hidden = {"PATH": tmp_path, "PYTHONPATH": tmp_path, "TILEARENA_CACHE": tmp_path / "cache"}
    done = child("build", "quick", "--arch", "80", "--dtype", "s8", **hidden)
    assert_one_sentence(
        done, r"no nvcc .*; run: pip install 'tilearena\[cuda\]' && pip install --no-deps nvidia-cutlass"
    )


def test_user_error_has_no_traceback_in_a_process_of_its_own(child):
    assert_one_sentence(child("score", "--spec", "quick", "--device", "abacus"), ".*no such recording.*")


def test_brackets_of_a_name_are_no_markup(run, refusal, tmp_path, checkout):
    path = tmp_path / "[" / "red]:smile:.yaml"
    path.parent.mkdir()
    shutil.copy(checkout / "specs" / "workloads" / "quick.yaml", path)
    code, out, _ = run("score", "--spec", path, "--device", "nvidia-h200", "--dtype", "s8", "--predictor", "constant")
    assert code == 0
    assert "[/red]:smile:.yaml" in out
    assert "'n[/red]' names no recording" in refusal(
        "bench", "quick", "--replay", "--device", "n[/red]", "--out", tmp_path
    )


def test_table_is_printed_without_standard_output(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    console().print("anything")


def test_line_breaks_and_escapes_of_a_name_do_not_reach_the_terminal(refusal, tmp_path):
    assert "a b\\x1b[31m: no such folder" in refusal(
        "score", "--spec", "quick", "--device", "x", "--root", "a\nb\x1b[31m"
    )


@pytest.mark.parametrize(
    "verb", [["submit", "--submitter", "me", "--spec"], ["bench", "--replay"]], ids=["submit", "bench"]
)
def test_output_that_cannot_be_written_is_refused_before_the_work(refusal, tmp_path, verb):
    (tmp_path / "leaderboard").touch()
    # the device has no recordings, which would be the next thing to be noticed
    message = refusal(*verb, "quick", "--device", "abacus", "--out", tmp_path)
    assert f"{tmp_path}/leaderboard/submissions: cannot be written (" in message


@pytest.mark.parametrize("submitter", ["", "x" * 201, "a\x1b[31m", "a\u202eb"])
def test_submitter_that_cannot_be_shown_is_refused_before_the_work(refusal, tmp_path, submitter):
    verb = ("submit", "--spec", "quick", "--device", "abacus", "--out", tmp_path, "--submitter", submitter)
    assert refusal(*verb).startswith("tilearena: the submitter '")


def ended(pid):
    """Also of an orphan that nobody reaps, as in a container without an init."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except ProcessLookupError:
        return True
    except FileNotFoundError:  # no /proc here, or it ended just now
        return False


def wait_until(true):
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 130), (signal.SIGKILL, -9)])
def test_predictor_ends_with_the_command_however_that_ends(third_party, tmp_path, monkeypatch, checkout, number, code):
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))

    def noted():
        """What the predictor wrote into its own folder, as long as that is there."""
        return "".join(path.read_text() for path in (tmp_path / "scratch").glob("*/pid"))

    third_party(
        "slow", "import os, time; print(os.getpid(), end=' ', file=open('pid', 'w'), flush=True); time.sleep(1000)"
    )
    verb = ["score", "--spec", "quick", "--device", "nvidia-h200", "--dtype", "s8", "--predictor", "slow"]
    command = [sys.executable, "-c", "from tilearena.cli import main; main()", *verb]
    with subprocess.Popen(
        command, cwd=checkout, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_until(lambda: noted().endswith(" "))
        pid = int(noted())
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in err) == (code, False)
    wait_until(lambda: ended(pid))
