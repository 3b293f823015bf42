"""What a hand makes of its card's sensors: a batch that was slowed is measured again."""

import itertools
import threading
import time

import pytest
from standin_hand import PROTOCOL, first_problems, measure, undisturbed

from tilearena.hands import Order

pytestmark = pytest.mark.usefixtures("workers_find_the_standin")


def _sensors(*reasons):
    """A reading for each batch, the last one for ever; a batch has one reading here, since it is short."""
    left = list(reasons)
    return lambda: {"throttle_reasons": left.pop(0) if len(left) > 1 else left[0], "power_w": 100.0}


@pytest.mark.parametrize("reason", [0x8, 0x20, 0x40, 0x80])
def test_batch_that_heat_or_hardware_slowed_is_measured_again(open_hand, reason):
    counts = []
    hand = open_hand(read=_sensors(reason, 0x4))
    finished = measure(hand, first_problems(2)[:1], done=counts.append)
    assert (finished.attempts, finished.slowed, finished.telemetry.throttle_reasons) == (2, False, 0x4)
    assert finished.rows == undisturbed(first_problems(1))
    assert counts == [1, 1]


def test_seconds_are_of_all_attempts_but_not_of_the_warm_up(open_hand):
    hand = open_hand(read=_sensors(0x8, 0x8, 0x4), cool_s=0.3, problem_s=0.2, warm_up_s=1.0)
    started = time.monotonic()
    finished = measure(hand, first_problems(1))
    assert finished.attempts == 3
    assert 3 * 0.2 + 2 * 0.3 <= finished.seconds <= time.monotonic() - started - 1.0


def test_batch_that_stays_slowed_is_flagged_after_three_attempts(open_hand):
    finished = measure(open_hand(read=_sensors(0x20)), first_problems(1))
    assert (finished.attempts, finished.slowed) == (3, True)
    assert finished.rows == undisturbed(first_problems(1))


def test_power_cap_is_recorded_and_repeats_nothing(open_hand):
    finished = measure(open_hand(read=_sensors(0x4 | 0x1)), first_problems(1))
    assert (finished.attempts, finished.slowed, finished.telemetry.throttle_reasons) == (1, False, 0x5)
    assert finished.telemetry.n_samples == 1
    assert finished.telemetry.power_w.median == 100.0


def test_stop_during_a_repeat_gives_the_whole_slowed_batch(open_hand):
    stop, problems = threading.Event(), first_problems(4)
    hand = open_hand(read=_sensors(0x8), problem_s=0.02)
    counts = []

    def done(count):
        counts.append(count)
        if counts.count(2) == 2:
            stop.set()

    finished = hand.measure(Order(problems, PROTOCOL), stop, done)
    assert (finished.n_problems, finished.attempts, finished.slowed) == (4, 1, True)
    assert finished.seconds >= 6 * 0.02  # of the repeat, too
    assert finished.rows == undisturbed(problems)


def test_sensors_are_read_ten_times_a_second_while_problems_are_measured_and_not_before(open_hand):
    moments = []
    hand = open_hand(problem_s=0.05, read=lambda: moments.append(time.monotonic()) or {"power_w": 1.0}, warm_up_s=0.5)
    assert not moments
    started = time.monotonic()
    finished = measure(hand, first_problems(20))
    assert min(moments) - started > 0.5  # after the warm-up
    assert min(b - a for a, b in itertools.pairwise(moments)) > 0.09
    assert 3 <= len(moments) == finished.telemetry.n_samples <= 10 * finished.seconds + 1
    assert finished.seconds < time.monotonic() - started - 0.45  # without the warm-up
