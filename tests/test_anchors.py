"""The anchor problems, and their times."""

import threading

import numpy as np
import pytest
from inprocess import InProcessHand
from standin import StandInRunner, StandInTrial, formula_ns, templates

from tilearena.anchors import anchor_problems, anchor_times
from tilearena.records import Protocol

COLD = Protocol(name="cold", rounds=6, seed=5)


@pytest.mark.parametrize(("dtype", "bit_op"), [("s8", None), ("s4", None), ("b1", "and"), ("b1", "xor")])
def test_anchors_are_64_problems_of_the_dtype_and_its_bit_operation(dtype, bit_op):
    problems = anchor_problems(dtype, bit_op)
    assert len(set(problems)) == 64
    assert {(p.dtype, p.bit_op) for p in problems} == {(dtype, bit_op)}
    assert max(p.macs for p in problems) <= 1 << 33


def test_anchor_times_are_of_one_launch_of_the_default_template_alone():
    problems = anchor_problems("s8", None)[:8]
    exact = [formula_ns((p.m, p.n, p.k), templates("s8")[1]) for p in problems]
    for protocol in (COLD, COLD.model_copy(update={"name": "hot"})):
        hand = InProcessHand(StandInRunner(noise=0.001, launches=4))
        times = anchor_times(hand, problems, protocol, threading.Event())
        assert [which for _, which, _ in hand.asked] == [(1,)] * 8
        assert all(type(time_ns) is int for time_ns in times)
        assert times == pytest.approx(exact, rel=0.005)


def test_anchor_time_is_the_median_of_all_samples():
    class RisingTrial(StandInTrial):
        def collect(self):
            return [10, 20, 30, 41, 50, 1000][: len(self.order)], {}

    class Rising(StandInRunner):
        trial_type = RisingTrial

    assert anchor_times(InProcessHand(Rising()), anchor_problems("s8", None)[:1], COLD, threading.Event()) == (36,)
    assert float(np.median([10, 20, 30, 41, 50, 1000])) == 35.5


def test_anchor_that_fails_has_the_time_zero():
    problems = anchor_problems("s8", None)[:3]
    wrong = (problems[1].m, problems[1].n, problems[1].k)
    hand = InProcessHand(StandInRunner(faults=[("wrong", wrong, 1)]))
    times = anchor_times(hand, problems, COLD, threading.Event())
    assert [time_ns > 0 for time_ns in times] == [True, False, True]


def test_anchors_that_were_stopped_have_no_times():
    stop = threading.Event()
    stop.set()
    assert anchor_times(InProcessHand(StandInRunner()), anchor_problems("s8", None), COLD, stop) == ()
