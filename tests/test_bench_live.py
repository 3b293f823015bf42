"""The bench with a formula in place of the GPU: what trains, and that the fresh run comes after the picks are fixed."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from inprocess import InProcessHand
from standin import DEFAULT, DEVICE, StandInRunner, StandInTrial, formula_ns, templates
from sweeping import session as session_of

from tilearena import bench_live, dataset, predict, unscreened
from tilearena.anchors import anchor_problems
from tilearena.bench_live import bench_dtype
from tilearena.dataset import Candidate
from tilearena.errors import RecordingError
from tilearena.final import is_final
from tilearena.root import find_path

VENDOR = "speedup_vs_cublaslt_geomean"
OTHER = DEVICE.model_copy(update={"slug": "another-card", "uuid_sha256": "another"})


@pytest.fixture
def session():
    """Quick, s8, cold."""
    return session_of()


@pytest.fixture
def events(monkeypatch):
    """In order: what hands were asked for (problem, candidates, seed), and when a prediction was done (two words)."""
    events = []
    for name in ("cross_fit", "fit_predict"):
        original = getattr(predict, name)

        def noting(predictor, *arguments, _name=name, _original=original, **options):
            prediction = _original(predictor, *arguments, **options)
            events.append((_name, predictor))
            return prediction

        monkeypatch.setattr(predict, name, noting)
    return events


def opens(device=DEVICE, events=None, **options):
    """Opens a hand with a stand-in of these options."""
    return lambda session: closing(InProcessHand(StandInRunner(device, **options), asked=events))


def figure(score, name):
    return score.figures[name].value


def test_live_bench_on_a_recorded_card_trains_on_its_recording(arena, tmp_path, session, events):
    assert bench_live.session_for(arena.root, DEVICE.slug, session) is session
    out = tmp_path / "out"
    default, nearest, oracle = bench_dtype(
        arena.root, out, session, opens(events=events, noise=1e-4), ["default", "nearest", "oracle"]
    )
    assert [r.trained for r in (default, nearest, oracle)] == ["recorded", "recorded", "first pass"]
    assert (default.first.key.split, default.first.key.train_spec) == ("models", "lowbit-random")
    # the formula answers the fresh run with the times of the first pass
    for result in (default, nearest, oracle):
        assert figure(result.fresh, "speedup_geomean") == pytest.approx(
            figure(result.first, "speedup_geomean"), rel=1e-4
        )
        assert (result.vendor, figure(result.fresh, VENDOR), result.fresh.n_vendor) == (None, None, 0)
        assert (result.flat()["vendor"], result.flat()["vendor_problems"]) == (None, 0)
    assert figure(default.fresh, "speedup_geomean") == 1
    assert figure(oracle.first, "top1") == 1
    assert 1 < figure(nearest.fresh, "speedup_geomean") <= figure(oracle.fresh, "speedup_geomean")
    recording = dataset.read(find_path(out, DEVICE.slug, "quick", "paper9", "s8", "cold"))
    assert recording.table.problems.tolist() == [[p.m, p.n, p.k] for p in session.problems]
    assert len(recording.header.anchors[0].end_ns) == 64


def test_picks_are_fixed_before_the_fresh_run_which_times_them_and_the_default(arena, tmp_path, session, events):
    nearest, oracle = bench_dtype(
        arena.root, tmp_path / "out", session, opens(events=events, vendor=0.9), ["nearest", "oracle"]
    )
    seed, problems = session.protocol.seed, session.problems
    anchors = [(p, (DEFAULT,), seed) for p in anchor_problems("s8", None)]
    first = [(p, tuple(range(11)), seed) for p in problems]
    measured = [*anchors, *first[:21], *anchors, *first[21:], *anchors]
    assert events[: len(measured)] == measured
    assert events[len(measured) : -42] == [("fit_predict", "nearest"), ("cross_fit", "oracle")]
    picks = [r.prediction.picks[:, 0] for r in (nearest, oracle)]
    assert events[-42:] == [
        (p, (*sorted({DEFAULT, *(int(pick[i]) for pick in picks)}), 10), seed + 1) for i, p in enumerate(problems)
    ]


def test_fresh_times_are_medians_of_equally_many_samples_of_all(arena, tmp_path, session):
    samples = []

    class CountingTrial(StandInTrial):
        def submit(self, order):
            samples.append(np.bincount(order, minlength=11)[list(self.which)].tolist())
            super().submit(order)

    class Counting(StandInRunner):
        trial_type = CountingTrial

    (result,) = bench_dtype(
        arena.root,
        tmp_path / "out",
        session,
        lambda _: closing(InProcessHand(Counting(noise=0.0, vendor=0.9))),
        ["constant"],
    )
    assert all(counts == [16] * len(counts) for counts in samples[-42:])
    exact = [round(formula_ns((p.m, p.n, p.k), templates("s8")[DEFAULT])) for p in session.problems]
    assert result.table.time_ns[:, DEFAULT].tolist() == exact


def test_rows_of_a_recording_in_another_order_keep_their_picks(arena, tmp_path, session, monkeypatch):
    """As after an interruption: the first pass does not have the problems in the order of the workload."""
    original = bench_live.record

    def shuffled(session, *arguments, **options):
        problems = tuple(reversed(session.problems))
        mixed = type(session)(session.workload, session.space, problems, session.protocol)
        return original(mixed, *arguments, **options)

    monkeypatch.setattr(bench_live, "record", shuffled)
    (oracle,) = bench_dtype(arena.root, tmp_path / "out", session, opens(noise=1e-4), ["oracle"])
    assert oracle.table.problems[0].tolist() != [session.problems[0].m, session.problems[0].n, session.problems[0].k]
    assert figure(oracle.fresh, "speedup_geomean") == pytest.approx(figure(oracle.first, "speedup_geomean"), rel=1e-4)


def test_live_bench_on_another_card_cross_validates_and_shows_transfer_apart(
    arena, tmp_path, session, events, monkeypatch
):
    monkeypatch.setattr(bench_live, "CROSS_VALIDATED", 60)
    monkeypatch.setattr(bench_live, "TRANSFER_FROM", DEVICE.slug)
    session = bench_live.session_for(arena.root, "another-card", session)
    assert (session.workload.name, len(session.problems)) == ("lowbit-random-60", 60)
    tested = np.array([[p.m, p.n, p.k] for p in session.problems])
    arena.record("lowbit-random", "s8", np.concatenate([tested, arena.shapes(40, seed=0)]))
    results = bench_dtype(arena.root, tmp_path / "out", session, opens(OTHER, events), ["nearest", "oracle"])
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
    folder = tmp_path / "out" / "baselines/recordings/another-card/lowbit-random-60"
    assert (folder / "gemm.paper9.s8.cold.parquet").is_file()


def test_locked_problems_of_lowbit_full_are_measured_and_judged_as_any_other(arena, tmp_path):
    """What is locked is a recording's: the oracle's first pass is of all problems here."""
    session = session_of("lowbit-full", 2040)
    session = replace(session, problems=session.problems[2000:])  # those before are of lowbit-random
    locked = is_final(np.array([[p.m, p.n, p.k] for p in session.problems]))
    assert 0 < locked.sum() < 40
    arena.record("lowbit-random", "s8", arena.shapes(40, seed=0))
    oracle, nearest = bench_dtype(arena.root, tmp_path / "out", session, opens(noise=1e-4), ["oracle", "nearest"])
    for result in (oracle, nearest):
        assert (result.first.status, result.first.n_problems, result.first.n_failed) == ("ok", 40, 0)
    assert figure(oracle.first, "top1") == 1


def test_predictors_are_kept_from_what_trains_and_what_was_just_measured(arena, tmp_path, session, monkeypatch):
    seen = []

    def noting(name, *arguments, **options):
        seen.append((name, options["roots"], options["memory_limit_bytes"], options["seed"]))
        raise RecordingError("enough")

    monkeypatch.setattr(predict, "fit_predict", noting)
    with pytest.raises(RecordingError, match="enough"):
        bench_dtype(arena.root, tmp_path / "out", session, opens(), ["nearest"], memory_limit_bytes=1 << 30, seed=4)
    assert seen == [("nearest", (arena.root, tmp_path / "out"), 1 << 30, 4)]


def test_vendor_is_compared_where_it_ran(arena, tmp_path, session):
    refused = [("wrong", (p.m, p.n, p.k), 10) for p in session.problems[::2]]
    default, oracle = bench_dtype(
        arena.root, tmp_path / "out", session, opens(vendor=0.9, noise=1e-4, faults=refused), ["default", "oracle"]
    )
    assert figure(oracle.fresh, VENDOR) == pytest.approx(0.9, rel=1e-3)
    assert figure(default.fresh, VENDOR) < 0.8
    flat = oracle.flat()
    assert (oracle.vendor, flat["vendor"], flat["vendor_problems"]) == ("cublaslt", "cublaslt", 21)
    assert flat["vendor_speedup_geomean_lo"] <= flat["vendor_speedup_geomean"] <= flat["vendor_speedup_geomean_hi"]
    assert oracle.table.time_ns.shape == (42, 9)


def test_pick_that_fails_counts_against_it_beside_the_vendor(arena, tmp_path, session):
    """As everywhere: it takes as long as the slowest that ran, here the default."""
    (plain,) = bench_dtype(arena.root, tmp_path / "a", session, opens(vendor=0.9, noise=0.0), ["constant"])
    pick = int(plain.prediction.picks[0, 0])
    assert pick != DEFAULT
    refused = [("wrong", (p.m, p.n, p.k), pick) for p in session.problems[::2]]
    (result,) = bench_dtype(
        arena.root, tmp_path / "b", session, opens(vendor=0.9, noise=0.0, faults=refused), ["constant"]
    )
    assert (result.fresh.n_failed, result.fresh.n_vendor, result.flat()["vendor_problems"]) == (21, 42, 42)
    ratios = []
    for i, p in enumerate(session.problems):
        every_ns = [formula_ns((p.m, p.n, p.k), template) for template in templates("s8")]
        ratios.append(0.9 * min(every_ns) / every_ns[pick if i % 2 else DEFAULT])
    assert result.flat()["vendor_speedup_geomean"] == pytest.approx(np.exp(np.log(ratios).mean()), rel=1e-3)


def test_fresh_run_that_was_slowed_says_so(arena, tmp_path, session, monkeypatch):
    monkeypatch.setattr(unscreened, "BATCH_PROBLEMS", 20)

    class Slowed(InProcessHand):
        """Slowed in the fresh run's second batch of three."""

        def measure(self, order, *arguments, **options):
            finished = super().measure(order, *arguments, **options)
            return replace(
                finished, slowed=order.protocol.screen_rounds == 0 and order.problems[0] == session.problems[20]
            )

    (result,) = bench_dtype(
        arena.root, tmp_path / "a", session, lambda _: closing(Slowed(StandInRunner())), ["constant"]
    )
    assert (result.slowed, result.flat()["fresh_slowed"]) == (True, True)
    (result,) = bench_dtype(arena.root, tmp_path / "b", session, opens(), ["constant"])
    assert (result.slowed, result.flat()["fresh_slowed"]) == (False, False)


@pytest.mark.parametrize(
    ("ids", "chosen"),
    [([], None), (["cublaslt"], 2), (["torch._int_mm"], 2), (["torch._int_mm", "cublaslt"], 3)],
)
def test_vendor_is_cublaslt_called_directly_or_else_through_torch(ids, chosen):
    own = [Candidate(id="a"), Candidate(id="a#control", origin="control")]
    assert bench_live.vendor_index([*own, *(Candidate(id=i, origin="vendor") for i in ids)]) == chosen


def test_live_bench_without_predictors_is_refused(arena, tmp_path, session):
    with pytest.raises(RecordingError, match="no predictor was asked for"):
        bench_dtype(arena.root, tmp_path / "out", session, opens(), [])


def test_recorded_problem_that_the_workload_lacks_is_refused(session):
    shapes = np.array([[p.m, p.n, p.k] for p in session.problems[::-1]])
    assert bench_live.in_order(session, shapes) == session.problems[::-1]
    with pytest.raises(RecordingError, match="3 x 8 x 16 was recorded as quick, which lacks it; record again"):
        bench_live.in_order(session, np.array([[3, 8, 16]]))
