"""How much faster two cards are: ``python tests/two_cards_speed.py OUT.json [DTYPE PROTOCOL]``, 25 s a round of b1 hot.

lowbit-random is recorded by the one card, by the other, and by both, in turns and by the same two worker processes:
what differs from process to process, see docs/measuring.md, *Between recordings*, is then the same for all three.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from two_cards import lost, rows_per_s

from tilearena import dataset, measure
from tilearena.anchors import anchor_problems
from tilearena.dataset import Recording
from tilearena.measure import Session
from tilearena.records import Dtype, ProtocolName
from tilearena.spec import load_space, load_workload
from tilearena.worker_hand import WorkerHand

ROUNDS = 5


def session(dtype: Dtype, protocol: ProtocolName) -> Session:
    """All of lowbit-random."""
    workload = load_workload("lowbit-random")
    return Session(workload, load_space("paper9"), workload.problems_for(dtype), workload.protocol(protocol, dtype))


def record(what: Session, hands: Sequence[WorkerHand], folder: Path) -> Recording:
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


def main(out: Path, dtype: Dtype = "b1", protocol: ProtocolName = "hot") -> None:
    """Record in turns, write."""
    what, rounds = session(dtype, protocol), []
    openings = [measure.opening(what, ordinal=i) for i in range(2)]
    with WorkerHand(openings[0]) as first, WorkerHand(openings[1]) as second, tempfile.TemporaryDirectory() as folder:
        device = first.device
        for i in range(ROUNDS):
            found = [record(what, hands, Path(folder)) for hands in ([first], [second], [first, second])]
            speeds = [rows_per_s(recording) for recording in found]
            ratio = round(speeds[2] / float(np.mean(speeds[:2])), 3)
            untimed = [untimed_ms(recording) for recording in found]
            rounds.append(
                {"rows_per_s": speeds, "times_one_card": ratio, "untimed_ms": untimed, "lost": lost(found[2])}
            )
            print(f"round {i}: {figures}", flush=True)
    result = {
        "date": datetime.now(UTC).date().isoformat(),
        "device": device.model_dump(mode="json", exclude={"uuid_sha256"}),
        "kind": f"{dtype} {protocol}",
        "rounds": rounds,
    }
    out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:4])  # type: ignore[arg-type]
