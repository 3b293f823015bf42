"""On a GPU: what a worker process and a killed run leave behind. The same rules without a GPU: test_worker_hand.py."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from faulty import LARGE, SMALL, compile_library

from tilearena import dataset, live
from tilearena.hands import Finished, Order
from tilearena.measure import Session, opening
from tilearena.records import Measurement, Problem, Protocol, Status
from tilearena.root import find_path
from tilearena.spec import load_space, load_workload
from tilearena.worker_hand import WorkerHand
from tilearena.worker_link import Opening

pytestmark = pytest.mark.gpu

COLD = Protocol(name="cold", rounds=4, seed=5)
KILLS = 20
PARTS = "baselines/recordings/*/*/.*.parts/*.parquet"


@pytest.fixture(scope="module", autouse=True)
def _factories() -> Iterator[None]:
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *([before] if before else [])])
    yield
    os.environ["PYTHONPATH"] = before or ""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_library(tmp_path_factory.mktemp("faulty"))


def measure(
    library: Path, names: Sequence[str], problems: Sequence[Problem], notices: list[str] | None = None
) -> Finished:
    shapes = [p.model_dump(mode="json", exclude_defaults=True) for p in problems]
    arguments = {"library": str(library), "names": list(names), "problems": shapes}
    opened = Opening(factory="faulty:open_for_worker", arguments=arguments, warm_up_s=0.0)
    say = (notices if notices is not None else []).append
    hand = WorkerHand(opened, patience_s=8.0, notice=say)
    try:
        return hand.measure(Order(tuple(problems), COLD), threading.Event())
    finally:
        hand.close()


def by_candidate(rows: Sequence[Measurement], candidate: int) -> list[Measurement]:
    return [row for row in rows if row.candidate == candidate]


@pytest.mark.parametrize(
    ("fault", "reason", "notices"),
    [
        ("illegal_address", "illegal", 2),
        ("hang", "did not finish within 8 s", 2),
        ("shared_memory", "the launch failed", 0),
        ("wrong_element", "row", 0),
    ],
)
def test_faulting_kernel_is_one_failed_row_and_the_rest_is_measured(
    library: Path, fault: str, reason: str, notices: int
) -> None:
    heard: list[str] = []
    # the control is the first of them once more; the fault is the second
    finished = measure(library, ["good", fault], [SMALL], heard)
    good, bad, control = finished.rows
    assert (good.status, control.status) == (Status.OK, Status.OK)
    assert bad.status is (Status.WRONG_RESULT if fault == "wrong_element" else Status.LAUNCH_FAILED)
    assert reason in bad.reason
    assert len(heard) == notices, heard


def test_fault_of_the_next_problem_is_not_blamed_on_this_one(library: Path) -> None:
    """The next problem's proof runs while this one's last samples are read."""
    problems = [SMALL, LARGE, SMALL]
    finished = measure(library, ["good", "illegal_address_later"], problems)
    assert [(row.m, row.candidate) for row in finished.rows] == [(p.m, c) for p in problems for c in range(3)]
    (failed,) = [row for row in finished.rows if row.status is not Status.OK]
    assert (failed.m, failed.candidate, failed.status) == (LARGE.m, 1, Status.LAUNCH_FAILED)
    assert "illegal" in failed.reason


def test_problem_that_does_not_fit_is_a_failed_row_each_and_the_rest_is_measured(library: Path) -> None:
    huge = Problem(dtype="s8", m=1 << 18, n=1 << 18, k=64)
    finished = measure(library, ["good", "wrong_element"], [SMALL, huge, LARGE])
    assert [row.status for row in finished.rows[3:6]] == [Status.INFEASIBLE] * 3
    assert "bytes of device memory" in finished.rows[3].reason
    assert [row.status for row in by_candidate(finished.rows, 0)] == [Status.OK, Status.INFEASIBLE, Status.OK]


def some(count: int) -> Session:
    workload = load_workload("lowbit-random")
    return Session(workload, load_space("paper9"), workload.problems_for("s8")[:count], COLD)


def test_worker_that_is_killed_at_random_moments_costs_no_row() -> None:
    session = some(400)
    hand = WorkerHand(opening(session, torch=False))
    rng, over, killed = random.Random(20261129), threading.Event(), 0

    def kill() -> None:
        nonlocal killed
        while killed < KILLS and not over.wait(rng.uniform(0.2, 4.0)):  # opening takes one second
            pid = hand.worker_pid
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                killed += 1

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        rows: list[Measurement] = []
        while killed < KILLS or not rows:  # a batch is over too soon for all of them
            finished = hand.measure(Order(session.problems, COLD), threading.Event())
            rows = finished.rows
            assert finished.n_problems == len(session.problems)
            assert {row.status for row in rows} == {Status.OK}, Counter(row.reason for row in rows)
            shapes = [(row.m, row.n, row.k, row.candidate) for row in rows]
            wanted = [(p.m, p.n, p.k, c) for p in session.problems for c in range(len(hand.candidates))]
            assert shapes == wanted
    finally:
        over.set()
        killer.join()
        hand.close()
    assert killed == KILLS


def test_measure_that_is_killed_at_random_moments_goes_on_and_records_every_row_once(tmp_path: Path) -> None:
    (tmp_path / "baselines" / "recordings").mkdir(parents=True)
    command = [sys.executable, "-c", "from tilearena.cli import main; main()", "measure", "lowbit-random"]
    command += ["--dtype", "b1", "--protocol", "cold", "--no-torch", "--root", str(tmp_path)]
    rng = random.Random(20261129)

    def kept() -> int:
        return len(list(tmp_path.glob(PARTS)))

    for kill in range(KILLS):
        before = kept()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            if kill % 4 == 0:  # soon after a part of its own; the first one may have to build the kernels before
                wait_for(lambda n=before, p=process: kept() > n or p.poll() is not None, 300.0)  # type: ignore[misc]
                time.sleep(rng.uniform(0.0, 1.0))
            else:
                time.sleep(rng.uniform(0.8, 2.5))
            assert process.poll() is None, f"it was over before kill {kill}"
        finally:
            process.kill()
            process.wait()
    again = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert again.returncode == 0, again.stderr
    path = find_path(tmp_path, live.pick_device().slug, "lowbit-random", "paper9", "b1", "cold")
    recording = dataset.read(path)  # refuses a problem that lacks a candidate or has one twice
    recorded = sorted(map(tuple, recording.table.problems.tolist()))
    assert recorded == sorted((p.m, p.n, p.k) for p in load_workload("lowbit-random").problems_for("b1"))
    assert len({batch.session for batch in recording.header.batches}) > KILLS // 4
    assert not list(path.parent.glob(".*parts"))


def test_two_processes_on_one_gpu_take_turns() -> None:
    session, spans = some(60), []

    def run() -> None:
        hand = WorkerHand(opening(session, torch=False))
        begun = time.monotonic()
        finished = hand.measure(Order(session.problems, COLD), threading.Event())
        spans.append((begun, time.monotonic(), finished.n_problems))
        hand.close()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (_, end, n), (start, _, m) = sorted(spans)
    assert (n, m) == (60, 60)
    assert start > end


def test_interrupted_measure_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "baselines" / "recordings").mkdir(parents=True)
    command = [sys.executable, "-c", "from tilearena.cli import main; main()", "measure", "lowbit-random"]
    command += ["--dtype", "b1", "--protocol", "hot", "--root", str(tmp_path), "--no-torch"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: list(tmp_path.glob(PARTS)))
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "of 2000 problems are kept in" in error
    assert "run the same command again to go on" in error


def wait_for(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
