"""Where recordings are looked for: --root, TILEARENA_ROOT, then the checkout."""

import os
import shutil

import pytest

from tilearena import root
from tilearena.errors import RecordingError


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Two data folders, one of them the current checkout, and no TILEARENA_ROOT."""
    for name in ("here", "there"):
        (tmp_path / name / "baselines" / "recordings").mkdir(parents=True)
    (tmp_path / "here" / "deep" / "down").mkdir(parents=True)
    monkeypatch.delenv("TILEARENA_ROOT", raising=False)
    monkeypatch.chdir(tmp_path / "here" / "deep" / "down")
    return tmp_path


def test_root_is_the_checkout_at_or_above_the_current_folder(folders):
    assert root.find_root() == folders / "here"


def test_root_of_the_environment_comes_before_the_checkout(folders, monkeypatch):
    monkeypatch.setenv("TILEARENA_ROOT", str(folders / "there"))
    assert root.find_root() == folders / "there"


def test_root_that_is_given_comes_first(folders, monkeypatch):
    monkeypatch.setenv("TILEARENA_ROOT", str(folders / "there"))
    assert root.find_root(folders / "here") == folders / "here"


def test_root_that_does_not_exist_is_refused(folders, monkeypatch):
    with pytest.raises(RecordingError, match="nowhere: no such folder; give --root or TILEARENA_ROOT"):
        root.find_root(folders / "nowhere")
    monkeypatch.setenv("TILEARENA_ROOT", str(folders / "gone"))
    with pytest.raises(RecordingError, match="gone: no such folder"):
        root.find_root()


def test_root_outside_of_any_checkout_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv("TILEARENA_ROOT", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(root, "__file__", str(tmp_path / "site-packages" / "tilearena" / "root.py"))
    with pytest.raises(
        RecordingError, match=r"no baselines/recordings at or above .*; run in a checkout, or give --root"
    ):
        root.find_root()


def test_recorded_lists_recordings_and_no_parts_or_scratch_files(folders):
    data = folders / "there"
    for name in ("b/quick/gemm.x.s8.cold.parquet", "a/quick/.gemm.x.s8.cold.parquet.77", "b/quick/notes.txt"):
        path = data / "baselines" / "recordings" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    parts = data / "baselines" / "recordings" / "a" / "quick" / ".gemm.x.s8.hot.0123.parts"
    parts.mkdir()
    (parts / "00000.parquet").touch()
    assert [path.name for path in root.recorded(data)] == ["gemm.x.s8.cold.parquet"]
    assert root.recorded_devices(data) == ["b"]


def test_load_reads_one_recording_by_its_key(checkout, tmp_path):
    recording = root.load(checkout, "nvidia-h200", "quick", "paper9", "b1", "hot")
    header = recording.header
    assert (header.spec, header.dtype, header.protocol.name, header.bit_op) == ("quick", "b1", "hot", "and")


def test_load_of_a_recording_that_lies_elsewhere_is_refused(checkout, tmp_path):
    there = root.find_path(checkout, "nvidia-h200", "quick", "paper9", "s8", "cold")
    wrong = root.find_path(tmp_path, "nvidia-h200", "lowbit-random", "h200-all", "s8", "cold")
    wrong.parent.mkdir(parents=True)
    wrong.write_bytes(there.read_bytes())
    with pytest.raises(RecordingError, match=r"by its content it belongs in .*quick.gemm.paper9.s8.cold.parquet"):
        root.load(tmp_path, "nvidia-h200", "lowbit-random", "h200-all", "s8", "cold")


def test_load_of_what_is_not_recorded_lists_the_devices_that_are(arena):
    with pytest.raises(RecordingError) as caught:
        root.load(arena.root, "nvidia-h100", "quick", "paper9", "s8", "cold")
    message = str(caught.value)
    assert message.startswith("no recording of gemm/quick/paper9/s8/cold on 'nvidia-h100' below ")
    assert message.endswith("recorded devices: synthetic-device")
    shutil.rmtree(arena.root / "baselines")
    with pytest.raises(RecordingError, match=r"recorded devices: none$"):
        root.load(arena.root, "nvidia-h100", "quick", "paper9", "s8", "cold")


def test_root_whose_name_is_no_utf8_is_refused(folders, monkeypatch):
    odd = folders / os.fsdecode(b"odd\xff")
    (odd / "baselines" / "recordings").mkdir(parents=True)
    with pytest.raises(RecordingError, match=r"odd\\udcff: the name of this folder is not UTF-8"):
        root.find_root(odd)
    monkeypatch.chdir(odd)
    with pytest.raises(RecordingError, match="is not UTF-8"):
        root.find_root()
