"""A Dask cluster on the stand-in: real schedulers and Dask workers as processes of their own, which may be killed."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import carded
import psutil
import pytest
import standin
import sweeping
from dask_processes import FOLDER, WORKER_OPTIONS, running
from standin import StandInRunner

from tilearena import cluster, dataset, measure
from tilearena.errors import BuildError, MeasureError
from tilearena.hands import HandLostError, Order
from tilearena.race import measure_problem
from tilearena.records import Problem, Protocol

PROTOCOL = Protocol(name="cold", rounds=4, seed=1)


def _problems(count):
    return tuple(Problem(dtype="s8", m=64 * (i + 1), n=1024, k=512) for i in range(count))


def _undisturbed(problems, protocol=PROTOCOL, seed=0):
    runner = StandInRunner(seed=seed)
    return [row for problem in problems for row in measure_problem(runner, problem, protocol, range(10))]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A cluster of the cards 0 and 1, which outlives the tests."""
    with running(tmp_path_factory.mktemp("dask"), ["0", "1"]) as processes:
        yield processes


def _record(hands, path, problems, monkeypatch, progress=lambda done, total, label: None):
    monkeypatch.setattr(measure, "BATCH_PROBLEMS", 4)
    session = sweeping.session("lowbit-random", problems)
    header = measure.record(session, hands, path, progress=progress)
    _require_whole(header, dataset.read(path), session)
    return header


def _require_whole(header, recording, session):
    """Every problem is there once, and each batch is, sample by sample, what its own card measures of it."""
    rows = recording.rows
    shapes = list(zip(*(rows[name].to_pylist() for name in "mnk"), strict=True))[::10]
    assert sorted(shapes) == sorted((p.m, p.n, p.k) for p in session.problems)
    of_shape, expected, first = {(p.m, p.n, p.k): p for p in session.problems}, [], 0
    for batch in header.batches:
        theirs = [of_shape[shape] for shape in shapes[first : first + batch.n_problems]]
        expected += _undisturbed(theirs, session.protocol, int(batch.card.removeprefix("card ")))
        first += batch.n_problems
    assert rows.equals(dataset.rows_from(expected))


def test_cluster_is_started_as_the_page_says():
    page = (FOLDER.parent / "docs" / "clusters.md").read_text()
    for gpu in range(2):
        assert f"CUDA_VISIBLE_DEVICES={gpu} .venv/bin/dask worker 10.0.0.1:8786 {' '.join(WORKER_OPTIONS)}\n" in page


def test_scheduler_is_reached_from_within_an_event_loop(two):
    """As in a notebook."""

    async def cell():
        with cluster.connect(two.address, carded.opening()) as hands:
            return len(hands)

    assert asyncio.run(cell()) == 2


def test_two_cards_share_a_recording_and_their_rows_are_kept_apart(two, tmp_path, monkeypatch):
    with cluster.connect(two.address, carded.opening(problem_s=0.02)) as hands:
        header = _record(hands, tmp_path / "r.parquet", 24, monkeypatch)
    assert {batch.card for batch in header.batches} == {"card 0", "card 1"}
    assert header.device.uuid_sha256 is None


def test_killed_dask_worker_leaves_its_batch_to_the_other(tmp_path, monkeypatch):
    with running(tmp_path, ["0", "1"]) as processes:

        def kill_card_0(done, total, label):
            if done >= 6:
                processes.workers[0].send_signal(signal.SIGKILL)

        with cluster.connect(processes.address, carded.opening(problem_s=0.04)) as hands:
            header = _record(hands, tmp_path / "r.parquet", 60, monkeypatch, kill_card_0)
    assert [batch.card for batch in header.batches][-5:] == ["card 1"] * 5


def test_dask_worker_that_says_nothing_for_long_is_lost(tmp_path, monkeypatch):
    with (
        running(tmp_path, ["0"]) as processes,
        cluster.connect(processes.address, carded.opening(problem_s=0.1)) as hands,
    ):
        monkeypatch.setattr(cluster, "SILENCE_S", 2.0)

        def freeze(n):
            processes.workers[0].send_signal(signal.SIGSTOP)

        with pytest.raises(HandLostError, match=r"^Dask worker 127.0.0.1:\d+ is lost \(timed out"):
            hands[0].measure(Order(_problems(20), PROTOCOL), threading.Event(), freeze)


def test_killed_scheduler_ends_the_run_which_says_how_to_go_on(tmp_path, monkeypatch, caplog):
    with running(tmp_path, ["0"]) as processes:

        def kill_scheduler(done, total, label):
            if done >= 6:
                processes.scheduler.send_signal(signal.SIGKILL)

        with cluster.connect(processes.address, carded.opening(problem_s=0.04)) as hands:
            started = time.monotonic()
            sentence = (
                r"^Dask worker 127.0.0.1:\d+ is lost .*; [1-9]\d* of 200 problems are kept in .*; run the same command"
            )
            with pytest.raises(MeasureError, match=sentence):
                _record(hands, tmp_path / "r.parquet", 200, monkeypatch, kill_scheduler)
            assert time.monotonic() - started < 10
    assert not [record for record in caplog.records if record.name == "distributed.client"]


def test_stop_interrupts_a_batch_and_keeps_what_is_finished(two):
    stop, counts = threading.Event(), []

    def done(n):
        counts.append(n)
        if n:
            stop.set()

    problems = _problems(500)
    with cluster.connect(two.address, carded.opening(problem_s=0.02)) as hands:
        hand = hands[0]
        finished = hand.measure(Order(problems, PROTOCOL), stop, done)
        assert 0 < finished.n_problems < 100
        seed = int(hand.device.uuid_sha256.removeprefix("card "))
        assert list(finished.rows) == _undisturbed(problems[: finished.n_problems], seed=seed)
        assert counts == sorted(counts)
        assert counts[-1] == finished.n_problems
        again = hand.measure(Order(problems[:2], PROTOCOL), threading.Event())
        assert list(again.rows) == _undisturbed(problems[:2], seed=seed)


def test_hand_describes_its_card_as_its_runner_does(two):
    with cluster.connect(two.address, carded.opening(vendor=1.1)) as hands:
        runner = StandInRunner(vendor=1.1)
        for hand in hands:
            assert (hand.candidates, hand.default, hand.clock) == (runner.candidates, runner.default, runner.clock())
            assert (hand.versions, hand.device.product, len(hand.host)) == ({"standin": "1"}, runner.device.product, 16)
        assert hands[0].host == hands[1].host
        assert {hand.device.uuid_sha256 for hand in hands} == {"card 0", "card 1"}


def test_what_the_actor_notices_reaches_the_user_with_its_worker(two):
    problems, notices = _problems(8), []
    faults = [("die", (problems[1].m, 1024, 512), 4)]
    with cluster.connect(two.address, carded.opening(faults=faults, problem_s=0.02), notice=notices.append) as hands:
        rows = hands[0].measure(Order(problems, PROTOCOL), threading.Event()).rows
    assert [(row.m, row.candidate) for row in rows if row.status != "ok"] == [(128, 4)]
    assert notices[0].startswith("Dask worker 127.0.0.1:")
    assert notices[0].endswith("the worker is started again: the worker died (signal 9)")


def test_error_in_opening_keeps_its_class_and_names_the_dask_worker(two):
    sentence = r"^Dask worker 127.0.0.1:\d+: it cannot be opened$"
    with (
        pytest.raises(BuildError, match=sentence),
        cluster.connect(two.address, carded.opening(open_error="BuildError")),
    ):
        pass


def _gpu_owners(processes):
    return [child for worker in processes.workers for child in psutil.Process(worker.pid).children()]


def test_gpu_is_given_back_when_the_client_dies(two):
    code = (
        "import os, sys, carded; from tilearena.cluster import connect\n"
        f"with connect({two.address!r}, carded.opening()): print('open', flush=True); sys.stdin.read(); os._exit(9)"
    )
    environment = os.environ | {"PYTHONPATH": str(standin.FOLDER)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, **pipes) as client:
        assert client.stdout.readline() == b"open\n"
        owners = _gpu_owners(two)
        assert len(owners) == 2
        client.stdin.close()
        assert client.wait() == 9
    assert psutil.wait_procs(owners, timeout=10)[1] == []


def test_gpus_are_given_back_when_opening_them_is_interrupted(two, monkeypatch):
    look, owners = cluster._Remote._look, []

    def interrupt(self, stop):
        if not stop:
            owners[:] = _gpu_owners(two)
        if len(owners) == 2 and not stop:
            raise KeyboardInterrupt
        return look(self, stop)

    monkeypatch.setattr(cluster._Remote, "_look", interrupt)
    with pytest.raises(KeyboardInterrupt), cluster.connect(two.address, carded.opening(open_s=60)):
        pass
    assert psutil.wait_procs(owners, timeout=10)[1] == []


def test_same_card_found_by_its_uuid_is_refused(two):
    sentence = "have the same GPU; start each Dask worker with its own CUDA_VISIBLE_DEVICES$"
    with pytest.raises(MeasureError, match=sentence), cluster.connect(two.address, carded.opening(card="a")):
        pass


def test_cluster_costs_at_most_three_percent_of_a_batch(two):
    """What Dask adds to a batch as a recording has them: 100 problems of 10 ms.

    Asserted is the way there and back: the time that `ActorHand.measure` takes here beyond what the `WorkerHand` in the
    Dask worker took for the same batch, a plain hand's own share of which is nothing. The least of five batches counts,
    since a busy machine only adds.
    """
    order, shares = Order(_problems(100), PROTOCOL), []
    with cluster.connect(two.address, carded.opening(problem_s=0.008)) as hands:
        for _ in range(5):
            started = time.perf_counter()
            finished = hands[0].measure(order, threading.Event())
            shares.append((time.perf_counter() - started) / finished.seconds - 1)
            assert finished.seconds > 0.8
    assert min(shares) <= 0.03
