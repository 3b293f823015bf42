"""The hand and its worker on the stand-in runner: whatever happens to the worker, each row comes once, none is lost."""

import contextlib
import os
import random
import signal
import threading
import time

import pytest
import standin
from standin import StandInRunner
from standin_hand import CANDIDATES, PROTOCOL, first_problems, measure, shape, undisturbed

from tilearena import worker_hand, worker_link
from tilearena.errors import DeviceFailedError, Interrupted, MeasureError, NoGpuError
from tilearena.hands import HandLostError, Order
from tilearena.worker_hand import WorkerHand

pytestmark = pytest.mark.usefixtures("workers_find_the_standin")


def test_hand_measures_as_the_runner_in_its_worker_and_counts(open_hand):
    hand, counts = open_hand(card="a1"), []
    assert (hand.device.uuid_sha256, hand.default, hand.versions) == ("a1", 1, {"standin": "1"})
    assert (hand.candidates, hand.clock) == (StandInRunner().candidates, StandInRunner().clock())
    finished = measure(hand, first_problems(5), done=counts.append)
    assert finished.rows == undisturbed(first_problems(5))
    assert (finished.n_problems, finished.attempts, finished.slowed, counts) == (5, 1, False, [1, 2, 3, 4, 5])


def test_order_may_ask_for_other_candidates_of_each_problem(open_hand):
    problems = first_problems(3)
    order = Order(problems, PROTOCOL, ((9, 1), (), (4,)))
    rows = open_hand().measure(order, threading.Event()).rows
    assert [(row.m, row.candidate) for row in rows] == [(64, 9), (64, 1), (192, 4)]


def test_host_is_told_apart_without_its_name(open_hand):
    host = open_hand().host
    assert host == worker_hand.host()
    assert len(host) == 16
    int(host, 16)


class _Killer:
    """Kills the worker of a hand at random moments: soon after its start, or after it has finished a problem again."""

    def __init__(self, hand, kills, seed):
        self._hand, self._left, self._rng = hand, kills, random.Random(seed)
        self._progress = threading.Event()
        self.killed = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def done(self, count):
        self._progress.set()

    def _run(self):
        while len(self.killed) < self._left:
            if len(self.killed) % 2:
                self._progress.clear()
                self._progress.wait()
            time.sleep(self._rng.uniform(0.0, 0.15))
            pid = self._hand.worker_pid
            if pid is not None and pid not in self.killed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self.killed.append(pid)


def test_worker_killed_at_twenty_random_moments_costs_no_row(open_hand):
    problems = first_problems(120)
    hand = open_hand(problem_s=0.02)
    killer = _Killer(hand, kills=20, seed=3)
    rows = []
    while len(killer.killed) < 20 or not rows:
        rows = measure(hand, problems, done=killer.done).rows
        assert rows == undisturbed(problems)
    assert len(set(killer.killed)) == 20


def test_worker_that_is_stopped_before_a_large_batch_costs_no_row(open_hand):
    problems = first_problems(1500)
    hand = open_hand(patience_s=1.0)
    os.kill(hand.worker_pid, signal.SIGSTOP)
    finished = hand.measure(Order(problems, PROTOCOL, ((1,),) * len(problems)), threading.Event())
    assert finished.rows == undisturbed(problems, (1,))


def test_worker_that_is_stopped_in_company_and_alone_costs_no_candidate_its_row(open_hand, tmp_path):
    problems, notices = first_problems(3), []
    files = [tmp_path / name for name in ("company", "alone")]
    faults = [(f"stop {file}", shape(problems[0]), 4) for file in files]
    hand = open_hand(faults=faults, patience_s=0.5, notice=notices.append)
    assert measure(hand, problems).rows == undisturbed(problems)
    assert all(file.exists() for file in files)
    assert notices == ["the worker is started again: it was stopped by a signal for more than 0.5 s"] * 2


def test_time_during_which_hand_and_worker_are_suspended_does_not_count(open_hand):
    problems, notices, readings = first_problems(4), [], []

    def read():
        readings.append(hand.worker_pid)
        if len(readings) == 2:  # the first one is taken when rows have come, the second while the hand waits for more
            os.kill(hand.worker_pid, signal.SIGSTOP)
            time.sleep(1.7)
            threading.Timer(0.3, os.kill, (hand.worker_pid, signal.SIGCONT)).start()
        return {}

    hand = open_hand(problem_s=0.3, patience_s=1.5, read=read, notice=notices.append)
    assert measure(hand, problems).rows == undisturbed(problems)
    assert len(readings) > 2
    assert notices == []


def test_overloaded_host_loses_the_hand_and_blames_no_candidate(open_hand):
    problems = first_problems(3)
    hand = open_hand(faults=[("late_overload", shape(problems[1]), 4)])
    with pytest.raises(HandLostError, match=r"^Synthetic device .* is given up: launching took too long$"):
        measure(hand, problems)
    assert hand.worker_pid is None
    rows = measure(hand, (problems[0], problems[2])).rows
    assert rows == undisturbed((problems[0], problems[2]))


def test_retakes_of_a_batch_are_counted(open_hand):
    problems = first_problems(4)
    faults = [("retake", shape(problems[1]), 4), ("retake", shape(problems[2]), None), ("wrong", None, 0)]
    hand = open_hand(faults=faults, warm_up_s=0.05)  # the warm-up's, with problem 2, do not count
    assert measure(hand, problems).retakes == 11
    assert measure(hand, problems[:1]).retakes == 0


def test_worker_that_is_killed_between_two_batches_is_started_again(open_hand):
    hand = open_hand()
    before = hand.worker_pid
    os.kill(before, signal.SIGKILL)
    assert measure(hand, first_problems(3)).rows == undisturbed(first_problems(3))
    assert hand.worker_pid not in (None, before)


@pytest.mark.parametrize("change", [{"card": "b2"}, {"card": "a1", "vendor": 0.9}])
def test_worker_that_is_another_one_when_it_is_started_again_loses_the_hand(open_hand, change):
    hand = open_hand(card="a1")
    hand._opening = standin.opening(**change)
    os.kill(hand.worker_pid, signal.SIGKILL)
    with pytest.raises(HandLostError, match=r"is given up: its card or kernels were exchanged meanwhile$"):
        measure(hand, first_problems(3))
    assert hand.worker_pid is None


def test_hand_is_lost_when_worker_after_worker_fails(open_hand, monkeypatch, tmp_path):
    monkeypatch.setattr(worker_hand, "TROUBLES", 2 / len(CANDIDATES))
    problems = first_problems(2)
    hand = open_hand(once=str(tmp_path / "opened"), faults=[("die", shape(problems[1]), 0)])
    with pytest.raises(HandLostError) as caught:
        measure(hand, problems)
    assert str(caught.value) == (
        "Synthetic device (formula, not measured) is given up: its worker failed again and again without a single time "
        "in between, at last since the worker died (signal 9); run tilearena doctor"
    )
    assert hand.worker_pid is None


def test_worker_that_cannot_be_ended_loses_the_hand(open_hand, monkeypatch):
    monkeypatch.setattr(worker_link, "KILL_S", 0.2)
    monkeypatch.setattr(worker_link.os, "killpg", lambda *_: None)
    problems, notices = first_problems(3), []
    hand = open_hand(faults=[("hang", shape(problems[1]), 3)], patience_s=0.5, notice=notices.append)
    process = hand._process._process
    for _ in range(2):  # nor does the next batch wait for it
        with pytest.raises(HandLostError) as caught:
            measure(hand, problems)
        assert str(caught.value) == (
            "Synthetic device (formula, not measured) is given up: its worker cannot be ended; run tilearena doctor"
        )
    assert (hand.worker_pid, notices) == (None, [])
    process.wait(5)  # this one sees that its input is closed


def test_gpu_that_fails_under_every_candidate_loses_the_hand_and_makes_no_rows(open_hand, monkeypatch):
    monkeypatch.setattr(worker_hand, "TROUBLES", 3 / len(CANDIDATES))
    problems = first_problems(3)
    hand = open_hand(faults=[("fault", shape(problem), None) for problem in problems[1:]])
    with pytest.raises(HandLostError, match="its worker failed again and again without a single time in between"):
        measure(hand, problems)


def test_bug_of_the_runner_is_raised_and_not_measured(open_hand):
    hand = open_hand(faults=[("bug", None, 0)])
    with pytest.raises(MeasureError, match=r"^the worker failed: ValueError: a bug$"):
        measure(hand, first_problems(2))
    assert hand.worker_pid is None


@pytest.mark.parametrize("error", [NoGpuError, DeviceFailedError])
def test_error_in_opening_is_raised_as_it_is(open_hand, error):
    with pytest.raises(error, match=r"^it cannot be opened$"):
        open_hand(open_error=error.__name__)


def test_worker_that_dies_or_hangs_in_opening_is_an_error(tmp_path):
    opened = tmp_path / "opened"
    opened.touch()
    with pytest.raises(MeasureError, match=r"^no worker could be started: the worker died \(signal 9\)$"):
        WorkerHand(standin.opening(once=str(opened)))
    with pytest.raises(MeasureError, match=r"^no worker could be started: it did not finish within 1 s$"):
        WorkerHand(standin.opening(open_s=60), open_patience_s=1.0)


def test_stop_ends_a_batch_at_once_and_keeps_what_is_finished(open_hand):
    problems, stop = first_problems(6), threading.Event()
    hand = open_hand(faults=[("hang", shape(problems[3]), 2)])
    timer = threading.Timer(0.5, stop.set)
    timer.start()
    finished = hand.measure(Order(problems, PROTOCOL), stop)
    timer.join()
    assert finished.seconds < 1.5
    assert finished.rows == undisturbed(problems[:2])  # the third is under way until the fourth is proved
    assert finished.n_problems == 2
    assert hand.worker_pid is None
    assert measure(hand, problems[:2]).rows == undisturbed(problems[:2])  # and it can go on


def test_second_hand_of_a_card_waits_for_the_first(open_hand):
    notices, opened = [], threading.Event()
    first = open_hand(card="c0ffee")

    def wait():
        with WorkerHand(standin.opening(card="c0ffee"), notice=notices.append):
            opened.set()

    second = threading.Thread(target=wait)
    second.start()
    end = time.monotonic() + 20
    while not notices:
        assert time.monotonic() < end
        time.sleep(0.05)
    measure(first, first_problems(3))
    assert not opened.wait(0.6)
    first.close()
    assert opened.wait(20)
    second.join()
    assert len(notices) == 1
    assert notices[0].startswith("another process measures on this Synthetic device")


def test_hand_that_waits_for_a_card_gives_up_when_it_is_told(open_hand):
    open_hand(card="c0ffee")
    stop = threading.Event()
    with pytest.raises(Interrupted, match=r"^interrupted before the GPU was open: nothing was measured$"):
        WorkerHand(standin.opening(card="c0ffee"), notice=lambda text: stop.set(), stop=stop)
