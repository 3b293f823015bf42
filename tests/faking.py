"""A predictor from a source text, which is put on the import path, and its prediction for a synthetic table."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tilearena.conformance import synthetic_table
from tilearena.predict import Prediction, cross_fit
from tilearena.score import constant_pick
from tilearena.splits import plan

TABLE = synthetic_table(60)
FOLDS = plan("random", "quick", TABLE)
PLUGIN = """
import os, sys, threading, time
import numpy as np
from tilearena.plugins import Declined

class Plugin:
    name = "fake"
    version = "7"
    def fit(self, train, seed):
        self.train = train
    def costs(self, problems, task):
        P, T = len(problems), len(task.templates)
        {body}
"""


@pytest.fixture
def install_fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make a source text importable as module ``fake_plugin`` with an entry point, here and in child processes."""

    def _install(source: str, name: str = "fake", group: str = "tilearena.predictors") -> None:
        (tmp_path / "fake_plugin.py").write_text(source)
        info = tmp_path / "fake_plugin-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-plugin\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{name} = fake_plugin:Plugin\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    return _install


def run(time_limit_s: float = 60.0) -> Prediction:
    return cross_fit("fake", FOLDS, TABLE, time_limit_s=time_limit_s)


def assert_failed(prediction: Prediction, reason: str) -> None:
    assert prediction.status == "failed"
    assert prediction.reason == reason
    assert prediction.picks.shape == (60, 8)
    assert (prediction.picks == -1).all()
    assert prediction.predict_us is None
    expected = np.empty(60, dtype=np.int64)
    for fold in FOLDS:
        expected[fold.test_rows] = constant_pick(fold.train)
    assert (prediction.constant_picks == expected).all()
