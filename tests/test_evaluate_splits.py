"""Splits from recordings to submissions: what trains, what is asked, what is written, and that `check` bears it out."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tilearena import dataset, predict, submission
from tilearena.check import check
from tilearena.errors import RecordingError, SpecError, SubmissionError
from tilearena.evaluate import Subject, evaluate
from tilearena.final import is_final
from tilearena.manifest import Manifest
from tilearena.picks import picks_fingerprint, write_picks
from tilearena.root import path_for
from tilearena.score import constant_pick
from tilearena.splits import LARGE_MACS

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def subject(split, spec="lowbit-full", device="synthetic-device", **options):
    return Subject(spec, "paper9", "s8", "cold", device, split, **options)


def copy_to(root, path, slug, sm_count, *, product=None, rows=slice(None), scale=1):
    """The recording at ``path`` as one of another device: some of its problems, all times ``scale`` times as long."""
    recording = dataset.read(path)
    header = recording.header
    device = header.device.model_copy(update={"slug": slug, "sm_count": sm_count, "sm_total": header.device.sm_count})
    if product:
        device = device.model_copy(update={"product": product})
    taken = recording.rows.to_pylist()
    kept = {tuple(p) for p in recording.table.problems[rows].tolist()}
    taken = [
        row | {"elapsed_ns": [t * scale for t in row["elapsed_ns"]]}
        for row in taken
        if (row["m"], row["n"], row["k"]) in kept
    ]
    header = header.model_copy(update={"device": device})
    place = path_for(root, header)
    return dataset.write(place, header, pa.Table.from_pylist(taken, schema=dataset.COLUMNS))


@pytest.fixture
def full(arena):
    """80 problems under the name of lowbit-full, recorded on a whole device and on partitions of it."""
    shapes = np.unique(arena.shapes(80, seed=3), axis=0)
    path = arena.record("lowbit-full", "s8", shapes, vendor=1.5)
    headers = {
        slug: copy_to(arena.root, path, slug, count, rows=rows, scale=scale)
        for slug, count, rows, scale in (
            ("synthetic-device-sm72", 72, slice(0, 50), 4),
            ("synthetic-device-sm112", 112, slice(10, 70), 2),
            ("synthetic-device-sm88", 88, slice(20, 60), 3),
            ("synthetic-device.abc123", 132, slice(0, 30), 1),
        )
    }
    copy_to(arena.root, path, "another-device", 100, product="Another product")
    return arena, dataset.read(path), headers


@pytest.fixture
def fits(monkeypatch):
    """The folds of every fit."""
    found, cross_fit = [], predict.cross_fit

    def noting(name, folds, *arguments, **options):
        found.append(folds)
        return cross_fit(name, folds, *arguments, **options)

    monkeypatch.setattr(predict, "cross_fit", noting)
    return found


def submitted(root, scored):
    return submission.write(root, scored, submitter="me", created_at=NOW)


def test_random_and_final_of_lowbit_full_part_its_problems(full):
    arena, recording, _ = full
    locked = is_final(recording.table.problems)
    assert 5 < locked.sum() < 40
    results = {split: evaluate(arena.root, subject(split), ["nearest"])[0] for split in ("random", "final")}
    for split, rows in (("random", ~locked), ("final", locked)):
        scored = results[split]
        assert scored.score.n_problems == scored.score.n_vendor + (recording.table.problems[rows][:, 0] < 17).sum()
        assert scored.score.n_problems == rows.sum()
        assert scored.score.n_failed == 0
        assert (scored.picks[rows] >= 0).all()
        assert (scored.picks[~rows] == -1).all()
        best = recording.table.time_ns.min(axis=1)[rows]
        picked = recording.table.time_ns[np.flatnonzero(rows), scored.picks[rows, 0]]
        assert scored.score.figures["regret_mean"].value == pytest.approx((picked / best - 1).mean(), rel=1e-12)
        assert scored.fingerprints.train == scored.fingerprints.test == recording.header.fingerprint
    path = submitted(arena.root, list(results.values()))
    assert check(path, arena.root) == []
    assert [r.label for r in submission.read(path).manifest.results] == ["s8/cold/random", "s8/cold/final"]


def test_check_refuses_picks_of_problems_that_the_split_does_not_test(full):
    arena, recording, _ = full
    path = submitted(arena.root, evaluate(arena.root, subject("random"), ["nearest"]))
    (picks,) = submission.read(path).picks
    row = int(np.flatnonzero(is_final(recording.table.problems))[0])
    picks[row] = np.arange(8)
    write_picks(path.with_suffix(".parquet"), [picks])
    raw = json.loads(path.read_text())
    raw["results"][0]["picks_fingerprint"] = picks_fingerprint(picks)
    path.write_text(json.dumps(raw))
    with pytest.raises(SubmissionError, match=f"s8/cold/random has a pick for problem {row}, which its split does not"):
        check(path, arena.root)


def test_extrapolate_is_one_fit_below_the_limit(full, fits):
    arena, recording, _ = full
    problems = recording.table.problems
    tested = ~is_final(problems) & (problems.prod(axis=1) >= LARGE_MACS)
    (scored,) = evaluate(arena.root, subject("extrapolate"), ["nearest"])
    ((fold,),) = fits
    assert (fold.train.problems.prod(axis=1) < LARGE_MACS).all()
    assert len(fold.train.problems) + tested.sum() == (~is_final(problems)).sum()
    assert (scored.score.n_problems, scored.score.n_failed) == (tested.sum(), 0)
    assert check(submitted(arena.root, [scored]), arena.root) == []


@pytest.mark.parametrize(
    ("tested", "order"),
    [
        ("synthetic-device", [112, 88, 72]),
        ("synthetic-device-sm112", [132, 88, 72]),  # 20, 24 and 40 away
        ("synthetic-device-sm88", [72, 112, 132]),  # 16, 24 and 44
        ("synthetic-device-sm72", [88, 112, 132]),
        ("synthetic-device.abc123", [112, 88, 72]),  # one card is no other device than its like
    ],
)
def test_device_trains_on_the_other_devices_of_the_product_nearest_first(full, fits, tested, order):
    arena, recording, _ = full
    (scored,) = evaluate(arena.root, subject("device", device=tested), ["constant"])
    (folds,) = fits
    assert len(folds) == 5
    own = dataset.read(path_for(arena.root, recording.header.model_copy(update={"device": on(recording, tested)})))
    for fold in folds:
        assert [part.task.device.sm_count for part in fold.train.tables] == order
        asked = set(map(tuple, own.table.problems[fold.test_rows].tolist()))
        for part in fold.train.tables:
            trained = set(map(tuple, part.problems.tolist()))
            assert trained
            assert not trained & asked
            assert not is_final(part.problems).any()
        constant = constant_pick(fold.train)
        assert (scored.picks[fold.test_rows, 0] == constant).all()
    assert scored.score.n_problems == (~is_final(own.table.problems)).sum()
    assert scored.score.figures["gap_closed"].value == 0
    assert check(submitted(arena.root, [scored]), arena.root) == []


def on(recording, slug):
    return recording.header.device.model_copy(update={"slug": slug})


def test_larger_of_two_devices_that_are_as_near_comes_first(full, fits):
    arena, recording, _ = full
    path = path_for(arena.root, recording.header)
    copy_to(arena.root, path, "synthetic-device-sm92", 92)
    evaluate(arena.root, subject("device", device="synthetic-device-sm92"), ["constant"])
    assert [part.task.device.sm_count for part in fits[0][0].train.tables] == [88, 112, 72, 132]  # 4, 20, 20 and 40


def test_device_result_names_every_training_recording(full):
    arena, recording, headers = full
    (scored,) = evaluate(arena.root, subject("device"), ["constant"])
    path = submitted(arena.root, [scored])
    (result,) = submission.read(path).manifest.results
    assert result.key.train_spec == "lowbit-full"
    assert result.fingerprints.test == recording.header.fingerprint
    assert result.fingerprints.train == headers["synthetic-device-sm112"].fingerprint
    assert result.fingerprints.others == {
        slug: headers[slug].fingerprint for slug in ("synthetic-device-sm88", "synthetic-device-sm72")
    }
    copy_to(arena.root, path_for(arena.root, recording.header), "synthetic-device-sm88", 88, scale=5)
    assert [f.field for f in check(path, arena.root)] == ["fingerprints.others"]


def test_device_without_another_device_is_refused(arena):
    sentence = (
        "split 'device' trains on lowbit-random (s8, cold) of other devices of the product "
        f"Synthetic device (formula, not measured), and none is recorded below {arena.root}; "
        "measure a partition of its SMs (--sms)"
    )
    with pytest.raises(RecordingError, match=f"^{re.escape(sentence)}$"):
        evaluate(arena.root, subject("device", spec="lowbit-random"), ["constant"])


def test_models_may_train_on_lowbit_full(full, fits):
    arena, recording, _ = full
    keys = [subject("models", spec="networks", train_spec=spec) for spec in (None, "lowbit-random", "lowbit-full")]
    usual, same, other = (evaluate(arena.root, key, ["nearest"])[0] for key in keys)
    assert usual.score.key == same.score.key
    assert (usual.score.key.train_spec, other.score.key.train_spec) == ("lowbit-random", "lowbit-full")
    assert other.fingerprints.train == recording.header.fingerprint
    assert len(fits[2][0].train.problems) == (~is_final(recording.table.problems)).sum()
    path = submitted(arena.root, [usual, other])
    assert check(path, arena.root) == []
    labels = [r.label for r in submission.read(path).manifest.results]
    assert labels == ["s8/cold/models", "s8/cold/models/lowbit-full"]
    with pytest.raises(SpecError, match="split 'models' trains on lowbit-random or lowbit-full, not on 'quick'"):
        evaluate(arena.root, subject("models", spec="networks", train_spec="quick"), ["nearest"])


def test_submission_of_before_these_splits_is_read(arena, written):
    raw = json.loads(written.read_text())
    for result in raw["results"]:
        assert result["fingerprints"].pop("others") == {}
        assert result.pop("isolated") is None
    written.write_text(json.dumps(raw))
    assert check(written, arena.root) == []
    assert Manifest.model_validate(raw).results[0].isolated is None


@pytest.mark.parametrize(
    ("options", "last"),
    [
        (["--spec", "lowbit-full", "--split", "final"], "lowbit-full s8 cold final"),
        (["--spec", "lowbit-full", "--split", "device"], "lowbit-full s8 cold device"),
        (["--spec", "networks", "--split", "models", "--train-spec", "lowbit-full"], "networks s8 cold models"),
    ],
)
def test_command_line_scores_every_split(full, run, options, last):
    arena = full[0]
    shared = ["--device", "synthetic-device", "--dtype", "s8", "--predictor", "constant", "--root", arena.root]
    code, out, _ = run("score", *options, *shared, "--memory-limit", "1", "--json")
    (row,) = json.loads(out)
    assert code == 0
    assert f"{row['spec']} {row['dtype']} {row['protocol']} {row['split']}" == last
    assert row["train_spec"] == "lowbit-full"


def test_command_line_names_a_wrong_training_spec(full, run):
    code, _, err = run(
        "score", "--spec", "networks", "--device", "synthetic-device", "--split", "models", "--train-spec", "quick"
    )
    assert (code, err) == (
        2,
        "tilearena: --train-spec 'quick' is unknown; choose from lowbit-random, lowbit-full\n",
    )


def test_submit_never_takes_final_unasked(full, run):
    arena = full[0]
    shared = ["--device", "synthetic-device", "--protocol", "cold", "--predictor", "constant", "--root", arena.root]
    for spec, expected in (("lowbit-full", {"random"}), ("networks", {"random", "models"})):
        code, out, err = run("submit", "--spec", spec, "--dtype", "s8", "--submitter", "me", *shared)
        assert code == 0, err
        manifest = submission.read(Path(out.strip())).manifest
        assert {result.key.split for result in manifest.results} == expected
