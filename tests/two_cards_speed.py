"""How much faster two cards are: ``python tests/two_cards_speed.py OUT.json [ROUNDS [WAY DTYPE PROTOCOL]]``.

lowbit-random is recorded by the one card, by the other, and by both, in turns and by the same processes: what differs
from process to process, see docs/measuring.md, *Between recordings*, is then the same for all three, and what differs
from minute to minute nearly so. With the hands of ``--workers 2`` and with those of ``--scheduler``, or one of them
(WAY), for every kind or one: about 210 s a round of all, 26 s one of b1 hot.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dask_processes
import numpy as np
from two_cards import HOW, KINDS, lost, rows_per_s

from tilearena import dataset, measure
from tilearena.anchors import anchor_problems
from tilearena.cluster import connect
from tilearena.dataset import Recording
from tilearena.hands import Hand
from tilearena.measure import Session
from tilearena.records import Dtype, ProtocolName
from tilearena.spec import load_space, load_workload
from tilearena.worker_hand import WorkerHand

Hands = Callable[[Session], Any]


def session(dtype: Dtype, protocol: ProtocolName) -> Session:
    """All of lowbit-random."""
    workload = load_workload("lowbit-random")
    return Session(workload, load_space("paper9"), workload.problems_for(dtype), workload.protocol(protocol, dtype))


@contextmanager
def workers(what: Session) -> Iterator[Sequence[Hand]]:
    """The hands of ``--workers 2``."""
    with ExitStack() as stack:
        yield [stack.enter_context(WorkerHand(measure.opening(what, ordinal=i))) for i in range(2)]


@contextmanager
def dask(what: Session) -> Iterator[Sequence[Hand]]:
    """Those of ``--scheduler``, with one Dask worker for each GPU."""
    with (
        tempfile.TemporaryDirectory() as folder,
        dask_processes.running(Path(folder), ["0", "1"]) as processes,
        connect(processes.address, measure.opening(what)) as hands,
    ):
        yield hands


def record(what: Session, hands: Sequence[Hand], folder: Path) -> Recording:
    """Once."""
    path = folder / "recording.parquet"
    path.unlink(missing_ok=True)
    first = what.problems[0]
    measure.record(what, hands, path, anchors=anchor_problems(first.dtype, first.bit_op))
    return dataset.read(path)


def untimed_ms(recording: Recording) -> float:
    """Milliseconds of a problem, within batches, that lie in no timed interval."""
    timed_ns = sum(sum(samples) for samples in recording.rows["elapsed_ns"].to_pylist())
    seconds = sum(batch.seconds for batch in recording.header.batches)
    return round((seconds - timed_ns * 1e-9) / len(recording.table.problems) * 1e3, 3)


def compare(what: Session, hands: Sequence[Hand], folder: Path) -> dict[str, Any]:
    """One card, the other, both; ``times_one_card`` is what both do in a second over the mean of what one does."""
    found = [record(what, some, folder) for some in (hands[:1], hands[1:], hands)]
    speeds = [rows_per_s(recording) for recording in found]
    return {
        "rows_per_s": speeds,
        "times_one_card": round(speeds[2] / float(np.mean(speeds[:2])), 3),
        "untimed_ms": [untimed_ms(recording) for recording in found],
        "lost": lost(found[2]),
    }


def main(out: Path, rounds: int = 2, *only: str) -> None:
    """Record in turns, write; ``only`` one way, dtype and protocol."""
    result: dict[str, Any] = {"date": datetime.now(UTC).date().isoformat(), "kinds": {}}
    ways: dict[str, Hands] = dict(zip(HOW, (workers, dask), strict=True))
    for dtype in ("s8", "b1"):
        for name, way in ways.items():
            kinds = [p for kind, p in KINDS if kind == dtype and (not only or (name, dtype, p) == only)]
            if not kinds:
                continue
            with way(session(dtype, "cold")) as hands, tempfile.TemporaryDirectory() as folder:
                result["device"] = hands[0].device.model_dump(mode="json", exclude={"uuid_sha256", "slug"})
                for protocol in [protocol for protocol in kinds for _ in range(rounds)]:
                    figures = compare(session(dtype, protocol), hands, Path(folder))
                    result["kinds"].setdefault(f"{dtype} {protocol}", {}).setdefault(name, []).append(figures)
                    print(dtype, protocol, name, figures, flush=True)
                    out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3, 6):
        sys.exit(__doc__)
    main(Path(sys.argv[1]), *map(int, sys.argv[2:3]), *sys.argv[3:])
