"""The models that ship: by what they were trained, and what training says where it cannot be."""

import subprocess
import sys

import pytest

from tilearena.errors import PredictorError
from tilearena.final import is_final
from tilearena.picker import choose
from tilearena.picker.train import SEED, SOURCES, about, open_part, train
from tilearena.plugin_code import code_fingerprint
from tilearena.plugins import Declined
from tilearena.predictors.picker import Picker
from tilearena.records import PROTOCOLS
from tilearena.root import load


@pytest.mark.parametrize(("spec", "space", "dtype"), SOURCES)
def test_shipped_models_were_trained_by_this_code_on_these_recordings_and_on_nothing_locked(
    spec, space, dtype, checkout
):
    for protocol in PROTOCOLS:
        recording = load(checkout, "nvidia-h200", spec, space, dtype, protocol)
        part = open_part(recording)
        assert not (spec == "lowbit-full" and is_final(part.problems).any())
        stored = choose.load(dtype, "nvidia-h200", space, protocol)
        assert stored.about == about(recording, len(part.problems))
        assert (stored.about["code_fingerprint"], stored.about["seed"]) == (code_fingerprint("picker"), SEED)
        assert stored.sm_count == recording.header.device.sm_count


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--space", "nope"], "no picker is trained for any dtype of 'nope'; known are s8 of paper9, "),
        (["--space", "h200-all", "--dtype", "b1"], "no picker is trained for 'b1' of 'h200-all'; known are "),
        (["--root", "."], "recorded devices: none"),
    ],
)
def test_training_that_cannot_be_is_one_sentence(options, sentence, tmp_path):
    program = [sys.executable, "-m", "tilearena.picker.train", *options]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("tilearena: ")
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_training_on_too_few_problems_is_the_users_mistake(monkeypatch, checkout):
    def decline(self, table, seed):
        raise Declined("picker needs more")

    monkeypatch.setattr(Picker, "fit", decline)
    shipped = choose.Shipped("nvidia-h200", "paper9", "s4", "cold")
    with pytest.raises(PredictorError, match="lowbit-random, paper9: picker needs more; record more"):
        train(checkout, shipped, "lowbit-random")
