import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilearena import judge, submission
from tilearena.check import NOT_RECOMPUTED, check, stored_picks
from tilearena.errors import SubmissionError
from tilearena.evaluate import Subject, evaluate
from tilearena.leaderboard.table import submission_paths
from tilearena.picks import picks_fingerprint, write_picks
from tilearena.plugin_code import code_fingerprint
from tilearena.score import FIGURES
from tilearena.submission import read

CHECKOUT = Path(__file__).resolve().parents[1]
COUNTS = ("n_problems", "n_failed", "n_unmeasured", "n_no_default", "n_vendor")
CLAIMS = (*COUNTS, *(f"{name}{end}" for name in FIGURES for end in ("", "_lo", "_hi") if name not in NOT_RECOMPUTED))


def change(path: Path, result: int, *keys: str, to: Any) -> Any:
    """Set one value of a result in the JSON; returns what it was."""
    raw = json.loads(path.read_text())
    part = raw["results"][result]
    for key in keys[:-1]:
        part = part[key]
    before, part[keys[-1]] = part.get(keys[-1]), to
    path.write_text(json.dumps(raw))
    return before


def repick(path: Path, picks: list[np.ndarray]) -> None:
    """Replace all picks, and their fingerprints in the JSON, as one who cheats with care would."""
    write_picks(path.with_suffix(".parquet"), picks)
    for i, own in enumerate(picks):
        change(path, i, "picks_fingerprint", to=picks_fingerprint(own))


def test_check_finds_nothing_in_an_honest_submission(arena, written):
    assert check(written, arena.root) == []


def test_check_serves_the_models_split(arena):
    keys = [arena.key("networks", "s8", split=split) for split in ("random", "models")]
    path = arena.submit("gbdt", 0.01, keys)
    assert check(path, arena.root) == []
    models = read(path).manifest.results[1]
    assert (models.key.train_spec, models.figures["n_problems"]) == ("lowbit-random", 12)
    assert models.fingerprints.train != models.fingerprints.test


def test_check_serves_a_failed_result(arena):
    path = arena.submit("gbdt", 0, [arena.key("lowbit-random", "s8")], reason="it raised")
    assert check(path, arena.root) == []
    change(path, 0, "status", to="ok")
    assert [f.field for f in check(path, arena.root)] == ["status"]
    change(path, 0, "reason", to="")
    assert {f.field: f.claimed for f in check(path, arena.root)} == {"status": "ok", "reason": ""}


@pytest.mark.parametrize("name", CLAIMS)
def test_check_names_a_changed_figure(arena, written, name):
    true = read(written).manifest.results[1].figures[name]
    claim = 7 if true is None else true + 1 if name in COUNTS else true * (1 + 1e-6) + 1e-6
    change(written, 1, "figures", name, to=claim)
    (finding,) = check(written, arena.root)
    assert (finding.result, finding.field, finding.claimed, finding.recomputed) == ("s4/cold/random", name, claim, true)
    assert str(finding) == f"{written}: s4/cold/random: {name} is claimed as {claim}, recomputed {true}"


@pytest.mark.parametrize("name", ["speedup_vs_cublaslt_geomean", "oracle_speedup_vs_cublaslt_geomean", "n_vendor"])
def test_check_recomputes_the_speedups_over_the_vendor(arena, name):
    arena.record("lowbit-random", "s8", arena.shapes(40, seed=0), vendor=0.9)
    arena.record("lowbit-random", "s8", arena.shapes(40, seed=0), seed=1, repeat=True, vendor=0.9)
    path = arena.submit("gbdt", 0.05, [arena.key("lowbit-random", "s8")])
    assert check(path, arena.root) == []
    true = read(path).manifest.results[0].figures[name]
    assert true > 0.5
    change(path, 0, "figures", name, to=true + 1)
    assert [(f.field, f.claimed, f.recomputed) for f in check(path, arena.root)] == [(name, true + 1, true)]


def test_check_names_a_figure_claimed_as_unknown(arena, written):
    true = change(written, 0, "figures", "regret_mean", to=None)
    (finding,) = check(written, arena.root)
    assert (finding.field, finding.claimed, finding.recomputed) == ("regret_mean", None, true)


def test_check_names_missing_and_invented_figures(arena, written):
    raw = json.loads(written.read_text())
    del raw["results"][0]["figures"]["top1"]
    raw["results"][0]["figures"]["top3"] = 1.0
    written.write_text(json.dumps(raw))
    found = {f.field: (f.claimed, f.recomputed) for f in check(written, arena.root)}
    assert found.keys() == {"top1", "top3"}
    assert found["top1"][0] == "nothing"
    assert found["top3"] == (1.0, "nothing")


@pytest.mark.parametrize(("claim", "wrong"), [(0, True), (-1.0, True), (1e-3, False), (50_000, False), (None, False)])
def test_check_asks_of_predict_us_only_that_it_is_a_time(arena, written, claim, wrong):
    change(written, 0, "figures", "predict_us", to=claim)
    assert [f.field for f in check(written, arena.root)] == ["predict_us"] * wrong


@pytest.mark.parametrize("name", ["test", "train", "repeat", "spec", "space"])
def test_check_names_a_changed_fingerprint(arena, written, name):
    true = change(written, 0, "fingerprints", name, to="f" * 16)
    found = check(written, arena.root)
    assert [(f.field, f.claimed, f.recomputed) for f in found] == [(f"fingerprints.{name}", "f" * 16, true)]


@pytest.mark.parametrize(("name", "claim", "true"), [("support", "native", "emulated"), ("train_spec", "x", None)])
def test_check_names_a_changed_key(arena, written, name, claim, true):
    change(written, 1, "key", name, to=claim)
    found = check(written, arena.root)
    assert [(f.field, f.claimed, f.recomputed) for f in found] == [(f"key.{name}", claim, true or "lowbit-random")]


def test_check_refuses_another_seed_even_if_all_figures_follow_from_it(arena):
    key = arena.key("lowbit-random", "s8")
    subject = Subject(key.spec, key.space, key.dtype, key.protocol, key.device, key.split)
    scored = evaluate(arena.root, subject, ["constant"], seed=1)
    path = submission.write(arena.root, scored, submitter="lucky", created_at=datetime.now(UTC))
    (finding,) = check(path, arena.root)
    assert (finding.field, finding.claimed, finding.recomputed) == ("seed", 1, 0)


def test_check_does_not_ask_for_the_code(arena, written):
    assert change(written, 0, "code_fingerprint", to="f" * 16) == code_fingerprint("gbdt")
    change(written, 1, "code_fingerprint", to=None)
    assert check(written, arena.root) == []


@pytest.mark.parametrize(("kind", "shipped"), [("workload", "lowbit-random"), ("space", "paper9")])
def test_check_refuses_a_recording_of_another_workload_or_space_of_that_name(
    arena, written, kind, shipped, monkeypatch, ships_anew
):
    model = getattr(judge, f"load_{kind}")(shipped)
    monkeypatch.setattr(judge, f"load_{kind}", lambda name: model.model_copy(update={"version": 9}))
    with pytest.raises(SubmissionError, match=rf"is of another {kind} '{shipped}' \(fingerprint {model.fingerprint}\)"):
        check(written, arena.root)


def test_check_finds_every_single_changed_first_pick(arena, written):
    first, second = (picks.copy() for picks in read(written).picks)
    for row in range(len(first)):
        changed = first.copy()
        changed[row, [0, 7]] = changed[row, [7, 0]]
        repick(written, [changed, second])
        assert "regret_at_1" in {f.field for f in check(written, arena.root)}, row
    repick(written, [first, second])
    assert check(written, arena.root) == []


def test_check_refuses_a_template_that_is_not_there(arena, written):
    first, second = (picks.copy() for picks in read(written).picks)
    second[3, 7] = 9
    repick(written, [first, second])
    with pytest.raises(SubmissionError, match=r"s4/cold/random problem 3: pick_8 is 9, .* templates 0\.\.8"):
        check(written, arena.root)


@pytest.mark.parametrize("rows", [slice(0, 39), [*range(40), 0]], ids=["missing", "extra"])
def test_check_refuses_missing_or_extra_problems(arena, written, rows):
    first, second = read(written).picks
    repick(written, [first[rows], second])
    with pytest.raises(SubmissionError, match=r"s8/cold/random has picks for (39|41) problems, its recording has 40"):
        check(written, arena.root)


def test_check_refuses_without_a_recording(arena, written):
    next(arena.root.glob("baselines/**/gemm.paper9.s4.cold.parquet")).unlink()
    with pytest.raises(SubmissionError, match=r"s4/cold/random cannot be recomputed: .*no such recording"):
        check(written, arena.root)


def test_check_refuses_a_split_that_does_not_suit_the_spec(arena, written):
    change(written, 0, "key", "split", to="models")
    with pytest.raises(SubmissionError, match="cannot be recomputed: split 'models' tests the spec 'networks'"):
        check(written, arena.root)


def test_check_names_a_recording_that_changed(arena, written):
    arena.record("lowbit-random", "s8", arena.shapes(40, seed=0), seed=3)
    assert {f.field for f in check(written, arena.root)} == {"fingerprints.test", "fingerprints.train"}


def test_check_refuses_a_top2_above_the_ceiling(arena):
    shapes = np.unique(arena.shapes(400, seed=2), axis=0)
    arena.record("lowbit-random", "s8", shapes)
    arena.record("lowbit-random", "s8", shapes, seed=1, repeat=True)
    key = arena.key("lowbit-random", "s8")
    for predictor, fields in (("gbdt", ["top2"]), ("oracle", [])):
        found = check(arena.submit(predictor, 0, [key]), arena.root)
        assert [f.field for f in found] == fields
        assert all("impossible: with ceiling_top2 at most 0." in str(f) for f in found)
    assert check(arena.submit("gbdt", 0.01, [key]), arena.root) == []


def test_stored_picks_are_those_written_for_the_same_sources(arena, written):
    key = arena.key("lowbit-random", "s8")
    scored = arena.scored(key, 0.01)
    result, picks = stored_picks(arena.root, key, scored.fingerprints, 0, scored.code_fingerprint)
    np.testing.assert_array_equal(picks, scored.picks)
    assert result.figures["predict_us"] == 3.5


@pytest.mark.parametrize("name", ["test", "train", "repeat", "spec", "space"])
def test_stored_picks_need_every_fingerprint(arena, written, name):
    key = arena.key("lowbit-random", "s8")
    fingerprints = arena.scored(key, 0.01).fingerprints.model_copy(update={name: "f" * 16})
    assert stored_picks(arena.root, key, fingerprints, 0, code_fingerprint("gbdt")) is None


def test_stored_picks_need_the_same_seed_code_predictor_and_split(arena, written):
    key, code = arena.key("lowbit-random", "s8"), code_fingerprint("gbdt")
    fingerprints = arena.scored(key, 0.01).fingerprints
    assert stored_picks(arena.root, key, fingerprints, 0, code) is not None
    assert stored_picks(arena.root, key, fingerprints, 1, code) is None
    assert stored_picks(arena.root, key, fingerprints, 0, "f" * 16) is None
    assert stored_picks(arena.root, key.model_copy(update={"predictor": "mlp"}), fingerprints, 0, code) is None
    assert stored_picks(arena.root, key.model_copy(update={"split": "models"}), fingerprints, 0, code) is None


def test_stored_picks_of_code_without_source_are_not_offered(arena, written):
    key = arena.key("lowbit-random", "s8")
    change(written, 0, "code_fingerprint", to=None)
    assert stored_picks(arena.root, key, arena.scored(key, 0.01).fingerprints, 0, None) is None


def test_stored_picks_are_found_by_code_whatever_the_version(arena, written):
    key, code = arena.key("lowbit-random", "s8"), code_fingerprint("gbdt")
    arena.submit("gbdt", 0.5, [key.model_copy(update={"version": "2"})])
    change(written.with_name("2.json"), 0, "code_fingerprint", to="f" * 16)
    result, _ = stored_picks(arena.root, key, arena.scored(key, 0.01).fingerprints, 0, code)
    assert result.key.version == "1"
    result, _ = stored_picks(arena.root, key, arena.scored(key, 0.01).fingerprints, 0, "f" * 16)
    assert result.key.version == "2"


def test_stored_picks_do_not_offer_failures_or_damaged_files(arena, written):
    key = arena.key("lowbit-random", "s8")
    fingerprints = arena.scored(key, 0.01).fingerprints
    written.with_suffix(".parquet").write_bytes(b"PAR1")
    assert stored_picks(arena.root, key, fingerprints, 0, code_fingerprint("gbdt")) is None
    arena.submit("gbdt", 0, [key], reason="it raised")
    assert stored_picks(arena.root, key, fingerprints, 0, code_fingerprint("gbdt")) is None


@pytest.fixture
def honest(arena, written):
    return arena, written, written.read_text()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    value=st.none() | st.integers() | st.floats() | st.text(max_size=8),
    field=st.sampled_from(
        ["key", "fingerprints", "figures", "seed", "status", "reason", "picks_fingerprint", "code_fingerprint"]
    ),
    data=st.data(),
)
def test_check_of_a_mangled_result_raises_only_submission_errors(honest, field, value, data):
    arena, path, text = honest
    raw = json.loads(text)
    result = raw["results"][0]
    if isinstance(result[field], dict):
        result[field][data.draw(st.sampled_from(sorted(result[field])))] = value
    else:
        result[field] = value
    path.write_text(json.dumps(raw))
    try:
        found = check(path, arena.root)
    except SubmissionError:
        return
    assert all(f.path == path for f in found)


@pytest.mark.parametrize("path", submission_paths(CHECKOUT), ids=lambda p: "/".join(p.parts[-4:]))
def test_committed_submission_follows_from_its_picks(path):
    assert check(path, CHECKOUT) == []


@pytest.mark.parametrize("path", submission_paths(CHECKOUT), ids=lambda p: "/".join(p.parts[-4:]))
def test_committed_submission_of_ours_is_of_the_present_code(path):
    """Or `score` would train again instead of taking its picks. If this fails: ``tilearena submit --refit``."""
    manifest = json.loads(path.read_text())
    if manifest["submitter"] == "tilearena":
        for result in manifest["results"]:
            assert result["code_fingerprint"] == code_fingerprint(result["key"]["predictor"])
