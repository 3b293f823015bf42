"""Recording with hands that answer from a formula or from a recording: batches, parts, anchors, interruptions."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from inprocess import InProcessHand
from standin import DEVICE, StandInRunner, StandInTrial, opening
from sweeping import hands, long_session
from sweeping import session as whole_session

from tilearena import __version__, cli, dataset, measure
from tilearena.anchors import anchor_problems
from tilearena.errors import Interrupted, MeasureError, NoGpuError
from tilearena.hands import HandLostError
from tilearena.measure import record
from tilearena.noise import noise_floor, spread
from tilearena.parts import Parts
from tilearena.records import Problem
from tilearena.replay import ReplayRunner
from tilearena.runner import Begun
from tilearena.space import Space
from tilearena.worker_hand import WorkerHand

ANCHORS = anchor_problems("s8", None)[:4]
SWEEPING = Path(__file__).with_name("sweeping.py")


@pytest.fixture
def session():
    """The first 12 problems of quick, s8, cold."""
    return whole_session("quick", 12)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(measure, "BATCH_PROBLEMS", 3)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "r.parquet"


class Breaking(InProcessHand):
    """Raises ``error`` in place of measuring the problem with number ``at``, batch by batch."""

    def __init__(self, runner, at, error):
        super().__init__(runner)
        self.at, self.error = at, error

    def measure(self, order, stop, done=lambda n: None):
        if len(self.asked) + len(order.problems) > self.at:
            raise self.error
        return super().measure(order, stop, done)


def keys(path):
    rows = dataset.read(path).rows
    return list(zip(*(rows[c].to_pylist() for c in ("m", "n", "k", "candidate")), strict=True))


def expected_keys(session):
    return [(p.m, p.n, p.k, c) for p in session.problems for c in range(10)]


def measured(hand):
    return [problem for problem, which, _ in hand.asked if len(which) > 1]


def folder_of(path):
    (folder,) = path.parent.glob(".*.parts")
    return folder


def test_recording_has_every_row_in_the_order_of_the_problems(session, path):
    seen = []
    (hand,) = hands(1, 0)
    header = record(session, [hand], path, progress=lambda *report: seen.append(report))
    recording = dataset.read(path)
    assert recording.header == header
    assert keys(path) == expected_keys(session)
    assert seen[-1] == (12, 12, "quick")
    assert [done for done, *_ in seen] == sorted(done for done, *_ in seen)
    assert [file.name for file in path.parent.iterdir()] == ["r.parquet"]
    assert hand.closed is False


def test_recording_of_a_replay_has_the_rows_of_the_recording(session, path, tmp_path):
    record(session, hands(1, 0), path)
    original = dataset.read(path)
    again = tmp_path / "again.parquet"
    record(session, [InProcessHand(ReplayRunner(original))], again)
    assert dataset.read(again).rows.equals(original.rows)


def test_header_says_what_was_measured_and_how(session, path):
    header = record(session, hands(1, 0), path)
    assert (header.spec, header.spec_fingerprint) == ("quick", session.workload.fingerprint)
    assert (header.space, header.space_fingerprint) == ("paper9", session.space.fingerprint)
    assert (header.op, header.dtype, header.bit_op, header.support) == ("gemm", "s8", None, "native")
    assert (header.protocol, header.default) == (session.protocol, 1)
    assert header.device == DEVICE.model_copy(update={"uuid_sha256": "card 0"})
    assert [c.origin for c in header.candidates] == ["template"] * 9 + ["control"]
    assert header.versions == {"tilearena": __version__, "standin": "1"}
    assert (header.clock.empty_interval_ns, header.clock.resolution_ns) == (1000, 32)
    assert header.noise_floor == noise_floor(dataset.read(path)) > 0


def test_batch_says_who_measured_it_when_and_how_well(session, path):
    before = time.time()
    header = record(session, hands(1, 0.01), path)
    recording = dataset.read(path)
    assert [b.n_problems for b in header.batches] == [3, 3, 3, 3]
    assert len({b.session for b in header.batches}) == 1
    assert {(b.card, b.host, b.attempts, b.slowed) for b in header.batches} == {("card 0", "host 0", 1, False)}
    starts = [b.started_at_s for b in header.batches]
    assert before < starts[0]
    assert np.diff(starts).min() >= 0.03
    assert all(0.03 <= b.seconds <= time.time() - before for b in header.batches)
    second = dataset.Recording(header, recording.rows.slice(30, 30))
    assert header.batches[1].noise_floor == noise_floor(second)
    assert header.batches[1].spread == spread(second)
    assert 0.12 <= header.wall_time_s <= time.time() - before


def test_few_problems_still_make_two_batches_a_hand(session, path, monkeypatch):
    monkeypatch.setattr(measure, "BATCH_PROBLEMS", 100)
    assert [b.n_problems for b in record(session, hands(1, 0), path).batches] == [6, 6]


def test_failed_candidate_is_a_row_and_the_rest_are_measured(session, path):
    record(session, [InProcessHand(StandInRunner(faults=[("wrong", None, 3)]))], path)
    recording = dataset.read(path)
    failed = [row for row in recording.rows.to_pylist() if row["status"] != "ok"]
    assert [row["candidate"] for row in failed] == [3] * 12
    assert {(row["status"], row["reason"]) for row in failed} == {("wrong_result", "row 3 of the output is wrong")}
    assert keys(path) == expected_keys(session)
    assert np.isinf(recording.table.time_ns[:, 3]).all()
    assert np.isfinite(np.delete(recording.table.time_ns, 3, axis=1)).all()


def test_anchors_are_timed_at_start_middle_and_end(session, path):
    (hand,) = hands(1, 0)
    header = record(session, [hand], path, anchors=ANCHORS)
    order = [(problem, which) for problem, which, _ in hand.asked]
    alone = [(problem, (1,)) for problem in ANCHORS]
    whole = [(problem, tuple(range(10))) for problem in session.problems]
    assert order == [*alone, *whole[:6], *alone, *whole[6:], *alone]
    (anchors,) = header.anchors
    assert (anchors.session, anchors.card) == (header.batches[0].session, "card 0")
    # the formula gives the same times whenever it is asked
    assert anchors.start_ns == anchors.middle_ns == anchors.end_ns
    assert len(anchors.start_ns) == 4
    assert anchors.drift == anchors.drift_to_middle == 0


def test_clock_of_each_hand_is_kept_with_its_anchors(session, path):
    both = hands(2, 0.005)
    both[1].clock = both[0].clock.model_copy(update={"empty_interval_ns": 1500.0})
    header = record(session, both, path, anchors=ANCHORS[:1])
    assert {a.card: a.clock for a in header.anchors} == {"card 0": both[0].clock, "card 1": both[1].clock}
    assert header.clock == both[0].clock


def test_retakes_are_kept_with_their_batch(session, path):
    fifth = session.problems[4]
    hand = InProcessHand(StandInRunner(faults=[("retake", (fifth.m, fifth.n, fifth.k), 3)]))
    assert [b.retakes for b in record(session, [hand], path).batches] == [0, 1, 0, 0]


def test_no_anchors_are_timed_where_none_are_given(session, path):
    (hand,) = hands(1, 0)
    assert record(session, [hand], path).anchors == ()
    assert measured(hand) == list(session.problems)


def test_several_hands_share_the_problems_and_each_is_measured_by_one(path):
    session, three = whole_session(), hands(3, 0.005)
    header = record(session, three, path, anchors=ANCHORS)
    assert sorted(keys(path)) == sorted(expected_keys(session))
    recording = dataset.read(path)
    by_card = {hand.device.uuid_sha256: {(p.m, p.n, p.k) for p in measured(hand)} for hand in three}
    assert all(len(shapes) >= 3 for shapes in by_card.values())
    assert sum(map(len, by_card.values())) == 42
    assert {b.host for b in header.batches} == {"host 0", "host 1", "host 2"}
    for shape, card in zip(recording.table.problems.tolist(), recording.cards, strict=True):
        assert tuple(shape) in by_card[card]
    assert header.device == DEVICE
    assert [a.card for a in header.anchors] == ["card 0", "card 1", "card 2"]
    assert all(a.start_ns == a.end_ns != () for a in header.anchors)


def test_recording_of_a_pool_in_which_one_card_measured_all_is_of_that_card(session, path):
    idle, busy = hands(2, 0)
    idle.lost_after = 0
    header = record(session, [idle, busy], path)
    assert header.device.uuid_sha256 == "card 1"
    assert {b.card for b in header.batches} == {"card 1"}


def test_batch_of_a_lost_hand_is_measured_by_another(path):
    session, (first, second) = whole_session(), hands(2, 0.005)
    first.lost_after = 5
    header = record(session, [first, second], path, anchors=ANCHORS[:1])
    assert sorted(keys(path)) == sorted(expected_keys(session))
    assert Counter(b.card for b in header.batches) == {"card 0": 1, "card 1": 13}
    lost, left = header.anchors
    assert (len(lost.start_ns), lost.end_ns, lost.drift) == (1, (), None)
    assert len(left.end_ns) == 1


def test_hand_without_work_waits_for_what_another_may_lose(session, path):
    """The last batch is lost when the other hand has long found the queue empty."""
    slow, fast = hands(2, 0)

    class Slow(InProcessHand):
        def measure(self, order, stop, done=lambda n: None):
            deadline = time.monotonic() + 10
            while len(measured(fast)) < 9 and not stop.is_set() and time.monotonic() < deadline:
                time.sleep(0.005)
            time.sleep(0.1)
            raise HandLostError("it died late")

    header = record(session, [Slow(slow.runner), fast], path, anchors=())
    assert sorted(keys(path)) == sorted(expected_keys(session))
    assert {b.card for b in header.batches} == {"card 1"}


def test_lost_hands_leave_what_is_finished_and_a_sentence(session, path):
    both = hands(2, 0.005)
    for hand in both:
        hand.lost_after = 4
    with pytest.raises(MeasureError) as caught:
        record(session, both, path)
    assert str(caught.value) == (
        f"the worker died 8 times; 6 of 12 problems are kept in {folder_of(path)}; run the same command again to go on"
    )
    fresh = hands(2, 0)
    record(session, fresh, path)
    assert sum(len(measured(hand)) for hand in fresh) == 6
    assert sorted(keys(path)) == sorted(expected_keys(session))


def test_hand_with_another_error_stops_the_others_and_loses_nothing_of_theirs(path):
    session, (good, _) = whole_session(), hands(2, 0.005)
    bad = Breaking(StandInRunner(DEVICE.model_copy(update={"uuid_sha256": "bad"})), 3, NoGpuError("the card is gone"))
    with pytest.raises(MeasureError, match=r"the card is gone; \d+ of 42 problems are kept in .*; run the same"):
        record(session, [bad, good], path)
    n_kept = len(list(folder_of(path).glob("*.parquet")))
    again = hands(2, 0)
    record(session, again, path)
    n_again = sum(len(measured(hand)) for hand in again)
    # the hand that was halted in a batch brought back what it had
    assert 42 - 3 * n_kept <= n_again == 42 - len(measured(good)) - len(measured(bad))
    assert sorted(keys(path)) == sorted(expected_keys(session))


def test_bug_in_a_hand_is_shown_as_it_is_and_loses_nothing(session, path):
    with pytest.raises(ZeroDivisionError, match="a bug"):
        record(session, [Breaking(StandInRunner(), 6, ZeroDivisionError("a bug"))], path)
    (again,) = [InProcessHand(StandInRunner())]
    record(session, [again], path)
    assert measured(again) == list(session.problems[6:])


def test_interrupted_session_goes_on_where_it_stopped(session, path):
    with pytest.raises(MeasureError, match="no more"):
        record(session, [Breaking(StandInRunner(), 11, HandLostError("no more"))], path, anchors=ANCHORS[:1])
    assert not path.exists()
    folder = folder_of(path)
    names = sorted(p.name for p in folder.iterdir())
    assert names == ["00000.anchors", "00000.parquet", "00001.parquet", "00002.parquet", "header.json", "lock"]
    begun = json.loads((folder / "header.json").read_text())
    (hand,) = [InProcessHand(StandInRunner())]
    header = record(session, [hand], path, anchors=ANCHORS[:1])
    assert measured(hand) == list(session.problems[9:])
    assert header.started_at == begun["started_at"]
    assert [b.n_problems for b in header.batches] == [3, 3, 3, 2, 1]
    first, second = (a.session for a in header.anchors)
    assert [b.session for b in header.batches] == [first] * 3 + [second] * 2
    assert first != second
    assert keys(path) == expected_keys(session)
    assert not folder.exists()


@pytest.mark.parametrize("lost", ["", "00001.parquet"])
def test_parts_that_a_kill_left_beside_their_recording_are_not_recorded_again(session, path, monkeypatch, lost):
    with monkeypatch.context() as patch:
        patch.setattr(Parts, "remove", lambda parts: (parts.folder / (lost or "nothing")).unlink(missing_ok=True))
        old = record(session, hands(1, 0), path)
    assert len(list(folder_of(path).glob("*.parquet"))) == (3 if lost else 4)
    (hand,) = hands(1, 0)
    header = record(session, [hand], path)
    assert measured(hand) == list(session.problems)
    assert len(header.batches) == 4
    assert {b.session for b in header.batches}.isdisjoint(b.session for b in old.batches)
    assert not list(path.parent.glob(".*.parts"))


def test_parts_beside_an_older_recording_are_continued(session, path):
    record(session, hands(1, 0), path)
    recording = dataset.read(path)
    dataset.write(path, recording.header.model_copy(update={"started_at": "2026-01-01T00:00:00+00:00"}), recording.rows)
    with pytest.raises(MeasureError):
        record(session, [Breaking(StandInRunner(), 6, HandLostError("no more"))], path)
    (hand,) = [InProcessHand(StandInRunner())]
    record(session, [hand], path)
    assert measured(hand) == list(session.problems[6:])


def test_session_of_another_card_does_not_take_the_parts(session, path):
    one, other = hands(2, 0)
    one.lost_after = 6
    with pytest.raises(MeasureError):
        record(session, [one], path)
    record(session, [other], path)
    assert measured(other) == list(session.problems)


def test_whole_parts_need_no_measuring(session, path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(dataset, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device", "x")))
        with pytest.raises(MeasureError, match=r"^x: No space left on device; .* 12 of 12 problems are kept in"):
            record(session, hands(1, 0), path)
    (hand,) = hands(1, 0)
    header = record(session, [hand], path)
    assert hand.asked == []
    assert [b.n_problems for b in header.batches] == [3, 3, 3, 3]
    assert keys(path) == expected_keys(session)


def test_problems_of_a_part_that_was_deleted_are_measured_again(session, path):
    with pytest.raises(MeasureError):
        record(session, [Breaking(StandInRunner(), 9, HandLostError("no more"))], path)
    (folder_of(path) / "00001.parquet").unlink()
    (hand,) = [InProcessHand(StandInRunner())]
    record(session, [hand], path)
    assert measured(hand) == [*session.problems[3:6], *session.problems[9:]]
    assert sorted(keys(path)) == sorted(expected_keys(session))


@pytest.mark.parametrize("name", ["00000.parquet", "header.json"])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_damaged_part_is_named(session, path, name, share):
    with pytest.raises(MeasureError):
        record(session, [Breaking(StandInRunner(), 6, HandLostError("no more"))], path)
    damaged = folder_of(path) / name
    data = damaged.read_bytes()
    damaged.write_bytes(data[: int(share * len(data))])
    with pytest.raises(MeasureError) as caught:
        record(session, [InProcessHand(StandInRunner())], path)
    assert str(caught.value).startswith(f"{damaged} is damaged or of another run; delete ")


def test_two_processes_do_not_share_parts(session, path):
    class Nested(InProcessHand):
        def measure(self, order, stop, done=lambda n: None):
            with pytest.raises(MeasureError, match=r"another process is measuring into .*; wait for it"):
                record(session, [InProcessHand(StandInRunner())], path)
            return super().measure(order, stop, done)

    record(session, [Nested(StandInRunner())], path)
    assert keys(path) == expected_keys(session)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda hand: setattr(hand, "versions", {"standin": "2"}),
            "version of standin is '1' at one and '2' at another",
        ),
        (lambda hand: setattr(hand, "versions", {}), r"tools is \['standin'\] at one and \[\] at another"),
        (lambda hand: setattr(hand, "candidates", hand.candidates[:9]), "candidates is"),
        (lambda hand: setattr(hand, "default", 2), "default is 1 at one and 2 at another"),
        (
            lambda hand: setattr(hand, "device", hand.device.model_copy(update={"driver": "9"})),
            r"device driver is '0.0' at one and '9' at another \(hosts host 0 and host 1\); leave one out",
        ),
    ],
)
def test_hands_that_differ_are_refused_and_the_difference_named(session, path, change, said):
    first, second = hands(2, 0)
    change(second)
    with pytest.raises(MeasureError, match=said):
        record(session, [first, second], path)
    assert first.asked == []


def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(path):
    session, both = whole_session(), hands(2, 0.005)

    def interrupting(done, total, label):
        if done >= 10:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        record(session, both, path, progress=interrupting)
    kept = sum(len(measured(hand)) for hand in both)
    assert 10 <= kept < 42
    assert str(caught.value) == (
        f"interrupted: {kept} of 42 problems are kept in {folder_of(path)}; run the same command again to go on"
    )
    assert not isinstance(caught.value, MeasureError)
    again = hands(2, 0)
    record(session, again, path)
    assert sum(len(measured(hand)) for hand in again) == 42 - kept
    assert sorted(keys(path)) == sorted(expected_keys(session))


def test_ctrl_c_while_a_part_is_written_loses_and_doubles_nothing(session, path, monkeypatch):
    original = measure.Parts.write

    def interrupted(self, index, rows, batch):
        original(self, index, rows, batch)
        if index == 1:
            monkeypatch.setattr(measure.Parts, "write", original)
            raise KeyboardInterrupt

    monkeypatch.setattr(measure.Parts, "write", interrupted)
    (first,) = hands(1, 0.01)
    with pytest.raises(Interrupted):
        record(session, [first], path)
    (again,) = hands(1, 0)
    record(session, [again], path)
    assert measured(first) + measured(again) == list(session.problems)
    assert keys(path) == expected_keys(session)


@pytest.mark.parametrize("count", [1, 2])
def test_signals_of_ctrl_c_keep_what_is_finished(path, count):
    """They are looked at, so none strikes within a lock; a second one ends the waiting for the hands."""
    session, (slow, hanging) = whole_session(), hands(2, 0.005)
    released = threading.Event()
    if count == 2:
        hanging.measure = lambda order, stop, done=None: released.wait(60)

    def interrupting(done, total, label):
        if done >= 10:
            for _ in range(count):
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted) as caught:
        record(session, [slow, hanging], path, progress=interrupting)
    assert not released.is_set()
    kept = len(Parts(path, session.header([slow, hanging]), pool=True).done())
    assert 9 <= kept < 42
    assert str(caught.value).startswith(f"interrupted: {kept} of 42 problems are kept in ")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    released.set()


def test_rows_that_make_no_recording_are_not_published_and_their_parts_are_kept(session, path, monkeypatch):
    monkeypatch.setattr(StandInTrial, "_sample_ns", lambda self, candidate: 7)
    (hand,) = hands(1, 0)
    monkeypatch.setattr(StandInTrial, "begin", lambda self: Begun(dict.fromkeys(self.which, 20), {}))
    with pytest.raises(MeasureError, match=r"row 0 has a number of launches that contradicts .*; delete .*\.parts to"):
        record(session, [hand], path)
    assert not path.exists()
    assert len(list(folder_of(path).glob("*.parquet"))) == 4


def test_clock_of_the_system_that_is_set_back_does_not_change_when_batches_began(session, path, monkeypatch):
    now = time.time()
    jumps = iter([now, *(now - 1000 * i for i in range(1, 100))])
    monkeypatch.setattr(time, "time", lambda: next(jumps))
    header = record(session, hands(1, 0.01), path)
    starts = [one.started_at_s for one in header.batches]
    assert starts == sorted(starts)
    assert 0.12 <= header.wall_time_s < 60


def test_signal_of_ctrl_c_ends_a_process_in_order(path):
    child = subprocess.Popen(
        [sys.executable, SWEEPING, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "started\n"
    while not list(path.parent.glob(".*.parts/00001.parquet")):
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=20)
    assert "tilearena.errors.Interrupted: interrupted: " in errors
    assert len(list(folder_of(path).glob("*.parquet"))) >= 2


def test_interrupted_command_says_so_and_exits_with_130(run, monkeypatch):
    def interrupted():
        raise Interrupted("interrupted: 3 of 9 problems are kept in x; run the same command again to go on")

    monkeypatch.setattr(cli, "app", interrupted)
    sentence = "tilearena: interrupted: 3 of 9 problems are kept in x; run the same command again to go on\n"
    assert run("measure", "quick") == (130, "", sentence)


def test_full_disk_is_one_sentence_and_leaves_nothing_damaged(path, monkeypatch):
    """Files may not grow beyond a few hundred bytes once two parts are written."""
    session = whole_session()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    write = Parts.write

    def filling(parts, index, rows, batch):
        write(parts, index, rows, batch)
        if index == 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (300, hard))

    monkeypatch.setattr(Parts, "write", filling)
    try:
        with pytest.raises(MeasureError) as caught:
            record(session, hands(1, 0.002), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    monkeypatch.setattr(Parts, "write", write)
    folder = folder_of(path)
    assert str(caught.value) == (
        f"{folder / '00002.parquet'}: File too large; put that right: 6 of 42 problems are kept in {folder}; "
        "run the same command again to go on"
    )
    assert sorted(p.name for p in folder.iterdir()) == ["00000.parquet", "00001.parquet", "header.json", "lock"]
    (again,) = hands(1, 0)
    record(session, [again], path)
    assert measured(again) == list(session.problems[6:])
    assert keys(path) == expected_keys(session)


def test_killed_at_20_random_moments_every_row_is_recorded_once(path):
    def parts():
        return {file.name for file in path.parent.glob(".*.parts/*.parquet")}

    # each run is killed some time after its first, second or no part: a slow machine must not kill all before that
    rng, kept = random.Random(3), set()
    for n_parts in [0, 1, 2, 1] * 5:
        with subprocess.Popen([sys.executable, SWEEPING, path], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout.readline() == "started\n"
            end = time.monotonic() + 30
            while len(parts()) < len(kept) + n_parts and time.monotonic() < end:
                time.sleep(0.005)
            time.sleep(rng.uniform(0, 0.2))
            assert child.poll() is None
            child.kill()
        assert not path.exists()
        assert kept <= parts()
        kept = parts()
    assert len(kept) >= 20
    session, both = long_session(), hands(2, 0)
    header = record(session, both, path)
    assert sum(len(measured(hand)) for hand in both) == 240 - 3 * len(kept)
    assert sorted(keys(path)) == sorted(expected_keys(session))
    assert len({batch.session for batch in header.batches}) >= 4
    assert [file.name for file in path.parent.iterdir()] == ["r.parquet"]


def test_worker_processes_share_a_recording_and_one_that_is_killed_costs_no_row(path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(SWEEPING.parent))
    session, killed = whole_session(), []
    with ExitStack() as stack:
        both = [stack.enter_context(WorkerHand(opening(card=f"card {i}", problem_s=0.02))) for i in range(2)]

        def killing(done, total, label):
            if done >= 10 and not killed:
                killed.append(both[0].worker_pid)
                os.kill(killed[0], signal.SIGKILL)

        header = record(session, both, path, anchors=ANCHORS, progress=killing)
    assert killed
    assert sorted(keys(path)) == sorted(expected_keys(session))
    assert set(dataset.read(path).rows["status"].to_pylist()) == {"ok"}
    assert {batch.card for batch in header.batches} == {"card 0", "card 1"}


def test_opening_is_json_that_names_all_problems_and_the_anchors(session):
    arguments = json.loads(measure.opening(session, ordinal=1, sms=72).model_dump_json())["arguments"]
    problems = [Problem.model_validate(p) for p in arguments.pop("problems")]
    assert problems == [*session.problems, *anchor_problems("s8", None)]
    assert Space.model_validate(arguments.pop("space")) == session.space
    assert arguments == {"seed": session.protocol.seed, "ordinal": 1, "sms": 72, "torch": True}


def test_threads_of_hands_are_gone_when_the_recording_is_there(session, path):
    before = threading.active_count()
    record(session, hands(2, 0), path)
    assert threading.active_count() == before
