"""The worker process on the stand-in runner: what it says, when it ends, and the lock of its card."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import standin

from tilearena import worker, worker_hand
from tilearena.errors import MeasureError, NoGpuError
from tilearena.race import measure_problem
from tilearena.records import Problem, Protocol
from tilearena.worker_hand import WorkerHand
from tilearena.worker_link import Failed, Opening, Ready, Rows, Trying, Waiting, Work, WorkerDiedError, WorkerProcess

pytestmark = pytest.mark.usefixtures("workers_find_the_standin")
PROBLEMS = tuple(Problem(dtype="s8", m=64 * i, n=1024, k=512) for i in range(1, 5))
PROTOCOL = Protocol(name="cold", rounds=4, seed=1)
DEADLINE_S = 30


@pytest.fixture
def start():
    started = []

    def _start(**options):
        started.append(WorkerProcess(standin.opening(**options)))
        return started[-1]

    yield _start
    for process in started:
        process.kill()


def _hear(process, until):
    """All messages up to the first of class ``until``."""
    heard = []
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        heard += process.hear(1.0)
        if any(isinstance(said, until) for said in heard):
            return heard
    raise AssertionError(f"heard only {heard}")


def _work(problems=PROBLEMS, which=(0, 9), **options):
    return Work(problems=problems, protocol=PROTOCOL, which=(which,) * len(problems), **options)


def is_gone(pid):
    """Whether a process has ended, even if nobody has asked for its exit code."""
    try:
        return re.search(r"\) (\w)", Path(f"/proc/{pid}/stat").read_text())[1] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until(condition, seconds=DEADLINE_S):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_worker_says_what_it_has_opened_and_then_measures_problem_after_problem(start):
    process = start(card="a1", vendor=1.5)
    (ready,) = _hear(process, Ready)
    runner = standin.StandInRunner(vendor=1.5)
    assert (ready.candidates, ready.default, ready.versions) == (runner.candidates, 1, {"standin": "1"})
    assert ready.device == standin.DEVICE.model_copy(update={"uuid_sha256": "a1"})
    assert ready.clock == runner.clock()
    process.tell(_work(which=(0, 9, 10)))
    rows = []
    while len(rows) < len(PROBLEMS):
        rows += [said for said in _hear(process, Rows) if isinstance(said, Rows)]
    assert [said.problem for said in rows] == [0, 1, 2, 3]
    assert [list(said.rows) for said in rows] == [measure_problem(runner, p, PROTOCOL, (0, 9, 10)) for p in PROBLEMS]


def test_samples_that_were_taken_again_are_counted_once(start):
    process = start(faults=[("retake", (128, 1024, 512), None), ("late_retake", (192, 1024, 512), 9)])
    _hear(process, Ready)
    process.tell(_work())
    rows = []
    while len(rows) < len(PROBLEMS):
        rows += [said for said in _hear(process, Rows) if isinstance(said, Rows)]
    # the proof of the second problem runs before the rows of the first are said
    assert [said.retakes for said in rows] == [2, 0, 1, 0]


def test_message_to_a_worker_that_is_stopped_keeps_nobody_waiting(start):
    process = start()
    _hear(process, Ready)
    os.kill(process.pid, signal.SIGSTOP)
    started = time.monotonic()
    process.tell(_work(PROBLEMS * 500))  # more than a pipe holds
    assert process.hear(0.2) == []
    process.kill()
    assert time.monotonic() - started < 5
    assert is_gone(process.pid)


def test_warm_up_is_announced_goes_through_all_problems_and_comes_once(start):
    process = start(warm_up_s=0.3)
    _hear(process, Ready)
    started = time.monotonic()
    process.tell(_work())
    heard = _hear(process, Rows)
    assert time.monotonic() - started >= 0.3
    trying = [said for said in heard if isinstance(said, Trying)]
    assert trying[-1] == Trying(problem=0)
    assert all(said.warm_up for said in trying[:-1])
    tried = [said.problem for said in trying[:-1]]
    assert sorted(tried[: len(PROBLEMS)]) == list(range(len(PROBLEMS)))
    assert tried[len(PROBLEMS) :] == tried[: -len(PROBLEMS)]  # again and again
    while sum(isinstance(said, Rows) for said in heard) < len(PROBLEMS):
        heard += _hear(process, Rows)
    process.tell(_work(PROBLEMS[:1]))
    assert all(isinstance(said, Rows) for said in _hear(process, Rows))


def test_candidate_that_ran_in_no_batch_before_is_warmed_up(start):
    """The anchors come first, with the default template alone."""
    process = start(warm_up_s=0.1)
    _hear(process, Ready)

    def warms_up(which):
        problem = PROBLEMS[:1]
        process.tell(Work(problems=problem, protocol=_work().protocol, which=(which,)))
        return any(isinstance(said, Trying) and said.warm_up for said in _hear(process, Rows))

    assert [warms_up(which) for which in ((4,), (4,), (0, 4), (4, 0), (0,), (5,))] == [
        True,
        False,
        True,
        False,
        False,
        True,
    ]


class _Noting(standin.StandInRunner):
    """A runner, and a link on which nobody listens; ``events`` has what was proved and said, with the problem's M."""

    def __init__(self):
        super().__init__()
        self.events = []

    def prove(self, problem, protocol, which):
        self.events.append(("prove", problem.m, tuple(which)))
        return super().prove(problem, protocol, which)

    def say(self, message):
        if isinstance(message, Rows):
            self.events.append(("rows", PROBLEMS[message.problem].m, tuple(row.candidate for row in message.rows)))


def test_each_problem_is_said_once_the_next_one_that_has_candidates_is_proved():
    runner, which = _Noting(), ((0, 9), (), (3,), (1, 2))
    worker.measure(runner, runner, Work(problems=PROBLEMS, protocol=PROTOCOL, which=which))
    assert runner.events == [
        *[("prove", 64, (0, 9)), ("prove", 192, (3,)), ("rows", 64, (0, 9)), ("rows", 128, ())],
        *[("prove", 256, (1, 2)), ("rows", 192, (3,)), ("rows", 256, (1, 2))],
    ]


def test_nothing_else_is_under_way_while_candidates_are_tried_alone():
    runner = _Noting()
    worker.measure(runner, runner, _work(PROBLEMS[:2], which=(4, 5), alone=True))
    assert runner.events == [
        *[("prove", 64, (4,)), ("prove", 64, (5,)), ("rows", 64, ())],
        *[("prove", 128, (4,)), ("prove", 128, (5,)), ("rows", 128, ())],
    ]


def test_candidates_that_are_tried_alone_are_announced_before_they_run_and_get_no_rows(start):
    process = start(faults=[("die", (128, 1024, 512), 4)])
    _hear(process, Ready)
    process.tell(_work(PROBLEMS[:1], which=(2, 4), alone=True))
    assert _hear(process, Rows) == [
        Trying(problem=0, candidate=2),
        Trying(problem=0, candidate=4),
        Rows(problem=0, rows=()),
    ]
    process.tell(_work(PROBLEMS[1:2], which=(2, 4, 5), alone=True))
    with pytest.raises(WorkerDiedError, match=r"^the worker died \(signal 9\)$"):
        _hear(process, Rows)


def test_what_a_library_prints_does_not_disturb_the_messages(start):
    (ready,) = _hear(start(chatter='{"kind": "ready"}\nhello\n'), Ready)
    assert ready.default == 1


def test_error_in_opening_is_said_in_its_class_and_sentence(start):
    (failed,) = _hear(start(open_error="NoGpuError"), Failed)
    assert (failed.error, failed.message) == ("NoGpuError", "it cannot be opened")
    assert type(failed.exception()) is NoGpuError


def test_exception_that_is_no_error_for_users_becomes_one():
    error = Failed(error="ValueError", message="a bug").exception()
    assert (type(error), str(error)) == (MeasureError, "the worker failed: ValueError: a bug")
    # names in that module that are no such errors
    assert type(Failed(error="one_line", message="").exception()) is MeasureError


def test_card_belongs_to_one_worker_at_a_time(start):
    first = start(card="c0ffee")
    _hear(first, Ready)
    _hear(start(card="another"), Ready)
    second = start(card="c0ffee")
    heard = _hear(second, Waiting)
    assert "another process measures on this Synthetic device" in heard[0].text
    assert all(isinstance(said, Waiting) for said in heard + second.hear(1.2))
    first.kill()
    assert isinstance(_hear(second, Ready)[-1], Ready)


def test_lock_of_a_card_can_be_taken_by_every_user(start):
    before = os.umask(0o077)
    try:
        _hear(start(card="c0ffee"), Ready)
    finally:
        os.umask(before)
    (lock,) = Path(os.environ["TMPDIR"]).glob("*.lock")
    assert lock.name == "tilearena-gpu-c0ffee.lock"
    assert lock.stat().st_mode & 0o777 == 0o666


def test_lock_that_cannot_be_opened_is_named(start):
    lock = Path(os.environ["TMPDIR"]) / "tilearena-gpu-c0ffee.lock"
    lock.mkdir()
    (failed,) = _hear(start(card="c0ffee"), Failed)
    assert failed.error == "MeasureError"
    assert failed.message.startswith(f"{lock}: cannot be locked (")


PARENT = textwrap.dedent("""
    import os, signal, sys, threading
    import standin
    from tilearena.hands import Order
    from tilearena.records import Problem, Protocol
    from tilearena.worker_hand import WorkerHand

    signals = []
    signal.signal(signal.SIGINT, lambda *_: signals.append("SIGINT"))
    problems = tuple(Problem(dtype="s8", m=64 * i, n=1024, k=512) for i in range(1, 30))
    faults = [("hang", (64 * 5, 1024, 512), 3)] if sys.argv[1] == "hang" else []
    hand = WorkerHand(standin.opening(problem_s=0.03, faults=faults))
    print(hand.worker_pid, flush=True)
    finished = hand.measure(Order(problems, Protocol(name="cold", rounds=4, seed=1)), threading.Event())
    print(finished.n_problems, hand.worker_pid, *signals, flush=True)
""")


def _parent(mode):
    command = [sys.executable, "-c", PARENT, mode]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


def test_worker_ends_with_its_parent_even_in_a_kernel_that_hangs():
    with _parent("hang") as parent:
        pid = int(parent.stdout.readline())
        time.sleep(1.0)
        assert not is_gone(pid)
        parent.kill()
    wait_until(lambda: is_gone(pid), 2.0)


def test_interrupt_from_the_terminal_does_not_reach_the_worker():
    with _parent("go") as parent:
        pid = int(parent.stdout.readline())
        time.sleep(0.3)
        os.killpg(parent.pid, signal.SIGINT)  # as a terminal does
        assert parent.stdout.readline().split() == ["29", str(pid), "SIGINT"]


def test_message_that_is_none_is_one_sentence(monkeypatch, tmp_path):
    (tmp_path / "noisy.py").write_text("import os\ndef talk(link):\n    os.write(link._out, b'a library speaks\\n')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(MeasureError, match=r"^no message of a worker: Invalid JSON: .*; report this as a bug$"):
        WorkerHand(Opening(factory="noisy:talk"), read=dict)


def test_worker_that_a_batch_system_interrupts_dies_like_one_that_is_killed(start, capfd):
    process = start()
    _hear(process, Ready)
    os.kill(process.pid, signal.SIGINT)
    with pytest.raises(WorkerDiedError) as caught:
        _hear(process, Failed)
    assert -caught.value.code == signal.SIGINT
    assert -signal.SIGINT in worker_hand.OUTSIDE
    assert "Traceback" not in capfd.readouterr().err
