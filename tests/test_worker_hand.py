"""The hand and its worker on the stand-in runner: whatever happens to the worker, each row comes once, none is lost."""

import contextlib
import itertools
import os
import random
import signal
import threading
import time

import pytest
import standin
from standin import StandInRunner

from tilearena import worker_hand, worker_link
from tilearena.errors import DeviceFailedError, Interrupted, MeasureError, NoGpuError
from tilearena.hands import HandLostError, Order
from tilearena.race import measure_problem
from tilearena.records import Problem, Protocol, Status
from tilearena.worker_hand import WorkerHand

pytestmark = pytest.mark.usefixtures("workers_find_the_standin")
PROTOCOL = Protocol(name="cold", rounds=4, seed=1)
CANDIDATES = tuple(range(10))


def _problems(count):
    return tuple(Problem(dtype="s8", m=64 * (i + 1), n=1024, k=512) for i in range(count))


def _shape(problem):
    return problem.m, problem.n, problem.k


def _undisturbed(problems, which=CANDIDATES):
    runner = StandInRunner()
    return [row for problem in problems for row in measure_problem(runner, problem, PROTOCOL, which)]


@pytest.fixture
def open_hand():
    """A WorkerHand on the stand-in; options of the hand and of the stand-in."""
    with contextlib.ExitStack() as stack:

        def _open(*, patience_s=20.0, read=dict, notice=lambda text: None, cool_s=0.0, warm_up_s=0.0, **options):
            opening = standin.opening(warm_up_s=warm_up_s, **options)
            hand = WorkerHand(opening, patience_s=patience_s, read=read, notice=notice, cool_s=cool_s)
            return stack.enter_context(hand)

        yield _open


def _measure(hand, problems, **options):
    return hand.measure(Order(problems, PROTOCOL), threading.Event(), **options)


def test_hand_measures_as_the_runner_in_its_worker_and_counts(open_hand):
    hand, counts = open_hand(card="a1"), []
    assert (hand.device.uuid_sha256, hand.default, hand.versions) == ("a1", 1, {"standin": "1"})
    assert (hand.candidates, hand.clock) == (StandInRunner().candidates, StandInRunner().clock())
    finished = _measure(hand, _problems(5), done=counts.append)
    assert finished.rows == _undisturbed(_problems(5))
    assert (finished.n_problems, finished.attempts, finished.slowed, counts) == (5, 1, False, [1, 2, 3, 4, 5])


def test_order_may_ask_for_other_candidates_of_each_problem(open_hand):
    problems = _problems(3)
    order = Order(problems, PROTOCOL, ((9, 1), (), (4,)))
    rows = open_hand().measure(order, threading.Event()).rows
    assert [(row.m, row.candidate) for row in rows] == [(64, 9), (64, 1), (192, 4)]


def test_host_is_told_apart_without_its_name(open_hand):
    host = open_hand().host
    assert host == worker_hand.host()
    assert len(host) == 16
    int(host, 16)


#: kind, candidate, status, reason
FAULTS = [
    ("die", 3, "launch_failed", "the worker died (signal 9)"),
    ("abort", 4, "launch_failed", "the worker died (signal 6)"),
    ("fault", 5, "launch_failed", "the GPU failed at {m}x1024x512: an illegal memory access was encountered"),
    ("late_fault", 9, "launch_failed", "the GPU failed at {m}x1024x512: an illegal memory access was encountered"),
    ("hang", 1, "launch_failed", "it did not finish within 1 s"),
    ("wrong", 0, "wrong_result", "row 0 of the output is wrong"),
    ("late_wrong", 3, "wrong_result", "row 3 of the output is wrong"),
    ("no_memory", 8, "launch_failed", "the launch failed (CUDA error 2)"),
]


def test_each_fault_of_a_candidate_is_one_failed_row_and_all_else_is_measured(open_hand):
    problems = _problems(2 * len(FAULTS))
    planted = dict(zip(problems[1::2], FAULTS, strict=True))
    hand = open_hand(faults=[(kind, _shape(p), who) for p, (kind, who, *_) in planted.items()], patience_s=1.0)
    rows = _measure(hand, problems).rows
    assert [(row.m, row.candidate) for row in rows] == [(p.m, candidate) for p in problems for candidate in CANDIDATES]
    failed = [(row.m, row.candidate, row.status.value, row.reason) for row in rows if row.status is not Status.OK]
    assert failed == [(p.m, who, status, why.format(m=p.m)) for p, (_, who, status, why) in planted.items()]
    expected = []
    for problem in problems:
        who = planted[problem][1] if problem in planted else None
        expected += _undisturbed([problem], [candidate for candidate in CANDIDATES if candidate != who])
    assert [row for row in rows if row.status is Status.OK] == expected


def test_two_faults_on_one_problem_are_both_found(open_hand):
    problems = _problems(3)
    faults = [("fault", _shape(problems[1]), 2), ("abort", _shape(problems[1]), 7)]
    rows = _measure(open_hand(faults=faults), problems).rows
    assert [(r.m, r.candidate) for r in rows if r.status is not Status.OK] == [(128, 2), (128, 7)]
    assert len(rows) == 30


def test_fault_in_the_proof_of_the_next_problem_is_one_failed_row_of_that_one(open_hand):
    problems, notices = _problems(5), []
    hand = open_hand(faults=[("next_fault", _shape(problems[2]), 6)], notice=notices.append)
    rows = _measure(hand, problems).rows
    assert [(row.m, row.candidate) for row in rows] == [(p.m, candidate) for p in problems for candidate in CANDIDATES]
    failed = [(row.m, row.candidate, row.status, row.reason) for row in rows if row.status is not Status.OK]
    reason = "the GPU failed at 192x1024x512: an illegal memory access was encountered"
    assert failed == [(192, 6, Status.LAUNCH_FAILED, reason)]
    others = tuple(candidate for candidate in CANDIDATES if candidate != 6)
    expected = [_undisturbed([p], others if p is problems[2] else CANDIDATES) for p in problems]
    assert [row for row in rows if row.status is Status.OK] == [row for part in expected for row in part]
    # while it was announced, in the company of its own problem, and alone
    assert [notice.split(": ")[1].removeprefix("the GPU failed at ") for notice in notices] == [
        "128x1024x512", "192x1024x512", "192x1024x512"
    ]  # fmt: skip


def test_fault_that_no_candidate_has_alone_fails_the_whole_problem_and_says_so(open_hand):
    problems = _problems(3)
    rows = _measure(open_hand(faults=[("crowd", _shape(problems[1]), None)]), problems).rows
    failed = [row for row in rows if row.status is not Status.OK]
    assert [(row.m, row.candidate) for row in failed] == [(128, candidate) for candidate in CANDIDATES]
    assert {row.reason for row in failed} == {
        "failed together with other candidates, none of which failed alone: the worker died (signal 9)"
    }
    assert [row for row in rows if row.m != 128] == _undisturbed([problems[0], problems[2]])


def test_candidate_that_faulted_on_three_problems_is_launched_no_more(open_hand):
    problems, notices = _problems(6), []
    hand = open_hand(faults=[("fault", None, 8)], notice=notices.append)
    rows = [row for part in (problems[:2], problems[2:]) for row in _measure(hand, part).rows]
    failed = [row for row in rows if row.status is not Status.OK]
    assert [(row.m, row.candidate) for row in failed] == [(_shape(problem)[0], 8) for problem in problems]
    assert all(row.reason.startswith("the GPU failed at ") for row in failed[:3])
    assert {row.reason for row in failed[3:]} == {"not launched: it faulted on 3 problems before"}
    assert len(notices) == 6  # a fault in company and one alone, three times
    assert len(rows) == 60


def test_fault_in_the_warm_up_is_found_like_any_other(open_hand):
    problems = _problems(5)
    hand = open_hand(faults=[("fault", _shape(problems[2]), 0)], warm_up_s=0.05)
    rows = _measure(hand, problems).rows
    assert [(row.m, row.candidate) for row in rows if row.status is not Status.OK] == [(192, 0)]
    assert len(rows) == 50


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
    problems = _problems(120)
    hand = open_hand(problem_s=0.02)
    killer = _Killer(hand, kills=20, seed=3)
    rows = []
    while len(killer.killed) < 20 or not rows:
        rows = _measure(hand, problems, done=killer.done).rows
        assert rows == _undisturbed(problems)
    assert len(set(killer.killed)) == 20


def test_worker_that_is_stopped_before_a_large_batch_costs_no_row(open_hand):
    problems = _problems(1500)
    hand = open_hand(patience_s=1.0)
    os.kill(hand.worker_pid, signal.SIGSTOP)
    finished = hand.measure(Order(problems, PROTOCOL, ((1,),) * len(problems)), threading.Event())
    assert finished.rows == _undisturbed(problems, (1,))


def test_overloaded_host_loses_the_hand_and_blames_no_candidate(open_hand):
    problems = _problems(3)
    hand = open_hand(faults=[("late_overload", _shape(problems[1]), 4)])
    with pytest.raises(HandLostError, match=r"^Synthetic device .* is given up: launching took too long$"):
        _measure(hand, problems)
    assert hand.worker_pid is None
    rows = _measure(hand, (problems[0], problems[2])).rows
    assert rows == _undisturbed((problems[0], problems[2]))


def test_retakes_of_a_batch_are_counted(open_hand):
    problems = _problems(4)
    faults = [("retake", _shape(problems[1]), 4), ("retake", _shape(problems[2]), None), ("wrong", None, 0)]
    hand = open_hand(faults=faults, warm_up_s=0.05)  # the warm-up's, with problem 2, do not count
    assert _measure(hand, problems).retakes == 11
    assert _measure(hand, problems[:1]).retakes == 0


def test_worker_that_is_killed_between_two_batches_is_started_again(open_hand):
    hand = open_hand()
    before = hand.worker_pid
    os.kill(before, signal.SIGKILL)
    assert _measure(hand, _problems(3)).rows == _undisturbed(_problems(3))
    assert hand.worker_pid not in (None, before)


@pytest.mark.parametrize("change", [{"card": "b2"}, {"card": "a1", "vendor": 0.9}])
def test_worker_that_is_another_one_when_it_is_started_again_loses_the_hand(open_hand, change):
    hand = open_hand(card="a1")
    hand._opening = standin.opening(**change)
    os.kill(hand.worker_pid, signal.SIGKILL)
    with pytest.raises(HandLostError, match=r"is given up: its card or kernels were exchanged meanwhile$"):
        _measure(hand, _problems(3))
    assert hand.worker_pid is None


def test_hand_is_lost_when_worker_after_worker_fails(open_hand, monkeypatch, tmp_path):
    monkeypatch.setattr(worker_hand, "TROUBLES", 2)
    problems = _problems(2)
    hand = open_hand(once=str(tmp_path / "opened"), faults=[("die", _shape(problems[1]), 0)])
    with pytest.raises(HandLostError) as caught:
        _measure(hand, problems)
    assert str(caught.value) == (
        "Synthetic device (formula, not measured) is given up: its worker failed 3 times without a single time in "
        "between, at last since the worker died (signal 9); run tilearena doctor"
    )
    assert hand.worker_pid is None


def test_worker_that_cannot_be_ended_loses_the_hand(open_hand, monkeypatch):
    monkeypatch.setattr(worker_link, "KILL_S", 0.2)
    monkeypatch.setattr(worker_link.os, "killpg", lambda *_: None)
    problems, notices = _problems(3), []
    hand = open_hand(faults=[("hang", _shape(problems[1]), 3)], patience_s=0.5, notice=notices.append)
    process = hand._process._process
    for _ in range(2):  # nor does the next batch wait for it
        with pytest.raises(HandLostError) as caught:
            _measure(hand, problems)
        assert str(caught.value) == (
            "Synthetic device (formula, not measured) is given up: its worker cannot be ended; run tilearena doctor"
        )
    assert (hand.worker_pid, notices) == (None, [])
    process.wait(5)  # this one sees that its input is closed


def test_gpu_that_fails_under_every_candidate_loses_the_hand_and_makes_no_rows(open_hand, monkeypatch):
    monkeypatch.setattr(worker_hand, "TROUBLES", 3)
    problems = _problems(3)
    hand = open_hand(faults=[("fault", _shape(problem), None) for problem in problems[1:]])
    with pytest.raises(HandLostError, match="its worker failed 4 times without a single time in between"):
        _measure(hand, problems)


def test_bug_of_the_runner_is_raised_and_not_measured(open_hand):
    hand = open_hand(faults=[("bug", None, 0)])
    with pytest.raises(MeasureError, match=r"^the worker failed: ValueError: a bug$"):
        _measure(hand, _problems(2))
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
    problems, stop = _problems(6), threading.Event()
    hand = open_hand(faults=[("hang", _shape(problems[3]), 2)])
    timer = threading.Timer(0.5, stop.set)
    timer.start()
    finished = hand.measure(Order(problems, PROTOCOL), stop)
    timer.join()
    assert finished.seconds < 1.5
    assert finished.rows == _undisturbed(problems[:2])  # the third is under way until the fourth is proved
    assert finished.n_problems == 2
    assert hand.worker_pid is None
    assert _measure(hand, problems[:2]).rows == _undisturbed(problems[:2])  # and it can go on


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
    _measure(first, _problems(3))
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


def _sensors(*reasons):
    """A reading for each batch, the last one for ever; a batch has one reading here, since it is short."""
    left = list(reasons)
    return lambda: {"throttle_reasons": left.pop(0) if len(left) > 1 else left[0], "power_w": 100.0}


@pytest.mark.parametrize("reason", [0x8, 0x20, 0x40, 0x80])
def test_batch_that_heat_or_hardware_slowed_is_measured_again(open_hand, reason):
    counts = []
    hand = open_hand(read=_sensors(reason, 0x4))
    finished = _measure(hand, _problems(2)[:1], done=counts.append)
    assert (finished.attempts, finished.slowed, finished.telemetry.throttle_reasons) == (2, False, 0x4)
    assert finished.rows == _undisturbed(_problems(1))
    assert counts == [1, 1]


def test_seconds_are_of_all_attempts_but_not_of_the_warm_up(open_hand):
    hand = open_hand(read=_sensors(0x8, 0x8, 0x4), cool_s=0.3, problem_s=0.2, warm_up_s=1.0)
    started = time.monotonic()
    finished = _measure(hand, _problems(1))
    assert finished.attempts == 3
    assert 3 * 0.2 + 2 * 0.3 <= finished.seconds <= time.monotonic() - started - 1.0


def test_batch_that_stays_slowed_is_flagged_after_three_attempts(open_hand):
    finished = _measure(open_hand(read=_sensors(0x20)), _problems(1))
    assert (finished.attempts, finished.slowed) == (3, True)
    assert finished.rows == _undisturbed(_problems(1))


def test_power_cap_is_recorded_and_repeats_nothing(open_hand):
    finished = _measure(open_hand(read=_sensors(0x4 | 0x1)), _problems(1))
    assert (finished.attempts, finished.slowed, finished.telemetry.throttle_reasons) == (1, False, 0x5)
    assert finished.telemetry.n_samples == 1
    assert finished.telemetry.power_w.median == 100.0


def test_stop_during_a_repeat_gives_the_whole_slowed_batch(open_hand):
    stop, problems = threading.Event(), _problems(4)
    hand = open_hand(read=_sensors(0x8), problem_s=0.02)
    counts = []

    def done(count):
        counts.append(count)
        if counts.count(2) == 2:
            stop.set()

    finished = hand.measure(Order(problems, PROTOCOL), stop, done)
    assert (finished.n_problems, finished.attempts, finished.slowed) == (4, 1, True)
    assert finished.seconds >= 6 * 0.02  # of the repeat, too
    assert finished.rows == _undisturbed(problems)


def test_sensors_are_read_ten_times_a_second_while_problems_are_measured_and_not_before(open_hand):
    moments = []
    hand = open_hand(problem_s=0.05, read=lambda: moments.append(time.monotonic()) or {"power_w": 1.0}, warm_up_s=0.5)
    assert not moments
    started = time.monotonic()
    finished = _measure(hand, _problems(20))
    assert min(moments) - started > 0.5  # after the warm-up
    assert min(b - a for a, b in itertools.pairwise(moments)) > 0.09
    assert 3 <= len(moments) == finished.telemetry.n_samples <= 10 * finished.seconds + 1
    assert finished.seconds < time.monotonic() - started - 0.45  # without the warm-up
