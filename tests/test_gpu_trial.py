"""One problem under way around a kernel library: how the runner's trial reads the answers, and what it does again."""

import ctypes
import sys
from pathlib import Path

import pytest
from fake_library import COLD, HOT, PROBLEM, TEMPLATES, FakeLibrary, entry_of

from tilearena.errors import DeviceFailedError, OverloadedError
from tilearena.race import measure_problem
from tilearena.records import Status

OUTCOMES = [
    (1, Status.INFEASIBLE, "the kernel cannot implement this problem"),
    (2, Status.LAUNCH_FAILED, "the launch failed (CUDA error 12)"),
    (3, Status.WRONG_RESULT, "row 12 of the output is wrong"),
    (4, Status.WRONG_RESULT, "the kernel wrote outside its output (word 12 of a guard band)"),
    (5, Status.WRONG_RESULT, "element 12 of the output differs from the direct reference"),
    (6, Status.WRONG_RESULT, "row 12 of the output of the last timed launch is wrong"),
]


@pytest.mark.parametrize(("outcome", "status", "reason"), OUTCOMES)
@pytest.mark.parametrize("when", ["outcomes", "after"])
def test_outcome_becomes_a_status_with_a_reason_and_no_time(open_runner, when, outcome, status, reason):
    library = FakeLibrary([t.id for t in TEMPLATES], **{when: {4: (outcome, 12)}})
    runner, _ = open_runner(library)
    good, bad = measure_problem(runner, PROBLEM, COLD, [3, 4])
    assert good.status is Status.OK
    assert (bad.status, bad.reason, bad.elapsed_ns) == (status, reason, ())


def test_hold_that_expired_is_repeated_three_times_at_most(open_runner):
    ids = [t.id for t in TEMPLATES]
    runner, library = open_runner(FakeLibrary(ids, codes=[1, 1, 0]))
    assert runner.prove(PROBLEM, COLD, [0]).sample([0]) == ([4000], {})
    assert (library.turns, runner.retakes) == ([[0]] * 3, 2)
    runner, library = open_runner(FakeLibrary(ids, codes=[1, 1, 1]))
    with pytest.raises(OverloadedError, match="3 times at 77x104x208 s8; is the machine overloaded"):
        runner.prove(PROBLEM, COLD, [0]).sample([0])


def test_proof_whose_holds_expired_every_time_says_nothing(open_runner):
    runner, library = open_runner()
    library.begin_code = 1
    with pytest.raises(OverloadedError, match="3 times at 77x104x208 s8; is the machine overloaded"):
        runner.prove(PROBLEM, HOT, [0]).begin()


@pytest.mark.parametrize("codes", [[-1], [0, -1]], ids=["in the screen", "in the final"])
def test_device_that_failed_stops_the_measuring(open_runner, codes):
    runner, _ = open_runner(FakeLibrary([t.id for t in TEMPLATES], codes=codes))
    with pytest.raises(DeviceFailedError, match="the GPU failed at 77x104x208 s8"):
        measure_problem(runner, PROBLEM, COLD, [0])


def test_exception_of_an_external_is_a_failed_launch_with_its_message(open_runner):
    def broken(*arguments):
        raise RuntimeError("cuBLAS is missing")

    library = FakeLibrary([t.id for t in reversed(TEMPLATES)], outcomes={-1: (2, 13), -2: (2, 0)})
    runner, _ = open_runner(library, cublaslt=Path("x"), externals=[("vendor", broken)])
    runner.prove(PROBLEM, COLD, [11])
    shape = (PROBLEM.m, PROBLEM.n, PROBLEM.k)
    assert library.externals[0](ctypes.c_void_p(1), None, None, *shape, 4, None) == 2
    direct, vendor = measure_problem(runner, PROBLEM, COLD, [10, 11])
    assert (direct.status, direct.reason) == (Status.LAUNCH_FAILED, "cuBLASLt's call failed (status 13)")
    assert (vendor.status, vendor.reason) == (Status.LAUNCH_FAILED, "the vendor's call failed: cuBLAS is missing")


@pytest.mark.parametrize("answer", [lambda *_: None, lambda *_: "0", lambda *_: 0.5, lambda *_: sys.exit(0)])
def test_external_that_answers_no_code_is_a_failed_launch(open_runner, answer):
    runner, library = open_runner(externals=[("vendor", answer)])
    runner.prove(PROBLEM, COLD, [10])
    assert library.externals[0](1, 2, 3, 4, 5, 6, 7, None) == 2
    assert runner.externals[10].messages[4, 5, 6]


def test_reason_of_an_external_is_of_its_own_problem(open_runner):
    def broken(a, b, d, m, n, k, launches, stream):
        raise RuntimeError(f"not with k = {k}")

    other = PROBLEM.model_copy(update={"k": 224})
    library = FakeLibrary([t.id for t in reversed(TEMPLATES)], outcomes={-2: (2, 0)})
    runner, _ = open_runner(library, problems=[PROBLEM, other], externals=[("vendor", broken)])
    first, second = (runner.prove(problem, COLD, [10]) for problem in (PROBLEM, other))
    for problem in (PROBLEM, other):
        library.externals[0](1, 2, 3, problem.m, problem.n, problem.k, 1, None)
    reasons = [trial.begin().failures[10].reason for trial in (first, second)]
    assert reasons == [f"the vendor's call failed: not with k = {k}" for k in (208, 224)]
    library.outcomes = {-2: (2, 700)}
    silent = runner.prove(PROBLEM.model_copy(update={"m": 5}), COLD, [10]).begin()
    assert silent.failures[10].reason == "the launch failed (CUDA error 700)"


def test_two_trials_have_slots_of_their_own_and_the_third_has_the_first_ones(open_runner):
    other = PROBLEM.model_copy(update={"k": 224})
    runner, library = open_runner(problems=[PROBLEM, other])
    first, second = runner.prove(PROBLEM, COLD, [0, 1]), runner.prove(other, HOT, [2])
    assert [first.begin().launches, second.begin().launches] == [{0: 1, 1: 1}, {2: 4}]
    first.submit([0, 1, 0])
    second.submit([2, 2])
    times = [1000 * (entry_of(c) + 4) for c in (0, 1, 2)]
    assert first.collect() == ([times[0], times[1] + 1, times[0] + 2], {})
    assert second.collect() == ([times[2], times[2] + 1], {})
    runner.prove(PROBLEM, COLD, [3])
    with pytest.raises(AssertionError, match="another trial has the slot by now"):
        first.submit([0])
    assert [job["entries"] for job in library.slots.values()].count([entry_of(3)]) == 1
    assert [entry_of(2)] in [job["entries"] for job in library.slots.values()]


def test_samples_are_taken_again_in_their_own_slot(open_runner):
    runner, library = open_runner(FakeLibrary([t.id for t in reversed(TEMPLATES)], codes=[1, 0, 0]))
    first, second = (runner.prove(PROBLEM, COLD, [c]) for c in (0, 1))
    first.submit([0])
    second.submit([1, 1])
    assert first.collect() == ([1000 * (entry_of(0) + 4)], {})
    assert (library.turns, runner.retakes) == ([[0], [0, 0], [0]], 1)
    assert second.collect()[0][0] == 1000 * (entry_of(1) + 4)
