"""The anchor problems: timed at the start, middle and end of a session, so that a drift of the card is seen."""

import threading
from collections.abc import Sequence

import numpy as np

from tilearena.hands import Hand, Order
from tilearena.records import BitOp, Dtype, Measurement, Problem, Protocol, Status
from tilearena.spec import load_workload

WORKLOAD = "anchors"


def anchor_problems(dtype: Dtype, bit_op: BitOp | None) -> tuple[Problem, ...]:
    """The problems of the shipped workload `anchors`, for b1 with ``bit_op``."""
    workload = load_workload(WORKLOAD)
    return workload.model_copy(update={"bit_op": bit_op or workload.bit_op}).problems_for(dtype)


def anchor_times(hand: Hand, problems: Sequence[Problem], protocol: Protocol, stop: threading.Event) -> tuple[int, ...]:
    """Median time in ns of one launch of the default template on each problem, 0 where it failed.

    Nothing is screened, since nothing competes. Empty if ``stop`` was set meanwhile.

    Raises:
        HandLostError: see `tilearena.hands.Hand.measure`.
    """
    alone = protocol.model_copy(update={"screen_rounds": 0})
    finished = hand.measure(Order(tuple(problems), alone, ((hand.default,),) * len(problems)), stop)
    return tuple(map(_time_ns, finished.rows)) if finished.n_problems == len(problems) else ()


def _time_ns(row: Measurement) -> int:
    return round(float(np.median(row.elapsed_ns)) / row.launches) if row.status is Status.OK else 0
