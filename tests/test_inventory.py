"""What is recorded below a root, and what is wrong with it."""

import json
import os
import shutil

import pytest
from standin import DEVICE

from tilearena import dataset
from tilearena.inventory import inventory

FOLDER = f"{DEVICE.slug}/lowbit-random"


@pytest.fixture
def root(arena):
    return arena.root


def file_of(root, name):
    return root / "baselines" / "recordings" / FOLDER / name


def test_all_recordings_are_listed_and_parts_of_unfinished_ones_are_not(root):
    parts = file_of(root, ".gemm.paper9.s8.hot.parquet.parts")
    parts.mkdir()
    shutil.copy(file_of(root, "gemm.paper9.s8.cold.parquet"), parts / "00000.parquet")
    entries = list(inventory(root, verify=False))
    assert [(e.path.as_posix().removeprefix(f"{DEVICE.slug}/"), e.n_rows, e.is_repeat, e.fault) for e in entries] == [
        ("lowbit-random/gemm.paper9.s4.cold.parquet", 360, False, ""),
        ("lowbit-random/gemm.paper9.s8.cold.parquet", 360, False, ""),
        ("lowbit-random/gemm.paper9.s8.cold.repeat.parquet", 360, True, ""),
        ("networks/gemm.paper9.s8.cold.parquet", 108, False, ""),
    ]
    read = dataset.read(file_of(root, "gemm.paper9.s4.cold.parquet"))
    assert entries[0].header == read.header
    assert entries[0].n_bytes == file_of(root, "gemm.paper9.s4.cold.parquet").stat().st_size
    assert list(inventory(root, verify=True)) == entries


def test_file_that_cannot_be_read_is_a_fault_and_the_others_are_listed(root):
    path = file_of(root, "gemm.paper9.s4.cold.parquet")
    path.write_bytes(path.read_bytes()[:-100])
    for verify in (False, True):
        first, *others = inventory(root, verify=verify)
        assert first.fault.startswith("not a readable Parquet file (")
        assert first.header is None
        assert [entry.fault for entry in others] == [""] * 3


def test_only_reading_all_of_it_finds_rows_that_do_not_match_the_fingerprint(root):
    path = file_of(root, "gemm.paper9.s8.cold.parquet")
    recording = dataset.read(path)
    dataset.write(path, recording.header, recording.rows)
    forged = path.read_bytes().replace(recording.header.fingerprint.encode(), b"0123456789abcdef")
    path.write_bytes(forged)
    assert [entry.fault for entry in inventory(root, verify=False)] == [""] * 4
    faults = [entry.fault for entry in inventory(root, verify=True)]
    assert faults == [
        *["", "its content does not match its fingerprint 0123456789abcdef; fetch it again"],
        *["", ""],
    ]


def test_recording_in_a_wrong_place_is_found_without_reading_all_of_it(root):
    shutil.copy(file_of(root, "gemm.paper9.s4.cold.parquet"), file_of(root, "gemm.paper9.b1.cold.parquet"))
    for verify in (False, True):
        first = next(inventory(root, verify=verify))
        place = file_of(root, "gemm.paper9.s4.cold.parquet")
        assert first.fault == f"by its content it belongs in {place}; move it there"
        assert (first.header.dtype, first.n_rows) == ("s4", 360)


def test_recording_of_another_workload_is_found(root):
    path = file_of(root, "gemm.paper9.s8.cold.repeat.parquet")
    recording = dataset.read(path)
    dataset.write(path, recording.header.model_copy(update={"spec_fingerprint": "f" * 16}), recording.rows)
    faults = {entry.path.name: entry.fault for entry in inventory(root, verify=True)}
    assert "is of another workload 'lowbit-random'" in faults.pop("gemm.paper9.s8.cold.repeat.parquet")
    assert set(faults.values()) == {""}


def test_repeat_of_other_kernels_or_of_nothing_is_found(root):
    first, path = (file_of(root, f"gemm.paper9.s8.cold{end}.parquet") for end in ("", ".repeat"))
    recording = dataset.read(path)
    dataset.write(path, recording.header.model_copy(update={"versions": {"nvcc": "0"}}), recording.rows)
    faults = [entry.fault for entry in inventory(root, verify=True) if entry.fault]
    assert len(faults) == 1
    assert faults[0].startswith("the repeat has other versions than the recording")
    first.unlink()
    faults = [entry.fault for entry in inventory(root, verify=True) if entry.fault]
    assert faults == ["the recording that it repeats is missing; record that, or remove this"]


def test_what_is_no_file_is_a_fault_and_keeps_nobody_waiting(root):
    file_of(root, "a.parquet").symlink_to(root / "nowhere")
    os.mkfifo(file_of(root, "b.parquet"))
    link, pipe, *others = inventory(root, verify=False)
    assert link.fault == "cannot be read (No such file or directory)"
    assert pipe.fault == "is no file, so no recording; remove it"
    assert [entry.fault for entry in others] == [""] * 4


def test_names_that_steer_a_terminal_are_a_fault(root):
    path = file_of(root, "gemm.paper9.s8.cold.parquet")
    recording = dataset.read(path)
    dataset.write(path, recording.header.model_copy(update={"spec": "\x1b[2J"}), recording.rows)
    (fault,) = (entry.fault for entry in inventory(root, verify=False) if entry.fault)
    assert fault.startswith("'\\x1b[2J' names no recording")
    dataset.write(path, recording.header.model_copy(update={"spec": "x" * 100_000}), recording.rows)
    (fault,) = (entry.fault for entry in inventory(root, verify=False) if entry.fault)
    assert len(fault) < 250


def test_verb_lists_verifies_and_says_what_is_wrong(run, root):
    code, out, err = run("recordings", "--verify", "--root", root)
    assert (code, err) == (0, "")
    size = sum(path.stat().st_size for path in root.rglob("*.parquet")) / 1e6
    assert f"4 recordings, {size:.1f} MB; 4 of them whole and in their places" in out
    assert out.count("cold repeat") == 1
    assert out.count("40 of 2000") == 3
    code, out, _ = run("recordings", "--root", root)
    assert (code, "not verified" in out) == (0, True)
    path = file_of(root, "gemm.paper9.s4.cold.parquet")
    path.write_bytes(b"PAR1")
    code, out, _ = run("recordings", "--verify", "--root", root)
    assert code == 1
    assert "3 of them whole and in their places" in out
    assert f"{FOLDER}/gemm.paper9.s4.cold.parquet: not a readable Parquet file" in out.replace("\n", " ")
    code, out, _ = run("recordings", "--json", "--root", root)
    rows = json.loads(out)
    assert (code, [row["fault"] == "" for row in rows]) == (1, [False, True, True, True])
    assert [row.get("rows") for row in rows] == [None, 360, 360, 108]
    assert [row.get("problems") for row in rows] == [None, 40, 40, 12]
    assert [row.get("problems_of_workload") for row in rows] == [None, 2000, 2000, 304]
    assert rows[1]["protocol"] == "cold"
    assert rows[1]["noise_floor"] == dataset.read(file_of(root, "gemm.paper9.s8.cold.parquet")).header.noise_floor


def test_committed_recordings_are_whole_in_their_places_and_light(run, checkout):
    code, out, _ = run("recordings", "--verify", "--json")
    rows = json.loads(out)
    assert (code, len(rows) >= 20) == (0, True)
    assert sum(row["bytes"] for row in rows) <= 24 << 20


def test_root_without_recordings_has_none(run, tmp_path):
    (tmp_path / "baselines" / "recordings").mkdir(parents=True)
    code, out, _ = run("recordings", "--root", tmp_path)
    assert (code, "0 recordings, 0.0 MB; not verified" in out) == (0, True)
