"""On two GPUs: they share the problems out, and what is left when a process of one of them is killed in the middle.

The same rules without a GPU: test_cluster.py and test_worker_hand.py.
"""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dask_processes import running

from tilearena import cluster, dataset, measure
from tilearena.dataset import Recording
from tilearena.device import visible_devices
from tilearena.errors import NoGpuError
from tilearena.measure import Session, opening
from tilearena.root import find_path
from tilearena.spec import load_space, load_workload
from tilearena.worker_hand import WorkerHand

pytestmark = pytest.mark.gpu
SPEC, SPACE = "lowbit-random", "paper9"


@pytest.fixture(autouse=True)
def _two_cards() -> None:
    try:
        count = len(visible_devices())
    except NoGpuError:
        count = 0
    if count < 2:
        pytest.skip(f"needs two GPUs, here is {count}")


def session() -> Session:
    workload = load_workload(SPEC)
    return Session(workload, load_space(SPACE), workload.problems_for("s8"), workload.protocol("cold", "s8"))


def require_whole(recording: Recording) -> None:
    """Every row once, none failed (but where torch serves no such M), and every problem of one card."""
    rows, problems = recording.rows, recording.table.problems
    keys = Counter(zip(*(rows[name].to_pylist() for name in ("m", "n", "k", "candidate")), strict=True))
    assert set(keys.values()) == {1}
    assert sorted(map(tuple, problems.tolist())) == sorted((p.m, p.n, p.k) for p in session().problems)
    assert len(keys) == len(problems) * len(recording.header.candidates)
    failed = {reason for reason in rows["reason"].to_pylist() if reason}
    assert not failed, failed
    # consecutive rows are of one problem, and so of one batch, which is of one card
    assert rows["candidate"].to_pylist() == list(range(len(recording.header.candidates))) * len(problems)
    assert len(recording.cards) == len(problems)
    assert set(recording.cards) == {device.uuid_sha256 for device in visible_devices()[:2]}


@pytest.fixture
def killed_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], None]], measure.Progress]]:
    """A progress callback that kills once, when a third of the problems is done."""
    fired = threading.Event()

    def make(kill: Callable[[], None]) -> measure.Progress:
        def progress(done: int, total: int, label: str) -> None:
            if done > total / 3 and not fired.is_set():
                fired.set()
                kill()

        return progress

    yield make
    assert fired.is_set()


def test_killed_worker_of_one_card_is_started_again_and_every_row_is_recorded_once(
    tmp_path: Path, killed_at: Callable[[Callable[[], None]], measure.Progress]
) -> None:
    heard: list[str] = []
    openings = [opening(session(), ordinal=i, torch=False) for i in range(2)]
    with WorkerHand(openings[0]) as first, WorkerHand(openings[1], notice=heard.append) as second:

        def kill() -> None:
            assert second.worker_pid is not None
            os.kill(second.worker_pid, signal.SIGKILL)

        path = tmp_path / "r.parquet"
        measure.record(session(), [first, second], path, progress=killed_at(kill))
    assert heard
    require_whole(dataset.read(path))


def test_killed_dask_worker_leaves_its_batch_to_the_other_card(
    tmp_path: Path, killed_at: Callable[[Callable[[], None]], measure.Progress]
) -> None:
    path = tmp_path / "r.parquet"
    with (
        running(tmp_path, ["0", "1"]) as processes,
        cluster.connect(processes.address, opening(session(), torch=False)) as hands,
    ):
        header = measure.record(session(), hands, path, progress=killed_at(processes.workers[1].kill))
    cards = [batch.card for batch in header.batches]
    killed = visible_devices()[1].uuid_sha256
    assert killed in cards
    assert killed not in cards[-5:], "it measured until the end"
    require_whole(dataset.read(path))


def test_verb_uses_both_cards_and_goes_on_after_it_was_killed(tmp_path: Path) -> None:
    (tmp_path / "baselines" / "recordings").mkdir(parents=True)
    command = [sys.executable, "-c", "from tilearena.cli import main; main()", "measure", SPEC, "--workers", "2"]
    command += ["--dtype", "s8", "--protocol", "cold", "--no-torch", "--root", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        threading.Event().wait(1.0)
        while len(list(tmp_path.rglob("*.parts/*.parquet"))) < 3:
            assert process.poll() is None
            threading.Event().wait(0.05)
    finally:
        process.kill()
        process.wait()
    again = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert again.returncode == 0, again.stderr
    device = visible_devices()[0]
    recording = dataset.read(find_path(tmp_path, device.slug, SPEC, SPACE, "s8", "cold"))
    assert len({batch.session for batch in recording.header.batches}) == 2
    require_whole(recording)
