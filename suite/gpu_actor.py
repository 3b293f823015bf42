"""What lives in a Dask worker: an actor that holds a `WorkerHand` beside the GPU, for `tilearena.cluster`.

What it is asked and what it answers is JSON, validated at both ends; exceptions travel as Dask sends them.
"""

import asyncio
import json
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import TypeVar

from pydantic import TypeAdapter

from tilearena import __version__
from tilearena.hands import Finished, Order
from tilearena.records import Measurement, Record
from tilearena.worker_hand import WorkerHand, host
from tilearena.worker_link import Opening, Ready

T = TypeVar("T")
ORDER, FINISHED, ROWS = TypeAdapter(Order), TypeAdapter(Finished), TypeAdapter(list[Measurement])


class Place(Record):
    """Where an actor is: the host, the GPU that its worker would open there, and the version of this package."""

    host: str
    visible: str
    version: str


class GpuActor:
    """Lives in a Dask worker, and ends the worker process that owns the GPU when Dask drops it.

    Dask runs a coroutine of an actor in the worker's event loop, which must stay free for the heartbeat and for `look`;
    so what takes long has a thread of its own. (A plain method would hold the one thread that all actors share.)
    """

    def __init__(self, opening: str) -> None:
        self._opening = Opening.model_validate_json(opening)
        self._hand: WorkerHand | None = None
        self._stop, self._turn = threading.Event(), threading.Lock()
        self._n_done = 0
        self._notices: list[str] = []

    async def place(self) -> str:
        """A `Place`."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
        return Place(host=host(), visible=visible, version=__version__).model_dump_json()

    async def open(self) -> str:
        """Open the GPU, see `WorkerHand`; answers a `Ready`."""
        opening, notice, stop = self._opening, self._notices.append, self._stop
        self._hand = hand = await _in_thread(lambda: WorkerHand(opening, notice=notice, stop=stop))
        weakref.finalize(self, hand.close)
        ready = {key: getattr(hand, key) for key in Ready.model_fields if key != "kind"}
        return Ready(**ready).model_dump_json()

    async def measure(self, order: str) -> str:
        """See `tilearena.hands.Hand.measure`, from an `Order` to a `Finished` without its rows, and a line of these."""
        self._n_done = 0
        self._stop.clear()
        return await _in_thread(lambda: self._measure(order))

    def _measure(self, order: str) -> str:
        assert self._hand is not None
        with self._turn:
            finished = self._hand.measure(ORDER.validate_json(order), self._stop, self._count)
        rows = ROWS.dump_json(list(finished.rows))
        return b"\n".join((FINISHED.dump_json(replace(finished, rows=[])), rows)).decode()

    def _count(self, n_done: int) -> None:
        self._n_done = n_done

    async def look(self, stop: bool) -> str:
        """How many problems are done, and notices since the last look; ``stop`` ends the opening or the measuring."""
        if stop:
            self._stop.set()
        fresh = self._notices[:]
        del self._notices[: len(fresh)]
        return json.dumps([self._n_done, fresh])

    async def close(self) -> str:
        """Give the GPU back."""
        await _in_thread(self._close)
        return ""

    def _close(self) -> None:
        self._stop.set()
        if self._hand is not None:
            with self._turn:
                self._hand.close()


async def _in_thread(call: Callable[[], T]) -> T:
    """As `asyncio.to_thread`, but the process may end meanwhile."""
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(answer)
