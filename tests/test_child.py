"""A child's folder and environment."""

import os
import tempfile
import time
from pathlib import Path

import pytest
from faking import PLUGIN, run

from tilearena.child import run_child, scratch_folder
from tilearena.predict_child import Limits


@pytest.mark.parametrize("variable", ["PYTHONPATH", "TMPDIR"])
def test_relative_paths_of_the_environment_are_those_of_the_caller(install_fake, tmp_path, monkeypatch, variable):
    install_fake(PLUGIN.format(body="return np.zeros((P, T))"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, ".")
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert run().reason == ""


def test_folder_that_the_plugin_locked_holds_no_answer(tmp_path, monkeypatch):
    def locked(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", locked)
    limits, deadline_s = Limits(memory_bytes=1), time.monotonic() + 60
    reason = run_child("this", tmp_path, "fake", deadline_s=deadline_s, time_limit_s=60, limits=limits)
    assert reason == "predictor 'fake' ended its process without an answer (exit code 0)"


def test_folder_of_a_child_is_gone_however_deep_a_plugin_nested_folders():
    with scratch_folder() as folder:
        at = os.open(folder, os.O_RDONLY)
        for _ in range(3000):
            os.mkdir("d", dir_fd=at)
            below = os.open("d", os.O_RDONLY, dir_fd=at)
            os.close(at)
            at = below
        os.close(at)
    assert not folder.exists()
