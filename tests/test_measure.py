"""Measuring with runners that answer from a recording or from a formula: order, parts, failures, noise floor."""

import json

import numpy as np
import pytest

from tilearena import __version__, dataset, measure
from tilearena.errors import DeviceFailedError, MeasureError
from tilearena.measure import Session, measure_problem, noise_floor, record, turns
from tilearena.records import Measurement, Problem, Protocol, Status
from tilearena.replay import ReplayRunner
from tilearena.spec import load_space, load_workload

COLD = Protocol(name="cold", rounds=8, seed=5)
SHAPE = Problem(dtype="s8", m=7, n=64, k=128)


@pytest.fixture(autouse=True)
def no_warm_up(monkeypatch):
    monkeypatch.setattr(measure, "WARM_UP_S", 0.0)


@pytest.fixture(scope="module")
def quick(recorded):
    return recorded("quick", "s8", "cold")


@pytest.fixture
def session(quick):
    """The first 12 problems of quick, s8, cold."""
    workload, space = load_workload("quick"), load_space("paper9")
    return Session(workload, space, workload.problems_for("s8")[:12], quick.header.protocol)


class Breaking(ReplayRunner):
    """Replays, notes which problems it was asked for, and fails at the one with a given number."""

    def __init__(self, recording, breaks_at=None):
        super().__init__(recording)
        self.asked, self.breaks_at = [], breaks_at

    def measure(self, problem, protocol, which, order):
        if len(self.asked) == self.breaks_at:
            raise MeasureError("the GPU failed: an illegal address")
        self.asked.append(problem)
        return super().measure(problem, protocol, which, order)


class Failing(ReplayRunner):
    """Replays, but candidate 3 is wrong on every problem."""

    def measure(self, problem, protocol, which, order):
        rows = super().measure(problem, protocol, which, order)
        wrong = {"status": Status.WRONG_RESULT, "reason": "row 0 of the output is wrong"}
        shape = {"m": problem.m, "n": problem.n, "k": problem.k}
        return [Measurement(**shape, candidate=3, **wrong) if r.candidate == 3 else r for r in rows]


def row_keys(rows):
    return [(r["m"], r["n"], r["k"], r["candidate"]) for r in rows.to_pylist()]


def test_turns_are_a_permutation_for_each_round():
    order = turns(SHAPE, COLD, 10)
    assert order.shape == (8, 10)
    assert (np.sort(order, axis=1) == np.arange(10)).all()
    assert len(np.unique(order, axis=0)) == 8


def test_turns_depend_on_problem_and_seed_alone():
    assert (turns(SHAPE, COLD, 10) == turns(SHAPE, COLD.model_copy(update={"name": "hot"}), 10)).all()
    others = [
        turns(SHAPE, COLD.model_copy(update={"seed": 6}), 10),
        *(turns(SHAPE.model_copy(update=change), COLD, 10) for change in ({"m": 8}, {"n": 128}, {"k": 64})),
    ]
    assert all((turns(SHAPE, COLD, 10) != other).any() for other in others)


def test_every_candidate_comes_first_sometimes():
    first = [turns(SHAPE.model_copy(update={"m": m}), COLD, 10)[:, 0] for m in range(1, 51)]
    counts = np.bincount(np.concatenate(first), minlength=10)
    assert counts.min() > 15  # 400 draws among 10; 40 expected
    assert counts.max() < 75


def test_runner_gets_the_turns_of_the_candidates_that_are_asked_for(quick):
    class Noting(ReplayRunner):
        def measure(self, problem, protocol, which, order):
            self.order = order
            return super().measure(problem, protocol, which, order)

    runner, problem = Noting(quick), load_workload("quick").problems_for("s8")[0]
    rows = measure_problem(runner, problem, quick.header.protocol, [4, 1, 9])
    assert [row.candidate for row in rows] == [4, 1, 9]
    assert (runner.order == turns(problem, quick.header.protocol, 3)).all()


def test_record_of_a_replay_has_the_rows_of_the_recording(session, quick, tmp_path):
    seen = []
    header = record(session, ReplayRunner(quick), tmp_path / "r.parquet", progress=lambda *a: seen.append(a))
    again = dataset.read(tmp_path / "r.parquet")
    assert again.rows.to_pylist() == quick.rows.slice(0, 120).to_pylist()
    assert again.header == header
    assert [(done, total) for done, total, _ in seen] == [(i, 12) for i in range(1, 13)]
    assert [path.name for path in tmp_path.iterdir()] == ["r.parquet"]


def test_header_says_what_was_measured_and_how(session, quick, tmp_path):
    header = record(session, ReplayRunner(quick), tmp_path / "r.parquet")
    same = ("op", "spec", "spec_fingerprint", "space", "space_fingerprint", "dtype", "bit_op", "protocol", "device")
    for name in (*same, "support", "candidates", "default"):
        assert getattr(header, name) == getattr(quick.header, name), name
    assert not set(header.sessions) & set(quick.header.sessions)
    assert header.started_at > quick.header.started_at
    assert header.versions == quick.header.versions | {"tilearena": __version__}
    assert header.empty_interval_ns == quick.header.empty_interval_ns
    assert header.noise_floor == noise_floor(dataset.read(tmp_path / "r.parquet"))


def test_failed_candidate_is_a_row_and_the_rest_are_measured(session, quick, tmp_path):
    record(session, Failing(quick), tmp_path / "r.parquet")
    recording = dataset.read(tmp_path / "r.parquet")
    rows = recording.rows.to_pylist()
    failed = [row for row in rows if row["status"] != "ok"]
    assert [row["candidate"] for row in failed] == [3] * 12
    assert {(row["status"], row["reason"]) for row in failed} == {("wrong_result", "row 0 of the output is wrong")}
    assert len(rows) == 120
    assert np.isinf(recording.table.time_ns[:, 3]).all()
    assert np.isfinite(np.delete(recording.table.time_ns, 3, axis=1)).all()


def test_interrupted_session_goes_on_where_it_stopped(session, quick, tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "PART_PROBLEMS", 4)
    path = tmp_path / "r.parquet"
    with pytest.raises(MeasureError, match="illegal address"):
        record(session, Breaking(quick, breaks_at=7), path)
    assert not path.exists()
    (parts,) = tmp_path.iterdir()
    assert sorted(p.name for p in parts.iterdir()) == ["00000.parquet", "00001.parquet", "header.json", "lock"]
    begun = json.loads((parts / "header.json").read_text())
    runner = Breaking(quick)
    header = record(session, runner, path)
    assert runner.asked == list(session.problems[7:])
    assert header.started_at == begun["started_at"]
    assert header.sessions[0] == begun["sessions"][0]
    assert len(set(header.sessions)) == 2
    keys = row_keys(dataset.read(path).rows)
    assert keys == [(p.m, p.n, p.k, c) for p in session.problems for c in range(10)]
    assert not parts.exists()


def test_device_that_fails_at_a_problem_leaves_failed_rows_and_the_next_run_goes_on(session, quick, tmp_path):
    class Faulting(Breaking):
        def measure(self, problem, protocol, which, order):
            if problem == session.problems[5]:
                raise DeviceFailedError("the GPU failed at 1x2x3 s8: an illegal address")
            return super().measure(problem, protocol, which, order)

    path = tmp_path / "r.parquet"
    with pytest.raises(DeviceFailedError, match="illegal address"):
        record(session, Faulting(quick), path)
    record(session, Faulting(quick), path)
    recording = dataset.read(path)
    failed = [row for row in recording.rows.to_pylist() if row["status"] != "ok"]
    bad = session.problems[5]
    assert {(row["m"], row["n"], row["k"], row["status"]) for row in failed} == {(bad.m, bad.n, bad.k, "launch_failed")}
    assert len(failed) == 10
    assert failed[0]["reason"].endswith("an illegal address")
    assert len(row_keys(recording.rows)) == 120


def test_two_processes_do_not_share_parts(session, quick, tmp_path):
    path = tmp_path / "r.parquet"

    class Nested(Breaking):
        def measure(self, problem, protocol, which, order):
            with pytest.raises(MeasureError, match=r"another process is measuring into .*; wait for it"):
                record(session, Breaking(quick), path)
            return super().measure(problem, protocol, which, order)

    record(session, Nested(quick), path)
    assert len(row_keys(dataset.read(path).rows)) == 120


def test_run_that_does_not_resume_measures_everything_again(session, quick, tmp_path):
    path = tmp_path / "r.parquet"
    with pytest.raises(MeasureError):
        record(session, Breaking(quick, breaks_at=2), path)
    runner = Breaking(quick)
    header = record(session, runner, path, resume=False)
    assert runner.asked == list(session.problems)
    assert len(header.sessions) == 1


def test_session_of_another_card_does_not_take_the_parts(session, quick, tmp_path):
    path = tmp_path / "r.parquet"
    with pytest.raises(MeasureError):
        record(session, Breaking(quick, breaks_at=2), path)
    other = Breaking(quick)
    other.device = quick.header.device.model_copy(update={"uuid_sha256": "another card"})
    record(session, other, path)
    assert len(other.asked) == 12
    assert len(row_keys(dataset.read(path).rows)) == 120


def test_problems_of_a_part_that_was_deleted_are_measured_again(session, quick, tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "PART_PROBLEMS", 2)
    path = tmp_path / "r.parquet"
    with pytest.raises(MeasureError):
        record(session, Breaking(quick, breaks_at=6), path)
    (parts,) = tmp_path.iterdir()
    (parts / "00001.parquet").unlink()
    runner = Breaking(quick)
    record(session, runner, path)
    assert runner.asked == [*session.problems[2:4], *session.problems[6:]]
    assert sorted(row_keys(dataset.read(path).rows)) == sorted(
        (p.m, p.n, p.k, c) for p in session.problems for c in range(10)
    )


@pytest.mark.parametrize("name", ["00000.parquet", "header.json"])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_damaged_part_is_named(session, quick, tmp_path, name, share):
    path = tmp_path / "r.parquet"
    with pytest.raises(MeasureError):
        record(session, Breaking(quick, breaks_at=3), path)
    (parts,) = tmp_path.iterdir()
    data = (parts / name).read_bytes()
    (parts / name).write_bytes(data[: int(share * len(data))])
    with pytest.raises(MeasureError) as caught:
        record(session, Breaking(quick), path)
    assert str(caught.value).startswith(f"{parts / name} is damaged; delete ")
    assert "\n" not in str(caught.value)


def test_noise_floor_is_the_95th_percentile_of_default_against_control(quick):
    def row(m, candidate, *elapsed_ns, launches=1):
        samples = {"elapsed_ns": elapsed_ns, "launches": launches, "status": Status.OK}
        return Measurement(m=m, n=8, k=16, candidate=candidate, **samples)

    default, control = quick.header.default, 9
    assert quick.header.candidates[control].origin == "control"
    # |difference| is 0, 1, ... 20 per cent: the 95th percentile of 21 values is the 20th
    rows = [r for i in range(21) for r in (row(i + 1, default, 1000), row(i + 1, control, 1000 + 10 * i * (-1) ** i))]
    assert noise_floor(dataset.Recording(quick.header, dataset.rows_from(rows))) == pytest.approx(0.19)
    rows = [row(1, default, 1000), row(1, control, 2040, launches=2), row(2, default, 1000)]
    assert noise_floor(dataset.Recording(quick.header, dataset.rows_from(rows))) == pytest.approx(0.02)
    assert noise_floor(dataset.Recording(quick.header, dataset.rows_from(rows[2:]))) is None


def test_noise_floor_of_a_recording_without_a_control_is_unknown(quick):
    header = quick.header.model_copy(update={"candidates": quick.header.candidates[:9]})
    assert noise_floor(dataset.Recording(header, quick.rows.slice(0, 9))) is None


def test_replay_refuses_another_protocol_and_what_was_not_recorded(quick):
    runner, problem = ReplayRunner(quick), load_workload("quick").problems_for("s8")[0]
    hot = Protocol(name="hot", rounds=8, seed=1)
    with pytest.raises(MeasureError, match="the recording is cold, so it cannot answer for hot"):
        measure_problem(runner, problem, hot, [0])
    with pytest.raises(MeasureError, match="7x64x128 with candidate 0 was not recorded"):
        measure_problem(runner, SHAPE, COLD, [0])
    with pytest.raises(MeasureError, match="with candidate 10 was not recorded"):
        measure_problem(runner, problem, COLD, [10])
