"""What a Dask cluster costs: ``python tests/cluster_overhead.py OUT.json``, about 180 s on an otherwise idle GPU.

The 2,000 problems of lowbit-random, s8, cold, are recorded by a plain `WorkerHand` and by the one worker of a
Dask cluster on this machine, in turns, five times each. The clock runs from the call of `measure.record` to the end,
with the GPU open and warm before.
"""

import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dask_processes
import sweeping

from tilearena import dataset, measure
from tilearena.cluster import connect
from tilearena.hands import Hand, Order
from tilearena.measure import Session
from tilearena.worker_hand import WorkerHand
from tilearena.worker_link import Opening

PROBLEMS, TIMES = 2000, 5


@contextmanager
def plain(opening: Opening) -> Iterator[Sequence[Hand]]:
    """One hand without Dask."""
    with WorkerHand(opening) as hand:
        yield [hand]


def run(session: Session, hands: Sequence[Hand], folder: Path) -> dict[str, float]:
    """Record once; seconds of the call, seconds within the hand's batches, rows, and rows a second of the call."""
    hands[0].measure(Order(session.problems[:1], session.protocol), threading.Event())
    path = folder / "recording.parquet"
    started = time.perf_counter()
    header = measure.record(session, hands, path)
    seconds = time.perf_counter() - started
    rows = len(dataset.read(path).rows)
    return {
        "seconds": round(seconds, 3),
        "seconds_in_batches": round(sum(batch.seconds for batch in header.batches), 3),
        "rows": rows,
        "rows_per_s": round(rows / seconds, 1),
    }


def compare(session: Session, opening: Opening, folder: Path) -> dict[str, Any]:
    """Plain hand and cluster in turns; ``overhead`` is the cluster's seconds over the plain ones, less 1."""
    runs: dict[str, list[dict[str, float]]] = {"plain": [], "cluster": []}
    with dask_processes.running(folder, ["0"]) as processes:
        for _ in range(TIMES):
            for name, hands in (("plain", plain(opening)), ("cluster", connect(processes.address, opening))):
                with hands as open_hands:
                    hand = open_hands[0]
                    runs[name].append(run(session, open_hands, folder))
                print(name, runs[name][-1], flush=True)
    seconds = {name: sum(one["seconds"] for one in found) for name, found in runs.items()}
    overhead = round(seconds["cluster"] / seconds["plain"] - 1, 4)
    print(f"overhead {100 * overhead:.2f} %")
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "device": hand.device.slug,
        "driver": hand.device.driver,
        "versions": hand.versions,
        "problems": len(session.problems),
        "overhead": overhead,
    } | runs


def main(path: Path) -> None:
    """On GPU 0."""
    session = sweeping.session("lowbit-random", PROBLEMS)
    with tempfile.TemporaryDirectory() as folder:
        result = compare(session, measure.opening(session), Path(folder))
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
