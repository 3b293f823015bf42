"""Scoring predictors on recordings: which pick fits are stored, which are trained, and who failed."""

import pytest

from tilearena import predict
from tilearena.errors import PredictorError, RecordingError, SpecError
from tilearena.evaluate import Subject, evaluate

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


def test_third_party_predictor_is_always_trained(arena, third_party, trained):
    third_party("theirs", "return np.zeros((len(problems), len(task.templates)))")
    arena.submit("theirs", 0.05, [arena.key("lowbit-random", "s8")])
    (found,) = evaluate(arena.root, LOWBIT, ["theirs"])
    assert trained == ["theirs"]
    assert (found.picks[:, 0] == 0).all()


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
