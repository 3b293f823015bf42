"""The bench with a replay in place of the GPU: what trains, and that the fresh run comes after the picks are fixed."""

from contextlib import nullcontext

import pytest

from tilearena import bench_live, dataset, measure, predict
from tilearena.dataset import Candidate, Recording
from tilearena.errors import RecordingError
from tilearena.measure import Session
from tilearena.records import Measurement, Status
from tilearena.replay import ReplayRunner
from tilearena.spec import load_space, load_workload


@pytest.fixture(autouse=True)
def no_warm_up(monkeypatch):
    monkeypatch.setattr(measure, "WARM_UP_S", 0.0)


class Noting(ReplayRunner):
    """Replays, and notes in ``events`` which candidates were asked for under which seed."""

    def __init__(self, recording, events):
        super().__init__(recording)
        self.events = events

    def measure(self, problem, protocol, which, order):
        self.events.append((protocol.seed, problem, tuple(which)))
        return super().measure(problem, protocol, which, order)


class WithVendor(ReplayRunner):
    """Replays, with a vendor's kernel that takes twice as long as the default and refuses every other problem."""

    def __init__(self, recording):
        super().__init__(recording)
        self.candidates = (*self.candidates, Candidate(id="vendor", origin="vendor"))
        self.default, self.problems = recording.header.default, recording.table.problems.tolist()

    def measure(self, problem, protocol, which, order):
        return [
            self._vendor(problem, protocol)
            if i == 10
            else super(WithVendor, self).measure(problem, protocol, [i], order)[0]
            for i in which
        ]

    def _vendor(self, problem, protocol):
        shape = {"m": problem.m, "n": problem.n, "k": problem.k, "candidate": 10}
        if self.problems.index([problem.m, problem.n, problem.k]) % 2:
            return Measurement(**shape, status=Status.INFEASIBLE, reason="the kernel cannot implement this problem")
        (row,) = super().measure(problem, protocol, [self.default], None)
        return Measurement(
            **shape, status=Status.OK, elapsed_ns=tuple(2 * t for t in row.elapsed_ns), launches=row.launches
        )


@pytest.fixture
def quick(recorded):
    """The recording of quick, s8, cold and the session that it was taken in."""
    recording = recorded("quick", "s8", "cold")
    workload, space = load_workload("quick"), load_space("paper9")
    return recording, Session(workload, space, workload.problems_for("s8"), recording.header.protocol)


@pytest.fixture
def events(monkeypatch):
    """In order: what runners were asked for, and when a prediction was done."""
    events = []
    for name in ("cross_fit", "fit_predict"):
        original = getattr(predict, name)

        def noting(predictor, *arguments, _name=name, _original=original, **options):
            prediction = _original(predictor, *arguments, **options)
            events.append((_name, predictor))
            return prediction

        monkeypatch.setattr(predict, name, noting)
    return events


def figure(score, name):
    return score.figures[name].value


def test_live_bench_on_a_recorded_card_trains_on_its_recording(checkout, tmp_path, quick, events):
    recording, session = quick
    assert bench_live.session_for(checkout, "nvidia-h200", session) is session
    default, nearest, oracle = bench_live.bench_dtype(
        checkout, tmp_path, session, lambda _: nullcontext(Noting(recording, events)), ["default", "nearest", "oracle"]
    )
    assert [r.trained for r in (default, nearest, oracle)] == ["recorded", "recorded", "first pass"]
    assert (default.first.key.split, default.first.key.train_spec) == ("models", "lowbit-random")
    # a replay answers the fresh run with the times of the first pass
    for result in (default, nearest, oracle):
        assert figure(result.fresh, "speedup_geomean") == pytest.approx(
            figure(result.first, "speedup_geomean"), rel=1e-12
        )
        assert (result.vendor_speedup, result.vendor_problems) == (None, 0)
    assert figure(default.fresh, "speedup_geomean") == 1
    assert figure(oracle.first, "top1") == 1
    assert 1 < figure(nearest.fresh, "speedup_geomean") <= figure(oracle.fresh, "speedup_geomean")
    seed = session.protocol.seed
    first, fresh = 42, 42
    assert events[:first] == [(seed, p, tuple(range(10))) for p in session.problems]
    assert events[first:-fresh] == [("fit_predict", "default"), ("fit_predict", "nearest"), ("cross_fit", "oracle")]
    picks = [r.prediction.picks[:, 0] for r in (nearest, oracle)]
    assert events[-fresh:] == [
        (seed + 1, p, tuple(sorted({recording.header.default, *(int(pick[i]) for pick in picks)})))
        for i, p in enumerate(session.problems)
    ]
    kept = dataset.read(dataset.path_for(tmp_path, recording.header))
    assert kept.rows.equals(recording.rows)


def test_live_bench_on_another_card_cross_validates_and_shows_transfer_apart(
    checkout, tmp_path, quick, recorded, events, monkeypatch
):
    monkeypatch.setattr(bench_live, "CROSS_VALIDATED", 60)
    other = recorded("lowbit-random", "s8", "cold")
    device = other.header.device.model_copy(update={"slug": "another-card"})
    other = Recording(other.header.model_copy(update={"device": device}), other.rows.slice(0, 600))
    session = bench_live.session_for(checkout, "another-card", quick[1])
    assert (session.workload.name, len(session.problems)) == ("lowbit-random-60", 60)
    results = bench_live.bench_dtype(
        checkout, tmp_path, session, lambda _: nullcontext(Noting(other, events)), ["nearest", "oracle"]
    )
    assert [(r.prediction.name, r.trained) for r in results] == [
        ("nearest", "cross-validated"), ("nearest", "transfer"), ("oracle", "first pass")
    ]  # fmt: skip
    own, transfer, _ = results
    assert (own.first.key.split, own.first.key.train_spec) == ("random", "lowbit-random-60")
    assert (transfer.first.key.split, transfer.first.key.device) == ("models", "another-card")
    assert [e for e in events if len(e) == 2] == [
        ("cross_fit", "nearest"),
        ("fit_predict", "nearest"),
        ("cross_fit", "oracle"),
    ]
    # the tested shapes are left out of what trains, else the nearest problem would be the tested one itself
    assert figure(transfer.first, "top1") < 1
    assert (tmp_path / "baselines/recordings/another-card/lowbit-random-60/gemm.paper9.s8.cold.parquet").is_file()


def test_vendor_is_compared_where_it_ran(checkout, tmp_path, quick):
    recording, session = quick
    (default,) = bench_live.bench_dtype(
        checkout, tmp_path, session, lambda _: nullcontext(WithVendor(recording)), ["default"]
    )
    assert default.vendor_speedup == pytest.approx(2, rel=1e-12)
    assert default.vendor_problems == 21
    assert default.table.time_ns.shape == (42, 9)


def test_live_bench_without_predictors_is_refused(checkout, tmp_path, quick):
    recording, session = quick
    with pytest.raises(RecordingError, match="no predictor was asked for"):
        bench_live.bench_dtype(checkout, tmp_path, session, lambda *_: nullcontext(ReplayRunner(recording)), [])
