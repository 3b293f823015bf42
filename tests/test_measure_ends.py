"""However a recording ends early, by a lost hand, an error, Ctrl-C, a kill or a full disk, what is finished is kept."""

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

import pytest
from inprocess import InProcessHand
from short_session import ANCHORS, Breaking, expected_keys, folder_of, keys, measured
from standin import DEVICE, StandInRunner, StandInTrial, opening
from sweeping import hands, long_session
from sweeping import session as whole_session

from tilearena import cli, dataset, measure
from tilearena.errors import Interrupted, MeasureError, NoGpuError
from tilearena.hands import HandLostError
from tilearena.measure import record
from tilearena.parts import Parts
from tilearena.runner import Begun
from tilearena.worker_hand import WorkerHand

pytestmark = pytest.mark.usefixtures("small_batches")
SWEEPING = Path(__file__).with_name("sweeping.py")


def test_batch_of_a_lost_hand_is_measured_by_another(recording_path):
    session, (first, second) = whole_session(), hands(2, 0.005)
    first.lost_after = 5
    header = record(session, [first, second], recording_path, anchors=ANCHORS[:1])
    assert sorted(keys(recording_path)) == sorted(expected_keys(session))
    assert Counter(b.card for b in header.batches) == {"card 0": 1, "card 1": 13}
    lost, left = header.anchors
    assert (len(lost.start_ns), lost.end_ns, lost.drift) == (1, (), None)
    assert len(left.end_ns) == 1


def test_hand_without_work_waits_for_what_another_may_lose(short_session, recording_path):
    """The last batch is lost when the other hand has long found the queue empty."""
    slow, fast = hands(2, 0)

    class Slow(InProcessHand):
        def measure(self, order, stop, done=lambda n: None):
            deadline = time.monotonic() + 10
            while len(measured(fast)) < 9 and not stop.is_set() and time.monotonic() < deadline:
                time.sleep(0.005)
            time.sleep(0.1)
            raise HandLostError("it died late")

    header = record(short_session, [Slow(slow.runner), fast], recording_path, anchors=())
    assert sorted(keys(recording_path)) == sorted(expected_keys(short_session))
    assert {b.card for b in header.batches} == {"card 1"}


def test_lost_hands_leave_what_is_finished_and_a_sentence(short_session, recording_path):
    both = hands(2, 0.005)
    for hand in both:
        hand.lost_after = 4
    with pytest.raises(MeasureError) as caught:
        record(short_session, both, recording_path)
    assert str(caught.value) == (
        f"the worker died 8 times; 6 of 12 problems are kept in {folder_of(recording_path)}; "
        "run the same command again to go on"
    )
    fresh = hands(2, 0)
    record(short_session, fresh, recording_path)
    assert sum(len(measured(hand)) for hand in fresh) == 6
    assert sorted(keys(recording_path)) == sorted(expected_keys(short_session))


def test_hand_with_another_error_stops_the_others_and_loses_nothing_of_theirs(recording_path):
    session, (good, _) = whole_session(), hands(2, 0.005)
    bad = Breaking(StandInRunner(DEVICE.model_copy(update={"uuid_sha256": "bad"})), 3, NoGpuError("the card is gone"))
    with pytest.raises(MeasureError, match=r"the card is gone; \d+ of 42 problems are kept in .*; run the same"):
        record(session, [bad, good], recording_path)
    n_kept = len(list(folder_of(recording_path).glob("*.parquet")))
    again = hands(2, 0)
    record(session, again, recording_path)
    n_again = sum(len(measured(hand)) for hand in again)
    # the hand that was halted in a batch brought back what it had
    assert 42 - 3 * n_kept <= n_again == 42 - len(measured(good)) - len(measured(bad))
    assert sorted(keys(recording_path)) == sorted(expected_keys(session))


def test_bug_in_a_hand_is_shown_as_it_is_and_loses_nothing(short_session, recording_path):
    with pytest.raises(ZeroDivisionError, match="a bug"):
        record(short_session, [Breaking(StandInRunner(), 6, ZeroDivisionError("a bug"))], recording_path)
    (again,) = [InProcessHand(StandInRunner())]
    record(short_session, [again], recording_path)
    assert measured(again) == list(short_session.problems[6:])


def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(recording_path):
    session, both = whole_session(), hands(2, 0.005)

    def interrupting(done, total, label):
        if done >= 10:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        record(session, both, recording_path, progress=interrupting)
    kept = sum(len(measured(hand)) for hand in both)
    assert 10 <= kept < 42
    assert str(caught.value) == (
        f"interrupted: {kept} of 42 problems are kept in {folder_of(recording_path)}; "
        "run the same command again to go on"
    )
    assert not isinstance(caught.value, MeasureError)
    again = hands(2, 0)
    record(session, again, recording_path)
    assert sum(len(measured(hand)) for hand in again) == 42 - kept
    assert sorted(keys(recording_path)) == sorted(expected_keys(session))


def test_ctrl_c_while_a_part_is_written_loses_and_doubles_nothing(short_session, recording_path, monkeypatch):
    original = measure.Parts.write

    def interrupted(self, index, rows, batch):
        original(self, index, rows, batch)
        if index == 1:
            monkeypatch.setattr(measure.Parts, "write", original)
            raise KeyboardInterrupt

    monkeypatch.setattr(measure.Parts, "write", interrupted)
    (first,) = hands(1, 0.01)
    with pytest.raises(Interrupted):
        record(short_session, [first], recording_path)
    (again,) = hands(1, 0)
    record(short_session, [again], recording_path)
    assert measured(first) + measured(again) == list(short_session.problems)
    assert keys(recording_path) == expected_keys(short_session)


@pytest.mark.parametrize("count", [1, 2])
def test_signals_of_ctrl_c_keep_what_is_finished(recording_path, count):
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
        record(session, [slow, hanging], recording_path, progress=interrupting)
    assert not released.is_set()
    kept = len(Parts(recording_path, session.header([slow, hanging]), session.problems, pool=True).done())
    assert 9 <= kept < 42
    assert str(caught.value).startswith(f"interrupted: {kept} of 42 problems are kept in ")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    released.set()


def test_rows_that_make_no_recording_are_not_published_and_their_parts_are_kept(
    short_session, recording_path, monkeypatch
):
    monkeypatch.setattr(StandInTrial, "_sample_ns", lambda self, candidate: 7)
    (hand,) = hands(1, 0)
    monkeypatch.setattr(StandInTrial, "begin", lambda self: Begun(dict.fromkeys(self.which, 20), {}))
    with pytest.raises(MeasureError, match=r"row 0 has a number of launches that contradicts .*; delete .*\.parts to"):
        record(short_session, [hand], recording_path)
    assert not recording_path.exists()
    assert len(list(folder_of(recording_path).glob("*.parquet"))) == 4


def test_signal_of_ctrl_c_ends_a_process_in_order(recording_path):
    child = subprocess.Popen(
        [sys.executable, SWEEPING, recording_path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "started\n"
    while not list(recording_path.parent.glob(".*.parts/00001.parquet")):
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=20)
    assert "tilearena.errors.Interrupted: interrupted: " in errors
    assert len(list(folder_of(recording_path).glob("*.parquet"))) >= 2


def test_interrupted_command_says_so_and_exits_with_130(run, monkeypatch):
    def interrupted():
        raise Interrupted("interrupted: 3 of 9 problems are kept in x; run the same command again to go on")

    monkeypatch.setattr(cli, "app", interrupted)
    sentence = "tilearena: interrupted: 3 of 9 problems are kept in x; run the same command again to go on\n"
    assert run("measure", "quick") == (130, "", sentence)


def test_full_disk_is_one_sentence_and_leaves_nothing_damaged(recording_path, monkeypatch):
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
            record(session, hands(1, 0.002), recording_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    monkeypatch.setattr(Parts, "write", write)
    folder = folder_of(recording_path)
    assert str(caught.value) == (
        f"{folder / '00002.parquet'}: File too large; put that right: 6 of 42 problems are kept in {folder}; "
        "run the same command again to go on"
    )
    assert sorted(p.name for p in folder.iterdir()) == ["00000.parquet", "00001.parquet", "header.json", "lock"]
    (again,) = hands(1, 0)
    record(session, [again], recording_path)
    assert measured(again) == list(session.problems[6:])
    assert keys(recording_path) == expected_keys(session)


def test_killed_at_20_random_moments_every_row_is_recorded_once(recording_path):
    def parts():
        return {file.name for file in recording_path.parent.glob(".*.parts/*.parquet")}

    # each run is killed some time after its first, second or no part: a slow machine must not kill all before that
    rng, kept = random.Random(3), set()
    for n_parts in [0, 1, 2, 1] * 5:
        with subprocess.Popen([sys.executable, SWEEPING, recording_path], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout.readline() == "started\n"
            end = time.monotonic() + 30
            while len(parts()) < len(kept) + n_parts and time.monotonic() < end:
                time.sleep(0.005)
            time.sleep(rng.uniform(0, 0.2))
            assert child.poll() is None
            child.kill()
        assert not recording_path.exists()
        assert kept <= parts()
        kept = parts()
    assert len(kept) >= 20
    session, both = long_session(), hands(2, 0)
    header = record(session, both, recording_path)
    assert sum(len(measured(hand)) for hand in both) == 240 - 3 * len(kept)
    assert sorted(keys(recording_path)) == sorted(expected_keys(session))
    assert len({batch.session for batch in header.batches}) >= 4
    assert [file.name for file in recording_path.parent.iterdir()] == ["r.parquet"]


def test_worker_processes_share_a_recording_and_one_that_is_killed_costs_no_row(recording_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(SWEEPING.parent))
    session, killed = whole_session(), []
    with ExitStack() as stack:
        both = [stack.enter_context(WorkerHand(opening(card=f"card {i}", problem_s=0.02))) for i in range(2)]

        def killing(done, total, label):
            if done >= 10 and not killed:
                killed.append(both[0].worker_pid)
                os.kill(killed[0], signal.SIGKILL)

        header = record(session, both, recording_path, anchors=ANCHORS, progress=killing)
    assert killed
    assert sorted(keys(recording_path)) == sorted(expected_keys(session))
    assert set(dataset.read(recording_path).rows["status"].to_pylist()) == {"ok"}
    assert {batch.card for batch in header.batches} == {"card 0", "card 1"}
