"""Bad input on the command line: one sentence that names the culprit, a non-zero exit, and other results kept."""

import json
import re
import shutil

import pyarrow.parquet as pq
import pytest

from tilearena import dataset

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
            "no workload named 'nope'; use lowbit-random, networks, quick, or a path that ends in .yaml",
        ),
        ("--space", "nope", "no space named 'nope'; use paper9, or a path that ends in .yaml"),
        ("--dtype", "f16", "--dtype 'f16' is unknown; choose from s8, s4, b1"),
        ("--protocol", "warm", "--protocol 'warm' is unknown; choose from cold, hot"),
        ("--split", "rows", "--split 'rows' is unknown; choose from random, models"),
        ("--split", "models", "split 'models' tests the spec 'networks', not 'quick'; use --split random"),
        ("--predictor", "nobody", "--predictor 'nobody' is unknown; choose from "),
        ("--device", "abacus", "abacus/quick/gemm.paper9.s8.cold.parquet: no such recording; "),
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
            ["score", "--spec", "quick", "--device", "nvidia-h200", "--time-limit", "0"],
            "Invalid value for '--time-limit'",
        ),
        (
            ["submit", "--spec", "quick", "--device", "nvidia-h200", "--submitter", "me", "--seed", "1"],
            "No such option",
        ),
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
    header = json.loads(table.schema.metadata[dataset.METADATA_KEY]) | {"schema_version": 2}
    pq.write_table(table.replace_schema_metadata({dataset.METADATA_KEY: json.dumps(header).encode()}), path)
    message = refusal("bench", "quick", "--replay", "--predictor", "constant", "--root", data, "--out", data / "out")
    assert message == f"tilearena: {path}: schema version 2, this tilearena reads 1; update tilearena\n"


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
