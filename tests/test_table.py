import json

import numpy as np
import pytest

from tilearena import dataset
from tilearena.leaderboard.table import (
    View,
    k_band,
    k_choices,
    load,
    picks_of,
    ranking,
    recording_path,
    regrets,
    slice_at,
    views,
)
from tilearena.table import Table

S8 = View(
    device="synthetic-device",
    spec="lowbit-random",
    dtype="s8",
    protocol="cold",
    split="random",
    space="paper9",
    op="gemm",
    support="native",
    train_spec="lowbit-random",
)


def row(predictor, top2, regret=0.01, status="ok", **other):
    return S8.model_dump() | {
        "predictor": predictor,
        "version": "1",
        "status": status,
        "top2": top2,
        "regret_mean": regret,
        **other,
    }


def edit(arena, predictor, change):
    """Change the results in a submission's JSON; its path."""
    path = arena.root / f"leaderboard/submissions/synthetic-device/lowbit-random/{predictor}/1.json"
    manifest = json.loads(path.read_text())
    change(manifest["results"])
    path.write_text(json.dumps(manifest))
    return path


@pytest.fixture
def board(arena):
    for predictor, noise in (("gbdt", 0.01), ("oracle", 0), ("constant", 0)):
        arena.submit(predictor, noise, [arena.key("lowbit-random", "s8"), arena.key("lowbit-random", "s4")])
    arena.submit("broken", 0, [arena.key("lowbit-random", "s8")], reason="it raised")
    return load(arena.root, arena.root)


def test_load_has_a_row_for_every_result(arena, board):
    assert board.refused == []
    assert len(board.rows) == 7
    first = next(r for r in board.rows if (r["predictor"], r["dtype"]) == ("gbdt", "s4"))
    path = arena.root / first["path"]
    assert path.parts[-4:] == ("synthetic-device", "lowbit-random", "gbdt", "1.json")
    figures = json.loads(path.read_text())["results"][first["result"]]["figures"]
    assert figures.items() <= first.items()
    assert first["support"] == "emulated"


def test_load_lists_a_bad_submission_and_keeps_the_others(arena, board):
    bad = arena.root / "leaderboard/submissions/synthetic-device/lowbit-random/mlp/1.json"
    bad.parent.mkdir()
    bad.write_text("{}")
    after = load(arena.root, arena.root)
    assert after.rows == board.rows
    (sentence,) = after.refused
    assert sentence.startswith(f"{bad}: schema version None")


def test_load_of_an_empty_root_is_empty(tmp_path):
    assert load(tmp_path, tmp_path).rows == []


def test_views_keep_emulated_results_apart(board):
    assert [(view.dtype, view.support) for view in views(board.rows)] == [("s8", "native"), ("s4", "emulated")]
    mixed = [row("gbdt", 0.9), row("mlp", 0.99, support="emulated")]
    assert [r["predictor"] for r in ranking(mixed, S8)] == ["gbdt"]


def test_views_keep_apart_what_was_trained_on_other_workloads():
    of_networks = {"spec": "networks", "split": "models"}
    rows = [row("gbdt", 0.9, **of_networks), row("gbdt", 0.95, **of_networks, train_spec="lowbit-full")]
    one, other = views(rows)
    assert (one.train_spec, other.train_spec) == ("lowbit-random", "lowbit-full")
    assert [r["top2"] for r in ranking(rows, one)] == [0.9]
    assert [r["top2"] for r in ranking(rows, other)] == [0.95]


def test_ranking_is_by_top2_then_regret_then_name():
    rows = [row("a", 0.9, 0.02), row("b", 0.95, 0.5), row("c", 0.9, 0.01), row("e", 0.9, 0.02), row("d", 0.9, 0.02)]
    ranked = ranking(rows, S8)
    assert [r["predictor"] for r in ranked] == ["b", "c", "a", "d", "e"]
    assert [r["place"] for r in ranked] == [1, 2, 3, 4, 5]


def test_ranking_gives_baselines_a_mark_and_no_place():
    rows = [row(name, top2) for name, top2 in (("default", 0.1), ("gbdt", 0.9), ("oracle", 1.0), ("constant", 0.5))]
    rows += [row("mlp", 0.3), row("nearest", 0.8)]
    shown = [(r["predictor"], r["baseline"], r["place"]) for r in ranking(rows, S8)]
    assert shown == [
        ("oracle", True, None),
        ("gbdt", False, 1),
        ("nearest", True, None),
        ("constant", True, None),
        ("mlp", False, 2),
        ("default", True, None),
    ]


def test_ranking_puts_failures_last_and_drops_none():
    rows = [row("x", 1.0, status="failed"), row("unknown", None), row("gbdt", 0.0), row("other", 0.9, dtype="b1")]
    shown = [(r["predictor"], r["place"]) for r in ranking(rows, S8)]
    assert shown == [("gbdt", 1), ("unknown", 2), ("x", None)]


def test_ranking_of_real_rows_leads_with_the_oracle(board):
    assert [r["predictor"] for r in ranking(board.rows, S8)] == ["oracle", "gbdt", "constant", "broken"]


def test_picks_of_a_row_are_those_of_its_recording(arena, board):
    gbdt = ranking(board.rows, S8)[1]
    recording = dataset.read(recording_path(arena.root, S8))
    picks = picks_of(arena.root, gbdt)
    assert picks.shape == (40, 8)
    assert regrets(recording.table, picks).mean() == pytest.approx(gbdt["regret_mean"], rel=1e-12)


@pytest.mark.parametrize(
    ("field", "forged", "claimed"),
    [("top2", 1.0, "1.0"), ("regret_mean", 0.0, "0.0"), ("n_failed", 1, "1"), ("top2", None, "None")],
)
def test_load_refuses_forged_figures_and_keeps_the_other_submissions(arena, board, field, forged, claimed):
    path = edit(arena, "gbdt", lambda results: results[0]["figures"].update({field: forged}))
    after = load(arena.root, arena.root)
    assert after.rows == [r for r in board.rows if r["predictor"] != "gbdt"]
    (sentence,) = after.refused
    honest = next(r for r in board.rows if r["predictor"] == "gbdt")[field]
    assert sentence == f"{path}: s8/cold/random: {field} is claimed as {claimed}, recomputed {honest}"


def test_load_counts_the_other_fields_that_do_not_hold(arena, board):
    edit(arena, "gbdt", lambda results: results[1]["figures"].update({"top1": 1.0, "top2": 1.0}))
    (sentence,) = load(arena.root, arena.root).refused
    assert ": s4/cold/random: top1 is claimed as 1.0" in sentence
    assert sentence.endswith(" (and 1 more)")


def test_load_shows_intervals_as_claimed(arena, board):
    edit(arena, "gbdt", lambda results: results[0]["figures"].update({"top2_lo": 0.125}))
    after = load(arena.root, arena.root)
    assert after.refused == []
    assert next(r for r in after.rows if r["predictor"] == "gbdt")["top2_lo"] == 0.125


def test_load_refuses_picks_that_know_the_answers(arena):
    shapes = np.unique(arena.shapes(400, seed=2), axis=0)
    arena.record("lowbit-random", "s8", shapes)
    arena.record("lowbit-random", "s8", shapes, seed=1, repeat=True)
    for predictor in ("gbdt", "oracle"):
        arena.submit(predictor, 0, [arena.key("lowbit-random", "s8")])
    after = load(arena.root, arena.root)
    assert [(r["predictor"], r["top2"]) for r in after.rows] == [("oracle", 1.0)]
    sentence = next(s for s in after.refused if "gbdt" in s)
    assert "top2 is claimed as at least 1.0, recomputed impossible: with ceiling_top2 at most 0." in sentence


def test_load_refuses_what_was_judged_by_another_recording(arena, board):
    arena.record("lowbit-random", "s8", arena.shapes(40, seed=0), seed=9)
    after = load(arena.root, arena.root)
    assert after.rows == []
    assert len(after.refused) == 4
    assert all("fingerprints.test is claimed as" in sentence for sentence in after.refused)


def test_load_refuses_what_has_no_recording(arena, board):
    recording_path(arena.root, S8).unlink()
    after = load(arena.root, arena.root)
    assert after.rows == []
    assert all("s8/cold/random cannot be recomputed" in sentence for sentence in after.refused)


@pytest.fixture
def table(arena):
    task = dataset.read(recording_path(arena.root, S8)).task
    times = np.full((4, 9), 40.0)
    times[0, 2], times[1, 8] = 10, 20
    times[2] = np.inf
    times[3, :8] = np.inf
    return Table(task, np.array([[1, 128, 4096], [64, 256, 5120], [1, 128, 4096], [7, 8, 128]]), times)


def test_regrets_are_of_the_first_pick_and_failures_cost_the_slowest(table):
    picks = np.array([[2, 0], [0, 8], [0, 1], [-1, -1]])
    np.testing.assert_array_equal(regrets(table, picks), [0, 1, np.nan, 0])
    np.testing.assert_array_equal(regrets(table, picks[:, ::-1]), [3, 0, np.nan, 0])


def test_k_band_takes_the_nearest_power_of_two():
    problems = np.array([[1, 8, k] for k in (128, 176, 192, 256, 352, 384)])
    assert k_choices(problems) == [128, 256, 512]
    assert problems[k_band(problems, 256), 2].tolist() == [192, 256, 352]
    assert problems[k_band(problems, 128), 2].tolist() == [128, 176]


def test_slice_names_best_and_pick_of_measured_problems(table):
    picks = np.array([[2, 0], [0, 8], [0, 1], [-1, -1]])
    chosen = slice_at(table, picks, 4096)
    assert chosen.problems[:, 0].tolist() == [1, 64]
    assert chosen.best == ["large/4", "small/4"]
    assert chosen.pick == ["large/4", "large/2"]
    assert chosen.regret.tolist() == [0, 1]
    assert slice_at(table, picks, 128).pick == ["none"]
