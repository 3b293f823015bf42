"""What a device is comes from a recording of it, or from a file."""

import json
import shutil

import pytest
from standin import DEVICE

from tilearena.errors import RecordingError
from tilearena.exchange.known_device import known_device


def test_device_of_a_recording_is_taken_without_what_is_of_one_card(checkout):
    device = known_device(checkout, "nvidia-h200", None)
    assert (device.slug, device.sm_count) == ("nvidia-h200", 132)
    assert (device.uuid_sha256, device.driver, device.power_limit_w) == (None, None, None)


def test_device_that_nothing_describes_is_refused(checkout, tmp_path):
    with pytest.raises(RecordingError, match=r"no recording of 'abacus' below .* give --device-file"):
        known_device(checkout, "abacus", None)
    file = tmp_path / "device.json"
    for content, words in [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "describes no device 'abacus'"),
        ('{"here": 7}', "describes no device"),
        ('{"slug": "abacus"}', "key 'product': Field required"),
    ]:
        file.write_text(content)
        with pytest.raises(RecordingError, match=words):
            known_device(checkout, "abacus", file)
    with pytest.raises(RecordingError, match="no file of at most"):
        known_device(checkout, "abacus", tmp_path)


def test_device_file_may_hold_one_device_alone(tmp_path):
    file = tmp_path / "device.json"
    file.write_text(DEVICE.model_dump_json())
    assert known_device(tmp_path, DEVICE.slug, file) == DEVICE


def test_device_file_with_half_a_character_is_refused(tmp_path):
    file = tmp_path / "device.json"
    file.write_text(json.dumps(DEVICE.model_dump(mode="json") | {"product": "\ud800"}))
    with pytest.raises(RecordingError, match=r"device\.json: key '': Invalid JSON"):
        known_device(tmp_path, DEVICE.slug, file)


def test_device_is_not_taken_from_a_recording_that_lies_elsewhere_than_it_belongs(arena):
    folder = arena.root / "baselines" / "recordings"
    shutil.copytree(folder / DEVICE.slug, folder / "abacus")
    assert known_device(arena.root, DEVICE.slug, None).slug == DEVICE.slug
    with pytest.raises(RecordingError, match="no recording of 'abacus'"):
        known_device(arena.root, "abacus", None)
