"""`tilearena import`: recordings of other tools' files, which are scored by what they tell and never ranked."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from foreign_files import (
    BEST,
    CELLS,
    DEFAULT,
    IMPORTED_AT,
    LABELS,
    PROFILER,
    WIDE,
    label,
    labels_file,
    labels_of_best,
    profiler_file,
    recording_of,
    target,
    text,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from standin import DEVICE

from tilearena import dataset
from tilearena.errors import RecordingError, TilearenaError
from tilearena.evaluate import Subject, evaluate
from tilearena.exchange import foreign_csv, labels_csv, profiler_csv
from tilearena.exchange.foreign_csv import Faults
from tilearena.exchange.importing import import_file
from tilearena.records import fingerprint
from tilearena.root import find_path
from tilearena.submission import write


@pytest.fixture
def root(tmp_path):
    (tmp_path / "root" / "baselines" / "recordings").mkdir(parents=True)
    return tmp_path / "root"


@pytest.fixture
def device_file(tmp_path):
    path = tmp_path / "device.json"
    path.write_text(json.dumps({"here": [DEVICE.model_dump(mode="json")], "recorded": []}))
    return path


@pytest.fixture
def import_it(run, root, device_file):
    """Runs the verb on a file of the synthetic device, as spec ``foreign``: (exit code, output, errors)."""

    def _import(file, *more, spec="foreign"):
        asked = ("--spec", spec, "--device", DEVICE.slug, "--protocol", "hot", "--device-file", device_file)
        return run("import", file, *asked, "--root", root, *more)

    return _import


def test_imported_labels_are_a_recording_that_says_so(tmp_path, root):
    faults = Faults(tmp_path)
    ((path, header, n_problems),) = import_file(labels_of_best(tmp_path), target(root), faults).recordings
    assert (faults.count, n_problems) == (0, len(BEST))
    recording = dataset.read(path)
    assert recording.header == header
    assert (header.origin, header.started_at, header.device) == ("labels", IMPORTED_AT.isoformat(), DEVICE)
    assert (header.protocol.rounds, header.protocol.screen_rounds, header.protocol.distribution) == (1, 0, "unknown")
    assert (header.clock, header.noise_floor, header.batches, header.anchors) == (None, None, (), ())
    problems = [
        {"op": "gemm", "dtype": "s8", "m": m, "n": 256, "k": 512, "bit_op": None} for m in range(1, len(BEST) + 1)
    ]
    assert header.spec_fingerprint == fingerprint(problems)
    assert recording.task.labels_only
    assert recording.table.time_ns.argmin(axis=1).tolist() == list(BEST)
    assert np.isinf(recording.column_ns(1)).all()


def test_imported_kernels_are_a_recording_of_one_mean_time_each(tmp_path, root):
    import_file(profiler_file(tmp_path, {}, WIDE), target(root), Faults(tmp_path))
    recording = recording_of(root, "cutlass-profiler")
    assert (recording.header.origin, recording.task.labels_only) == ("cutlass_profiler", False)
    assert [c.template.label for c in recording.header.candidates] == [DEFAULT, WIDE["Operation"]]
    assert recording.table.time_ns.tolist() == [[12_300, 45_600]]
    assert recording.header.screens.tolist() == [0, 0]


def test_import_verb_writes_and_score_says_where_it_comes_from(import_it, run, root, tmp_path):
    code, out, err = import_it(labels_of_best(tmp_path))
    assert (code, err) == (0, "")
    assert f"6 problems of s8, 9 templates, imported (labels): {root}" in out
    command = next(line for line in out.splitlines() if line.startswith("  tilearena score")).split()[1:]
    code, out, err = run(*command, "--root", root, "--predictor", "oracle", "--predictor", "constant")
    assert (code, err) == (0, "")
    assert "foreign on synthetic-device, imported (labels), split random" in out
    code, out, _ = run(*command, "--root", root, "--predictor", "oracle", "--json")
    (row,) = json.loads(out)
    assert (code, row["origin"], row["top1"], row["top2"], row["regret_mean"]) == (0, "labels", 1, 1, None)


def test_score_of_a_measured_recording_has_an_origin_and_no_other_new_key(run):
    asked = ("--spec", "quick", "--device", "nvidia-h200", "--dtype", "b1", "--predictor", "constant", "--json")
    code, out, _ = run("score", *asked)
    (row,) = json.loads(out)
    assert (code, row.pop("origin")) == (0, "measured")
    assert [key for key in row if key.startswith("top1")] == ["top1", "top1_lo", "top1_hi"]
    assert "imported" not in run("score", *asked[:-1])[1]


def test_imported_recordings_are_never_ranked(import_it, run, root, tmp_path):
    import_it(labels_of_best(tmp_path))
    names = ("--spec", "foreign", "--device", DEVICE.slug)
    code, out, err = run("submit", *names, "--submitter", "me", "--root", root)
    reason = (
        "the recording of foreign on synthetic-device (s8, hot) is imported (labels); `tilearena score` takes it, but "
        "only what tilearena measured is ranked"
    )
    assert (code, out, err) == (2, "", f"tilearena: {reason}\n")
    subject = Subject("foreign", "paper9", "s8", "hot", DEVICE.slug, "random")
    path = write(root, evaluate(root, subject, ["constant"]), submitter="me", created_at=IMPORTED_AT)
    code, out, err = run("check", path, "--root", root)
    assert (code, err) == (1, "")
    assert out == f"{path}: s8/hot/random cannot be recomputed: {reason}\n"


def test_recordings_verify_accepts_what_was_imported(import_it, run, root, tmp_path):
    assert import_it(labels_of_best(tmp_path))[0] == 0
    assert import_it(profiler_file(tmp_path, {}, WIDE))[0] == 0
    code, out, _ = run("recordings", "--verify", "--json", "--root", root)
    assert (code, [(row["space"], row["fault"]) for row in json.loads(out)]) == (
        0,
        [("cutlass-profiler", ""), ("paper9", "")],
    )


def test_import_verb_names_rows_that_are_left_out_and_exits_with_1(import_it, tmp_path):
    path = profiler_file(tmp_path, {}, *[{"m": str(9 + i), "Provider": "cuBLAS"} for i in range(30)])
    code, out, err = import_it(path, "--json")
    assert code == 1
    sentences = err.splitlines()
    assert sentences[0] == f"tilearena: {path} line 3: Provider is 'cuBLAS'; only CUTLASS can be imported"
    assert (len(sentences), sentences[20]) == (21, f"tilearena: {path}: left out, too: lines 23-32")
    found = json.loads(out)
    assert (found["rows_left_out"], found["rows_of_other_devices"]) == (30, 0)
    ((path, header),) = ((Path(r.pop("path")), r) for r in found["recordings"])
    assert header == {
        "origin": "cutlass_profiler",
        "device": DEVICE.slug,
        "spec": "foreign",
        "space": "cutlass-profiler",
        "dtype": "s8",
        "protocol": "hot",
        "problems": 1,
        "templates": 1,
        "fingerprint": dataset.read(path).header.fingerprint,
    }


def test_import_verb_counts_labels_of_other_devices_and_exits_with_0(import_it, tmp_path):
    code, out, err = import_it(labels_file(tmp_path, label(1, "large/3"), label(1, "small/2", sm_count=68)))
    assert (code, err) == (0, "")
    assert "1 rows are of other devices than synthetic-device\n0 rows are left out" in out


def test_import_verb_exits_with_2_where_nothing_can_be_imported(import_it, root, tmp_path):
    code, out, err = import_it(labels_file(tmp_path, label(1, "huge/3")))
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 2
    assert err.splitlines()[1].endswith("no row has the 132 SMs of synthetic-device")
    assert list(root.rglob("*.parquet")) == []


def test_import_never_replaces_a_recording(import_it, root, tmp_path):
    file = labels_of_best(tmp_path)
    assert import_it(file)[0] == 0
    before = recording_of(root).header.fingerprint
    two = labels_file(tmp_path, label(1, "large/3", dtype="b1"), label(1, "large/3"))
    code, _, err = import_it(two)
    assert (code, "is there already; give another --spec, or remove it" in err) == (2, True)
    assert recording_of(root).header.fingerprint == before
    assert len(list(root.rglob("*.parquet"))) == 1


@pytest.mark.parametrize("end", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_import_writes_all_data_types_or_none(tmp_path, root, monkeypatch, end):
    def full(path, header, rows):
        if header.dtype == "b1":
            raise end
        return write_recording(path, header, rows)

    write_recording = dataset.write
    two = labels_file(tmp_path, label(1, "large/3"), label(1, "large/3", dtype="b1"))
    with monkeypatch.context() as patch:
        patch.setattr(dataset, "write", full)
        with pytest.raises(type(end)):
            import_file(two, target(root), Faults(two))
    assert list(root.rglob("*.parquet")) == []
    assert len(import_file(two, target(root), Faults(two)).recordings) == 2


def test_damaged_recording_keeps_no_other_one_from_its_score(import_it, run, root, tmp_path):
    rows = [label(m, "large/3", dtype=dtype) for dtype in ("s8", "b1") for m in range(1, 7)]
    assert import_it(labels_file(tmp_path, *rows))[0] == 0
    path = find_path(root, DEVICE.slug, "foreign", "paper9", "b1", "hot")
    path.write_bytes(b"PAR1")
    asked = ("--spec", "foreign", "--device", DEVICE.slug, "--protocol", "hot", "--predictor", "constant")
    code, out, err = run("score", *asked, "--root", root)
    assert (code, "foreign s8 hot" in out, len(err.splitlines())) == (1, True, 1)
    assert err.startswith(f"tilearena: {path}: not a readable Parquet file")
    assert run("score", *asked, "--dtype", "s8", "--root", root)[0] == 0
    find_path(root, DEVICE.slug, "foreign", "paper9", "s8", "hot").unlink()
    code, out, err = run("score", *asked, "--root", root)
    assert (code, out, err.startswith(f"tilearena: {path}: not a readable Parquet file")) == (2, "", True)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("quick", "--spec quick is a workload that ships"),
        ("../x", "--spec '../x' names no workload"),
        ("", "--spec ''"),
    ],
)
def test_import_refuses_a_name_that_is_taken_or_leads_elsewhere(import_it, tmp_path, spec, words):
    code, _, err = import_it(labels_of_best(tmp_path), spec=spec)
    assert (code, words in err) == (2, True)


def test_import_refuses_what_the_device_cannot_run(tmp_path, root):
    old = DEVICE.model_copy(update={"compute_capability": (7, 5)})
    with pytest.raises(RecordingError, match="s8 does not exist on sm_75, so nothing of it on synthetic-device"):
        import_file(labels_of_best(tmp_path), target(root, old), Faults(tmp_path))


def test_file_of_neither_kind_is_refused(tmp_path, root):
    path = labels_file(tmp_path, columns=["a", "b"])
    with pytest.raises(RecordingError, match="line 1 is the header neither of cutlass_profiler"):
        import_file(path, target(root), Faults(tmp_path))


SOUND = [
    text(PROFILER, [[(CELLS | change).get(c, "") for c in PROFILER] for change in ({}, WIDE, {"m": "64"})]).encode(),
    text(LABELS, [label(m, "large/3") for m in (1, 2, 3)]).encode(),
]
#: What takes the place of some bytes.
pieces = st.one_of(
    st.binary(max_size=8), st.sampled_from([b"", b"0", b"-", b",", b"\n", b'"', b"9" * 30, b"nan", b"e9"])
)


@st.composite
def spoiled(draw):
    """A sound file in which some bytes are replaced by others."""
    content = draw(st.sampled_from(SOUND))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(content)))
        content = content[:start] + draw(pieces) + content[start + draw(st.integers(0, 4)) :]
    return content


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=200), spoiled()))
def test_no_file_crashes_the_import(tmp_path, root, content):
    file = tmp_path / "any.csv"
    file.write_bytes(content)
    try:
        recordings = import_file(file, target(root), Faults(file)).recordings
    except TilearenaError:
        return
    assert recordings
    for path, _, n_problems in recordings:
        assert len(dataset.read(path).table.problems) == n_problems
        path.unlink()


def test_page_gives_the_columns_and_limits(checkout):
    page = (checkout / "docs" / "import.md").read_text()
    needed = page.split("Needed are ")[1].split("(milliseconds)")[0]
    assert sorted(re.findall(r"`([^`]+)`", needed)) == sorted(profiler_csv.COLUMNS)
    assert ",".join(labels_csv.COLUMNS) in page
    limits = f"The first {foreign_csv.SHOWN} are named", f"{foreign_csv.MAX_BYTES >> 20} MiB", str(foreign_csv.MAX_ROWS)
    assert all(limit in page for limit in limits)
    assert (DEFAULT in page, profiler_csv.MISSING in page) == (True, True)
