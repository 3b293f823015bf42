"""A process that records slowly with two hands in its threads, to be killed: ``python sweeping.py PATH``."""

import sys
from pathlib import Path

from inprocess import InProcessHand
from standin import DEVICE, StandInRunner

from tilearena import measure
from tilearena.anchors import anchor_problems
from tilearena.measure import Session, record
from tilearena.spec import load_space, load_workload

PROBLEM_S = 0.04


def session(name: str = "quick", count: int | None = None) -> Session:
    """The first ``count`` problems of a workload, s8, cold."""
    workload = load_workload(name)
    problems = workload.problems_for("s8")[:count]
    return Session(workload, load_space("paper9"), problems, workload.protocol("cold", "s8"))


def long_session() -> Session:
    """So long that it is not over after twenty kills."""
    return session("lowbit-random", 240)


def hands(count: int, problem_s: float = PROBLEM_S) -> list[InProcessHand]:
    cards = [DEVICE.model_copy(update={"uuid_sha256": f"card {i}"}) for i in range(count)]
    return [InProcessHand(StandInRunner(card, problem_s=problem_s), host=f"host {i}") for i, card in enumerate(cards)]


if __name__ == "__main__":
    measure.BATCH_PROBLEMS = 3
    what = long_session()
    print("started", flush=True)
    record(what, hands(2), Path(sys.argv[1]), anchors=anchor_problems("s8", None)[:1])
