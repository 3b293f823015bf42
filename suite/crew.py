"""Several hands at one queue of batches: each takes the next when it has finished one, so a fast card does more."""

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from tilearena.anchors import anchor_times
from tilearena.errors import MeasureError
from tilearena.hands import Finished, Hand, HandLostError, Order
from tilearena.provenance import Anchors
from tilearena.records import Problem


@dataclass(frozen=True)
class Measured:
    """What a hand brought back, and when it began: Unix time by this process's clock."""

    hand: Hand
    finished: Finished
    started_at_s: float


class Crew:
    """One thread a hand. The thread that made the crew only looks on.

    Attributes:
        measured: batches in the order in which they were finished; it only grows, so that a reader that is interrupted
            loses nothing.
        anchors: times of the anchor problems so far, by hand.
        error: of a hand, if not `HandLostError`; all hands stop then.
        lost: why hands were lost.
        changed: set whenever something happened.
    """

    def __init__(
        self, session: str, hands: Sequence[Hand], orders: Sequence[Order], anchors: Sequence[Problem]
    ) -> None:
        """Get ready to measure ``orders``, not empty, and each hand ``anchors`` under the first one's protocol."""
        self.measured: list[Measured] = []
        self.anchors = [Anchors(session=session, card=hand.device.uuid_sha256, clock=hand.clock) for hand in hands]
        self.error: Exception | None = None
        self.lost: list[HandLostError] = []
        self.changed, self._stop = threading.Event(), threading.Event()
        self._hands, self._problems, self._protocol = hands, tuple(anchors), orders[0].protocol
        self._waiting, self._out = deque(orders), 0
        self._epoch_s = time.time() - time.monotonic()
        self._half = sum(len(order.problems) for order in orders) / 2
        self._turn = threading.Condition()
        self._under_way = [0] * len(hands)
        self._working = set(range(len(hands)))
        self._threads = [threading.Thread(target=self._work, args=(i,), daemon=True) for i in range(len(hands))]

    def start(self) -> None:
        """Set all hands to work."""
        for thread in self._threads:
            thread.start()

    @property
    def working(self) -> bool:
        """Whether some hand still measures."""
        return bool(self._working)

    @property
    def n_done(self) -> int:
        """Problems that are done, those of unfinished batches included."""
        return self._n_finished() + sum(self._under_way)

    def halt(self) -> None:
        """Have the hands come back with what is finished."""
        self._stop.set()
        with self._turn:
            self._turn.notify_all()

    def join(self, timeout_s: float) -> bool:
        """Wait until all hands have stopped, but not for long; whether they have."""
        end = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _n_finished(self) -> int:
        return sum(one.finished.n_problems for one in self.measured)

    def _work(self, i: int) -> None:
        try:
            self._measure(i)
        except HandLostError as error:
            self.lost.append(error)
        except Exception as error:
            self.error = self.error or error
            self.halt()
        finally:
            self._under_way[i] = 0
            self._working.discard(i)
            self.changed.set()

    def _measure(self, i: int) -> None:
        self._anchor(i, "start_ns")
        while not self._stop.is_set():
            if (order := self._take()) is None:
                self._anchor(i, "end_ns")
                if not self._more():
                    return
                continue
            try:
                if not self.anchors[i].middle_ns and self._n_finished() >= self._half:
                    self._anchor(i, "middle_ns")
                self._measure_batch(i, order)
            except BaseException:
                self._give_back(order)
                raise
            self._give_back(None)

    def _measure_batch(self, i: int, order: Order) -> None:
        def done(n: int) -> None:
            self._under_way[i] = n
            self.changed.set()

        finished = self._hands[i].measure(order, self._stop, done)
        ended_at_s = time.monotonic() + self._epoch_s  # the system's clock may be set meanwhile
        if finished.n_problems < len(order.problems) and not self._stop.is_set():
            raise MeasureError(f"a hand came back with {finished.n_problems} of {len(order.problems)} problems")
        self._under_way[i] = 0
        if finished.n_problems:
            # a worker that has just started warmed up first
            self.measured.append(Measured(self._hands[i], finished, ended_at_s - finished.seconds))
        self.changed.set()

    def _anchor(self, i: int, when: str) -> None:
        if not self._problems or self._stop.is_set():
            return
        times = anchor_times(self._hands[i], self._problems, self._protocol, self._stop)
        self.anchors[i] = self.anchors[i].model_copy(update={when: times})
        self.changed.set()

    def _take(self) -> Order | None:
        """The next batch; None where none waits."""
        with self._turn:
            if not self._waiting:
                return None
            self._out += 1
            return self._waiting.popleft()

    def _give_back(self, order: Order | None) -> None:
        """A batch is finished, or comes back unmeasured, for another hand."""
        with self._turn:
            self._out -= 1
            if order is not None:
                self._waiting.appendleft(order)
            self._turn.notify_all()

    def _more(self) -> bool:
        """Wait until a batch has come back, or until none can any more."""
        with self._turn:
            self._turn.wait_for(lambda: self._waiting or not self._out or self._stop.is_set())
            return bool(self._waiting) and not self._stop.is_set()
