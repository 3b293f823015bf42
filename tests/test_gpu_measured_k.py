"""On a GPU: picks are measured in a worker, the fastest is kept, and a fresh run bears it out."""

from threading import Event

import numpy as np
import pytest
from sweeping import session

from tilearena import dataset
from tilearena.dataset import Recording
from tilearena.hands import Order
from tilearena.measure import opening
from tilearena.measured_k import measured_k
from tilearena.unscreened import by_hand
from tilearena.worker_hand import WorkerHand

pytestmark = pytest.mark.gpu


def test_fastest_of_the_picks_is_kept_and_stays_so_in_a_fresh_run() -> None:
    whole = session("quick", 12)
    with WorkerHand(opening(whole, torch=False)) as hand:
        rows = hand.measure(Order(whole.problems, whole.protocol), Event()).rows
        table = Recording(whole.header([hand]), dataset.rows_from(rows)).table
        order = np.argsort(table.time_ns, axis=1)
        found = measured_k(
            by_hand(hand), whole.protocol, whole.problems, order[:, [8, 0, 4]].astype(np.int64), table, fresh=True
        )
    clear = np.sort(table.time_ns, axis=1)[:, 4] > 1.1 * table.time_ns.min(axis=1)
    assert clear.any()
    assert found.kept[clear].tolist() == order[clear, 0].tolist()
    assert found.live_regret is not None
    assert np.median(found.live_regret) < 0.02
    assert found.n_failed == 0
    assert 0 < found.timed_s < found.seconds < 12
