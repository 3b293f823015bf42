"""A fault of a candidate, on the stand-in runner: it is one failed row, and all else is measured."""

import os
import signal
import threading
import time

import pytest
from standin_hand import CANDIDATES, first_problems, measure, shape, undisturbed

from tilearena.records import Status
from tilearena.worker_hand import WorkerHand

pytestmark = pytest.mark.usefixtures("workers_find_the_standin")
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
    problems = first_problems(2 * len(FAULTS))
    planted = dict(zip(problems[1::2], FAULTS, strict=True))
    hand = open_hand(faults=[(kind, shape(p), who) for p, (kind, who, *_) in planted.items()], patience_s=1.0)
    rows = measure(hand, problems).rows
    assert [(row.m, row.candidate) for row in rows] == [(p.m, candidate) for p in problems for candidate in CANDIDATES]
    failed = [(row.m, row.candidate, row.status.value, row.reason) for row in rows if row.status is not Status.OK]
    assert failed == [(p.m, who, status, why.format(m=p.m)) for p, (_, who, status, why) in planted.items()]
    expected = []
    for problem in problems:
        who = planted[problem][1] if problem in planted else None
        expected += undisturbed([problem], [candidate for candidate in CANDIDATES if candidate != who])
    assert [row for row in rows if row.status is Status.OK] == expected


def test_kill_during_the_warm_up_costs_no_problem_an_examination(open_hand, monkeypatch):
    problems, hand = first_problems(3), open_hand(warm_up_s=2.0)
    monkeypatch.setattr(WorkerHand, "_examine", None)
    killer = threading.Timer(1.0, lambda: os.kill(hand.worker_pid, signal.SIGKILL))
    killer.start()
    started = time.monotonic()
    assert measure(hand, problems).rows == undisturbed(problems)
    assert time.monotonic() - started > 1.0 + 2.0  # that of the second worker is whole


def test_two_faults_on_one_problem_are_both_found(open_hand):
    problems = first_problems(3)
    faults = [("fault", shape(problems[1]), 2), ("abort", shape(problems[1]), 7)]
    rows = measure(open_hand(faults=faults), problems).rows
    assert [(r.m, r.candidate) for r in rows if r.status is not Status.OK] == [(128, 2), (128, 7)]
    assert len(rows) == 30


def test_fault_in_the_proof_of_the_next_problem_is_one_failed_row_of_that_one(open_hand):
    problems, notices = first_problems(5), []
    hand = open_hand(faults=[("next_fault", shape(problems[2]), 6)], notice=notices.append)
    rows = measure(hand, problems).rows
    assert [(row.m, row.candidate) for row in rows] == [(p.m, candidate) for p in problems for candidate in CANDIDATES]
    failed = [(row.m, row.candidate, row.status, row.reason) for row in rows if row.status is not Status.OK]
    reason = "the GPU failed at 192x1024x512: an illegal memory access was encountered"
    assert failed == [(192, 6, Status.LAUNCH_FAILED, reason)]
    others = tuple(candidate for candidate in CANDIDATES if candidate != 6)
    expected = [undisturbed([p], others if p is problems[2] else CANDIDATES) for p in problems]
    assert [row for row in rows if row.status is Status.OK] == [row for part in expected for row in part]
    # while it was under way, in the company of its own problem, and alone
    assert [notice.split(": ")[1].removeprefix("the GPU failed at ") for notice in notices] == [
        "128x1024x512", "192x1024x512", "192x1024x512"
    ]  # fmt: skip


def test_fault_that_no_candidate_has_alone_fails_the_whole_problem_and_says_so(open_hand):
    problems = first_problems(3)
    rows = measure(open_hand(faults=[("crowd", shape(problems[1]), None)]), problems).rows
    failed = [row for row in rows if row.status is not Status.OK]
    assert [(row.m, row.candidate) for row in failed] == [(128, candidate) for candidate in CANDIDATES]
    assert {row.reason for row in failed} == {
        "failed together with other candidates, none of which failed alone: the worker died (signal 9)"
    }
    assert [row for row in rows if row.m != 128] == undisturbed([problems[0], problems[2]])


def test_problem_on_which_every_candidate_dies_is_a_row_for_each_and_the_hand_goes_on(open_hand):
    problems = first_problems(3)
    faults = [("die", shape(problems[0]), None), ("fault", shape(problems[1]), 4)]
    rows = measure(open_hand(faults=faults, vendor=0.9), problems).rows
    failed = [(row.m, row.candidate) for row in rows if row.status is Status.LAUNCH_FAILED]
    assert failed == [*[(64, candidate) for candidate in range(11)], (128, 4)]
    assert len(rows) == 33


def test_candidate_that_faulted_on_three_problems_is_launched_no_more(open_hand):
    problems, notices = first_problems(6), []
    hand = open_hand(faults=[("fault", None, 8)], notice=notices.append)
    rows = [row for part in (problems[:2], problems[2:]) for row in measure(hand, part).rows]
    failed = [row for row in rows if row.status is not Status.OK]
    assert [(row.m, row.candidate) for row in failed] == [(shape(problem)[0], 8) for problem in problems]
    assert all(row.reason.startswith("the GPU failed at ") for row in failed[:3])
    assert {row.reason for row in failed[3:]} == {"not launched: it faulted on 3 problems before"}
    assert len(notices) == 6  # a fault in company and one alone, three times
    assert len(rows) == 60


@pytest.mark.parametrize("kind", ["fault", "die"])
def test_fault_in_the_warm_up_is_found_like_any_other(open_hand, kind):
    problems = first_problems(5)
    hand = open_hand(faults=[(kind, shape(problems[2]), 0)], warm_up_s=0.05)
    rows = measure(hand, problems).rows
    assert [(row.m, row.candidate) for row in rows if row.status is not Status.OK] == [(192, 0)]
    assert len(rows) == 50


def test_problem_that_was_examined_in_vain_does_not_pay_for_its_neighbour(open_hand, tmp_path):
    problems = first_problems(5)
    faults = [(f"once {tmp_path / 'flag'}", shape(problems[2]), 4), ("next_fault", shape(problems[3]), 6)]
    rows = measure(open_hand(faults=faults, warm_up_s=0.05), problems).rows
    assert (tmp_path / "flag").exists()
    assert [(row.m, row.candidate) for row in rows if row.status is not Status.OK] == [(256, 6)]
    assert len(rows) == 50
