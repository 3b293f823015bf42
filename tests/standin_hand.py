"""A `WorkerHand` on the stand-in runner, and what it measures if nothing happens to its worker."""

import contextlib
import threading

import pytest
import standin
from standin import StandInRunner

from tilearena.hands import Order
from tilearena.race import measure_problem
from tilearena.records import Problem, Protocol
from tilearena.worker_hand import WorkerHand

PROTOCOL = Protocol(name="cold", rounds=4, seed=1)
CANDIDATES = tuple(range(10))


def first_problems(count):
    return tuple(Problem(dtype="s8", m=64 * (i + 1), n=1024, k=512) for i in range(count))


def shape(problem):
    return problem.m, problem.n, problem.k


def undisturbed(problems, which=CANDIDATES):
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


def measure(hand, problems, **options):
    return hand.measure(Order(problems, PROTOCOL), threading.Event(), **options)
