"""The first k picks measured with a formula or a recording in place of the GPU, and the fastest kept."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from inprocess import InProcessHand
from standin import DEFAULT, DEVICE, StandInRunner, StandInTrial, formula_ns, templates
from sweeping import session

from tilearena import measured_k, unscreened
from tilearena.dataset import Recording
from tilearena.measured_k import FirstSamples, MeasuredK
from tilearena.records import Status
from tilearena.table import Table, Task
from tilearena.unscreened import by_hand, by_runner

#: First picks of the three problems: the default, nothing, and one that fails where a test plants it.
PICKS = np.array([[1, 8, 0], [-1, -1, -1], [4, 1, -1]])


@pytest.fixture
def three():
    """Three problems of quick, s8, cold."""
    return session("quick", 3)


@pytest.fixture
def table(three):
    """The formula's times of them."""
    space = templates("s8")
    shapes = np.array([[p.m, p.n, p.k] for p in three.problems])
    times = np.array([[formula_ns(shape, template) for template in space] for shape in shapes.tolist()])
    return Table(Task("gemm", "s8", None, "paper9", space, DEFAULT, DEVICE, "cold"), shapes, times)


def found_by(runner, three, table, *, picks=PICKS, fresh=True, measure=None, **options):
    return measured_k.measured_k(
        measure or by_runner(runner), three.protocol, three.problems, picks, table, fresh=fresh, **options
    )


def test_fastest_of_the_picks_is_kept_and_judged_by_recording_and_fresh_run(three, table):
    found = found_by(StandInRunner(noise=0.0), three, table)
    kept = [min(row, key=lambda t: table.time_ns[p, t]) for p, row in ((0, [1, 8, 0]), (2, [4, 1]))]
    assert found.kept.tolist() == [kept[0], -1, kept[1]]
    best, slowest = table.time_ns.min(axis=1), table.time_ns.max(axis=1)
    times = np.array([table.time_ns[0, kept[0]], slowest[1], table.time_ns[2, kept[1]]])
    assert found.regret == pytest.approx(times / best - 1)
    first = np.array([table.time_ns[0, 1], slowest[1], table.time_ns[2, 4]])
    assert found.first_regret == pytest.approx(first / best - 1)
    # where nothing was kept, the fresh run timed the recorded best alone
    live = found.regret.copy()
    live[1] = 0
    assert found.live_regret == pytest.approx(live, rel=1e-2)
    assert (found.n_failed, found.slowed) == (0, False)


def test_choice_takes_as_many_samples_of_all_picks_and_the_fresh_run_adds_the_recorded_best(three, table):
    asked, orders = [], []

    class Noting(StandInTrial):
        def submit(self, order):
            orders.append(Counter(order))
            super().submit(order)

    class Runner(StandInRunner):
        trial_type = Noting

    hand = InProcessHand(Runner(noise=0.0), asked=asked)
    found = found_by(None, three, table, measure=by_hand(hand))
    best = table.time_ns.argmin(axis=1).tolist()
    chosen, seed = [{0, 1, 8}, {1, 4}], three.protocol.seed
    judged = [{0, 1, 8, best[0]}, {best[1]}, {1, 4, best[2]}]
    assert [(set(which), turn) for _, which, turn in asked] == [
        *((templates, seed + 1) for templates in chosen),
        *((templates, seed + 2) for templates in judged),
    ]
    assert [problem for problem, *_ in asked] == [three.problems[i] for i in (0, 2, 0, 1, 2)]
    assert orders == [dict.fromkeys(templates, three.protocol.rounds) for templates in [*chosen, *judged]]
    timed_ns = sum(table.time_ns[0, [0, 1, 8]].round()) + sum(table.time_ns[2, [1, 4]].round())
    assert found.timed_s == pytest.approx(three.protocol.rounds * timed_ns * 1e-9)
    assert found.seconds > 0


def test_pick_that_fails_is_not_kept_and_counts(three, table):
    shape = tuple(table.problems[2].tolist())
    found = found_by(StandInRunner(noise=0.0, faults=[("wrong", shape, 4)]), three, table)
    assert (found.kept[2], found.n_failed) == (1, 1)
    found = found_by(StandInRunner(noise=0.0, faults=[("wrong", shape, None)]), three, table)
    assert (found.kept[2], found.n_failed) == (-1, 2)
    assert found.regret[2] == table.time_ns[2].max() / table.time_ns[2].min() - 1
    assert np.isnan(found.live_regret[2])  # there the recorded best failed, too


def test_samples_of_noise_lose_what_the_recording_says(three, table):
    """Two templates of equal times but for the noise: what chooses is not what judges."""
    equal = replace(table, time_ns=np.full((3, 9), 1000.0))
    found = found_by(StandInRunner(noise=0.05), three, equal, picks=np.tile(np.arange(9), (3, 1)))
    assert found.regret.tolist() == [0, 0, 0]
    assert (found.live_regret >= 0).all()


def test_batches_are_reported_and_their_costs_added(three, table, monkeypatch):
    monkeypatch.setattr(unscreened, "BATCH_PROBLEMS", 1)
    seen, one = [], by_runner(StandInRunner(noise=0.0))

    def slow(order):
        return replace(one(order), seconds=2.0, slowed=order.problems[0] == three.problems[2])

    found = found_by(None, three, table, measure=slow, fresh=False, progress=lambda *told: seen.append(told))
    assert seen == [(0, 2, "choosing"), (1, 2, "choosing")]
    assert (found.seconds, found.slowed, found.live_regret) == (4.0, True, None)


def test_flat_has_means_with_intervals_and_costs_of_a_problem():
    regret = np.array([0.0, 0.5])
    one = MeasuredK(np.array([3, 4]), 2 * regret, regret, np.array([np.nan, 0.25]), 1, 0.5, 3.0, False)
    flat = one.flat(np.arange(2))
    assert (flat["n_problems"], flat["n_failed"], flat["slowed"]) == (2, 1, False)
    assert [flat[f"{name}_mean"] for name in ("first_regret", "regret", "live_regret")] == [0.5, 0.25, 0.25]
    assert (flat["regret_mean_lo"], flat["regret_mean_hi"]) == (0, 0.5)
    assert (flat["timed_s_per_problem"], flat["seconds_per_problem"]) == (0.25, 1.5)
    assert replace(one, live_regret=None).flat(np.arange(2))["live_regret_mean"] is None


def test_replay_chooses_by_the_recorded_screen_and_is_judged_by_fresh_samples(recorded):
    recording = recorded("quick", "s8", "cold")
    whole, runner = recording.table, FirstSamples(recording)
    few = session("quick", None)
    by_shape = {(p.m, p.n, p.k): p for p in few.problems}
    problems = [by_shape[tuple(shape)] for shape in whole.problems.tolist()]
    protocol = few.protocol.model_copy(update={"rounds": runner.rounds})
    picks = np.tile([0, 4, 6, 8], (len(problems), 1))
    found = measured_k.measured_k(by_runner(runner), protocol, problems, picks, whole, fresh=False)
    assert runner.rounds == recording.header.protocol.screen_rounds == 3
    assert found.kept.tolist() == [min(picks[p], key=lambda t, p=p: screen(recording, p, t)) for p in range(42)]
    kept_ns = np.take_along_axis(whole.time_ns, found.kept[:, None], axis=1)[:, 0]
    assert found.regret.tolist() == (kept_ns / whole.time_ns.min(axis=1) - 1).tolist()


def screen(recording: Recording, problem: int, template: int) -> float:
    """Median of the first three samples."""
    m, n, k = recording.table.problems[problem].tolist()
    rows = recording.rows.to_pylist()
    row = next(r for r in rows if (r["m"], r["n"], r["k"], r["candidate"]) == (m, n, k, template))
    return float(np.median(row["elapsed_ns"][:3])) if row["status"] == Status.OK else np.inf
