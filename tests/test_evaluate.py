"""Scoring predictors on recordings: which pick fits are stored, which are trained, and who failed."""

import shutil
from datetime import UTC, datetime

import numpy as np
import pytest

from tilearena import dataset, judge, predict, submission
from tilearena.errors import PredictorError, RecordingError, SpecError
from tilearena.evaluate import Subject, evaluate
from tilearena.root import find_path
from tilearena.spec import load_space, load_workload

LOWBIT = Subject("lowbit-random", "paper9", "s8", "cold", "synthetic-device", "random")
NETWORKS = Subject("networks", "paper9", "s8", "cold", "synthetic-device", "models")


@pytest.fixture
def trained(monkeypatch):
    """Names of the predictors that were fitted."""
    names, cross_fit = [], predict.cross_fit

    def noting(name, *arguments, **options):
        names.append(name)
        return cross_fit(name, *arguments, **options)

    monkeypatch.setattr(predict, "cross_fit", noting)
    return names


def value(scored, figure):
    return scored.score.figures[figure].value


def test_evaluate_scores_in_the_order_given(arena):
    oracle, constant, default = evaluate(arena.root, LOWBIT, ["oracle", "constant", "default"])
    assert [s.score.key.predictor for s in (oracle, constant, default)] == ["oracle", "constant", "default"]
    assert {s.score.status for s in (oracle, constant, default)} == {"ok"}
    assert {s.score.n_problems for s in (oracle, constant, default)} == {40}
    assert (value(oracle, "top1"), value(oracle, "regret_max"), value(oracle, "gap_closed")) == (1, 0, 1)
    assert value(constant, "gap_closed") == 0
    assert value(default, "speedup_geomean") == 1
    assert value(oracle, "speedup_geomean") == value(default, "oracle_speedup_geomean") > 1


def test_evaluate_judges_the_ceiling_by_the_repeat_recording(arena):
    (scored,) = evaluate(arena.root, LOWBIT, ["constant"])
    assert 0.5 < value(scored, "ceiling_top2") <= 1
    assert scored.fingerprints.repeat is not None
    (scored,) = evaluate(arena.root, Subject(**{**LOWBIT.__dict__, "dtype": "s4"}), ["constant"])
    assert value(scored, "ceiling_top2") is None
    assert scored.fingerprints.repeat is None
    assert scored.score.key.support == "emulated"


def test_evaluate_compares_with_the_vendor_of_the_tested_recording(arena):
    path = arena.record("lowbit-random", "s8", arena.shapes(40, seed=0), vendor=0.9)
    arena.record("lowbit-random", "s8", arena.shapes(40, seed=0), seed=1, repeat=True, vendor=0.9)
    oracle, default = evaluate(arena.root, LOWBIT, ["oracle", "default"])
    recording = dataset.read(path)
    vendor_ns, rows = recording.column_ns(9), recording.table.problems[:, 0] >= 17
    assert oracle.score.n_vendor == rows.sum()
    assert 0 < rows.sum() < 40
    for scored, time_ns in ((oracle, recording.table.time_ns.min(axis=1)), (default, recording.table.time_ns[:, 1])):
        expected = np.exp(np.log(vendor_ns[rows] / time_ns[rows]).mean())
        assert value(scored, "speedup_vs_cublaslt_geomean") == pytest.approx(expected, rel=1e-12)
        assert value(scored, "oracle_speedup_vs_cublaslt_geomean") == value(oracle, "speedup_vs_cublaslt_geomean")
    assert value(oracle, "speedup_vs_cublaslt_geomean") == pytest.approx(0.9, rel=0.03)


def test_evaluate_without_a_vendor_in_the_recording_has_no_figure_over_it(arena):
    (scored,) = evaluate(arena.root, LOWBIT, ["oracle"])
    assert (scored.score.n_vendor, value(scored, "speedup_vs_cublaslt_geomean")) == (0, None)


def test_evaluate_of_models_trains_on_lowbit_random_and_tests_networks(arena):
    (scored,) = evaluate(arena.root, NETWORKS, ["nearest"])
    key = scored.score.key
    assert (key.spec, key.train_spec, key.split, scored.score.n_problems) == ("networks", "lowbit-random", "models", 12)
    assert scored.fingerprints.train != scored.fingerprints.test


def test_failing_predictor_is_there_with_its_reason_and_others_stay(arena, third_party):
    third_party("broken", "raise ValueError('no such tile')")
    broken, constant = evaluate(arena.root, LOWBIT, ["broken", "constant"])
    assert (broken.score.status, broken.score.n_failed) == ("failed", 40)
    assert "no such tile" in broken.score.reason
    assert value(broken, "top1") == 0
    assert constant.score.status == "ok"


def test_stored_picks_are_used_where_they_fit(arena, trained):
    arena.submit("nearest", 0.05, [arena.key("lowbit-random", "s8")])
    arena.submit("nearest", 0.05, [arena.key("networks", "s8", split="models")])
    stored = arena.scored(arena.key("lowbit-random", "s8").model_copy(update={"predictor": "nearest"}), 0.05)
    (found,) = evaluate(arena.root, LOWBIT, ["nearest"])
    assert trained == []
    assert found.score == stored.score
    assert (found.picks == stored.picks).all()
    evaluate(arena.root, NETWORKS, ["nearest"])
    assert trained == []


def test_refit_another_seed_or_another_recording_trains(arena, trained):
    arena.submit("constant", 0.05, [arena.key("lowbit-random", "s8")])
    evaluate(arena.root, LOWBIT, ["constant"])
    assert trained == []
    evaluate(arena.root, LOWBIT, ["constant"], refit=True)
    evaluate(arena.root, LOWBIT, ["constant"], seed=1)
    assert trained == ["constant"] * 2
    arena.record("lowbit-random", "s8", arena.shapes(40, seed=0), seed=1, repeat=True)
    evaluate(arena.root, LOWBIT, ["constant"])
    assert trained == ["constant"] * 2
    arena.record("lowbit-random", "s8", arena.shapes(40, seed=0), seed=2)
    evaluate(arena.root, LOWBIT, ["constant"])
    assert trained == ["constant"] * 3


def test_third_party_predictor_is_trained_again_once_its_code_changed(arena, third_party, trained, tmp_path):
    third_party("theirs", "return np.zeros((len(problems), len(task.templates)))")
    (first,) = evaluate(arena.root, LOWBIT, ["theirs"])
    assert (trained, (first.picks[:, 0] == 0).all()) == (["theirs"], True)
    path = submission.write(arena.root, [first], submitter="me", created_at=datetime.now(UTC))
    (stored,) = evaluate(arena.root, LOWBIT, ["theirs"])
    assert (trained, stored.score) == (["theirs"], first.score)
    source = tmp_path / "site-theirs" / "theirs_plugin.py"
    source.write_text(source.read_text().replace("np.zeros(", "-np.arange(9.0) * np.ones("))
    (changed,) = evaluate(arena.root, LOWBIT, ["theirs"])
    assert (trained, (changed.picks[:, 0] == 8).all()) == (["theirs"] * 2, True)
    assert changed.score.key.version == path.stem == "1"


def test_stored_picks_are_looked_up_without_running_the_plugin(arena, third_party, tmp_path):
    third_party("theirs", "return 1")
    (tmp_path / "site-theirs" / "theirs_plugin.py").write_text("import os; os._exit(3)\n")
    (found,) = evaluate(arena.root, LOWBIT, ["theirs"])
    assert "ended its process without an answer (exit code 3)" in found.score.reason


def other(model):
    """The same name with another content."""
    return model.model_copy(update={"version": model.version + 1})


@pytest.mark.parametrize("kind", ["workload", "space"])
def test_recording_of_another_workload_or_space_is_refused(arena, kind):
    meant = {"workload": load_workload("lowbit-random"), "space": load_space("paper9")}
    (scored,) = evaluate(arena.root, LOWBIT, ["constant"], **meant)
    assert scored.score.status == "ok"
    with pytest.raises(RecordingError) as caught:
        evaluate(arena.root, LOWBIT, ["constant"], **meant | {kind: other(meant[kind])})
    assert str(caught.value) == (
        "the recording of lowbit-random (synthetic-device, s8, cold) is of another "
        f"{kind} {meant[kind].name!r} (fingerprint {meant[kind].fingerprint}) than is meant "
        f"({other(meant[kind]).fingerprint}); record it again, or use the version that was recorded"
    )


def test_training_recording_of_another_workload_is_refused(arena, monkeypatch, ships_anew):
    shipped = judge.load_workload
    changed = {"lowbit-random": other(shipped("lowbit-random"))}
    monkeypatch.setattr(judge, "load_workload", lambda name: changed.get(name) or shipped(name))
    with pytest.raises(RecordingError, match=r"the recording of lowbit-random .* is of another workload"):
        evaluate(arena.root, NETWORKS, ["constant"], workload=shipped("networks"))


def test_recording_of_a_workload_that_does_not_ship_is_scored(arena, monkeypatch, ships_anew):
    monkeypatch.setattr(judge, "workload_names", lambda: ["networks"])
    monkeypatch.setattr(judge, "load_workload", lambda name: pytest.fail(f"{name} does not ship"))
    (scored,) = evaluate(arena.root, LOWBIT, ["constant"])
    assert scored.score.status == "ok"


def test_damaged_stored_picks_are_ignored(arena, trained):
    path = arena.submit("constant", 0.05, [arena.key("lowbit-random", "s8")])
    path.with_suffix(".parquet").write_bytes(b"PAR1")
    (found,) = evaluate(arena.root, LOWBIT, ["constant"])
    assert trained == ["constant"]
    assert found.score.status == "ok"


@pytest.mark.parametrize(
    ("change", "predictor", "error", "sentence"),
    [
        ({}, "nobody", PredictorError, "no predictor named 'nobody'; installed: .*constant"),
        ({"device": "nvidia-h100"}, "constant", RecordingError, "no such recording"),
        ({"spec": "networks", "dtype": "b1"}, "constant", RecordingError, "no such recording"),
        ({"split": "models"}, "constant", SpecError, "split 'models' tests the spec 'networks'"),
    ],
)
def test_subject_that_cannot_be_scored_is_named(arena, change, predictor, error, sentence):
    with pytest.raises(error, match=sentence):
        evaluate(arena.root, Subject(**{**LOWBIT.__dict__, **change}), [predictor])


def test_recording_in_the_place_of_another_is_refused(arena):
    s8, s4 = (find_path(arena.root, "synthetic-device", "lowbit-random", "paper9", d, "cold") for d in ("s8", "s4"))
    shutil.copy(s4, s8)
    with pytest.raises(RecordingError) as caught:
        evaluate(arena.root, LOWBIT, ["constant"])
    assert str(caught.value) == f"{s8}: by its content it belongs in {s4}; move it there"
