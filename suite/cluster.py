"""Hands on a Dask cluster: each stands for a `tilearena.gpu_actor.GpuActor` in a Dask worker that has a GPU."""

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, overload

from tilearena import __version__
from tilearena.errors import MeasureError, TilearenaError
from tilearena.gpu_actor import FINISHED, ORDER, ROWS, GpuActor, Place
from tilearena.hands import Done, Finished, HandLostError, Order
from tilearena.records import Measurement
from tilearena.worker_link import Opening, Ready

Notice = Callable[[str], None]

#: The Dask resource that a worker with a GPU offers.
GPU = "GPU"
#: How long a scheduler may take to answer, and a Dask worker to say anything at all.
CONNECT_S, SILENCE_S = 10.0, 30.0
#: How often a hand that measures is asked how far it is.
POLL_S = 0.2


class _Remote:
    """Our end of an actor. Dask reports the loss of one by many classes of exceptions: all become `HandLostError`."""

    def __init__(self, actor: Any, name: str, notice: Notice) -> None:
        self._actor, self.name, self._notice = actor, name, notice
        self.place = Place.model_validate_json(self.wait(self.ask("place")))
        if self.place.version != __version__:
            raise MeasureError(
                f"Dask worker {name} has tilearena {self.place.version}, and this machine {__version__}; install the "
                "same version on both"
            )

    @contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except TilearenaError as error:
            raise type(error)(f"Dask worker {self.name}: {error}") from error
        except (Exception, asyncio.CancelledError) as error:
            raise HandLostError(f"Dask worker {self.name} is lost ({str(error) or type(error).__name__})") from error

    def ask(self, method: str, *arguments: str) -> Any:
        """Ask the actor, without waiting for the answer.

        Raises:
            HandLostError: it is gone.
        """
        with self._naming():
            return getattr(self._actor, method)(*arguments)

    def wait(self, answer: Any, stop: threading.Event | None = None, done: Done = lambda n: None) -> str:
        """The answer, however long it takes while the actor is there; meanwhile what it says is passed on.

        Raises:
            HandLostError: it is gone, or mute for long. TilearenaError: as the method that was asked for.
        """
        with self._naming():
            while True:
                with suppress(TimeoutError):
                    answer.result(POLL_S)
                if answer.done():
                    return str(answer.result())
                done(self._look(stop is not None and stop.is_set()))

    def _look(self, stop: bool) -> int:
        n_done, fresh = json.loads(self._actor.look(stop).result(SILENCE_S))
        for text in fresh:
            self._notice(f"Dask worker {self.name}: {text}")
        return int(n_done)

    def close(self) -> None:
        """Give the GPU back, if the actor is still there."""
        with suppress(HandLostError), self._naming():
            self._look(True)
            self._actor.close().result(SILENCE_S)


class _Unread(Sequence[Measurement]):
    """Rows that are validated when they are looked at: the card has its next batch by then."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _rows(self) -> list[Measurement]:
        return ROWS.validate_json(self._text)

    @overload
    def __getitem__(self, at: int) -> Measurement: ...
    @overload
    def __getitem__(self, at: slice) -> list[Measurement]: ...
    def __getitem__(self, at: int | slice) -> Measurement | list[Measurement]:
        return self._rows[at]

    def __len__(self) -> int:
        return len(self._rows)


class ActorHand:
    """See `tilearena.hands.Hand`: the GPU of a Dask worker."""

    def __init__(self, remote: _Remote, ready: Ready) -> None:
        self._remote = remote
        self.device, self.candidates, self.default = ready.device, ready.candidates, ready.default
        self.versions, self.clock, self.host = ready.versions, ready.clock, remote.place.host

    def measure(self, order: Order, stop: threading.Event, done: Done = lambda n: None) -> Finished:
        """See `tilearena.hands.Hand.measure`.

        Raises:
            HandLostError: the Dask worker, its host or the scheduler is gone, or as `WorkerHand.measure`.
        """
        answer = self._remote.ask("measure", ORDER.dump_json(order).decode())
        head, rows = self._remote.wait(answer, stop, done).split("\n")
        finished = replace(FINISHED.validate_json(head), rows=_Unread(rows))
        done(finished.n_problems)
        return finished

    def close(self) -> None:
        """See `tilearena.hands.Hand.close`."""
        self._remote.close()


@contextmanager
def connect(address: str, opening: Opening, *, notice: Notice = lambda text: None) -> Iterator[list[ActorHand]]:
    """One hand for each Dask worker that offers the resource ``GPU``, all open, until the context ends.

    Args:
        address: of the Dask scheduler, e.g. ``10.0.0.1:8786``.
        opening: how the worker process beside each Dask worker opens its runner.
        notice: called with a sentence about waiting, building and restarts at a worker.

    Raises:
        MeasureError: no scheduler answers, no worker has a GPU, two have the same one, or one has another tilearena.
        TilearenaError: as the factory of ``opening``.
    """
    with _client(address) as client, ExitStack() as stack:
        remotes = []
        for worker in _gpu_workers(client, address):
            remotes.append(_Remote(_actor(client, worker, opening), _name(worker), notice))
            stack.callback(remotes[-1].close)
        # before they are opened, since the second would wait for the first to give the card back
        _require_own_cards(remotes, [f"{remote.place.host} {remote.place.visible}" for remote in remotes])
        answers = [remote.ask("open") for remote in remotes]
        ready = [Ready.model_validate_json(r.wait(answer)) for r, answer in zip(remotes, answers, strict=True)]
        _require_own_cards(remotes, [one.device.uuid_sha256 for one in ready])
        yield [ActorHand(remote, one) for remote, one in zip(remotes, ready, strict=True)]


@contextmanager
def _client(address: str) -> Iterator[Any]:
    client = _connected(address)
    logger = logging.getLogger("distributed.client")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # no traceback of Dask's own when the scheduler is gone: our errors say so
    try:
        with client:
            yield client
    finally:
        logger.setLevel(level)


def _connected(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise MeasureError("Dask is missing; run: pip install 'tilearena[cluster]'") from None
    try:
        with ThreadPoolExecutor(1) as pool:  # this thread may have an event loop already, as in a notebook
            pool.submit(lambda: asyncio.run(asyncio.wait_for(_require_scheduler(address), CONNECT_S))).result()
        return Client(address, timeout=CONNECT_S, name="tilearena")  # type: ignore[no-untyped-call]
    except Exception as error:  # of many classes: whatever can be at an address, or wrong with TLS
        raise MeasureError(
            f"no Dask scheduler answers at {address!r} ({str(error) or type(error).__name__}); start one with: "
            "dask scheduler, and give its HOST:PORT"
        ) from None


async def _require_scheduler(address: str) -> None:
    """Ask who is there: a Client would wait for ever for a web server, or for one whose address it cannot read."""
    from distributed.core import rpc
    from distributed.security import Security

    options = Security().get_connection_args("client")  # type: ignore[no-untyped-call]
    async with rpc(address, timeout=CONNECT_S, connection_args=options) as peer:  # type: ignore[no-untyped-call]
        kind = (await peer.identity())["type"]
    if kind != "Scheduler":
        raise ValueError(f"it is a {kind}")


def _gpu_workers(client: Any, address: str) -> list[str]:
    workers = client.scheduler_info(n_workers=-1)["workers"]
    found = sorted(worker for worker, about in workers.items() if about["resources"].get(GPU, 0) >= 1)
    if not found:
        raise MeasureError(
            f"none of the {len(workers)} workers of the Dask scheduler {address} offers a GPU; start one for each GPU, "
            f"the first with: CUDA_VISIBLE_DEVICES=0 dask worker {address} --nthreads 1 --resources {GPU}=1"
        )
    return found


def _name(worker: str) -> str:
    return worker.split("://")[-1]


def _actor(client: Any, worker: str, opening: Opening) -> Any:
    """Put an actor into a Dask worker; it is dropped there with the last reference to the answer."""
    future = client.submit(GpuActor, opening.model_dump_json(), actor=True, workers=[worker], allow_other_workers=False)
    try:
        return future.result(SILENCE_S)
    except TimeoutError:
        raise MeasureError(f"Dask worker {_name(worker)} is busy or hangs; restart it") from None
    except Exception as error:  # it has none of our modules, or others than we have
        raise MeasureError(
            f"Dask worker {_name(worker)} cannot run tilearena {__version__} ({error}); install that version there"
        ) from error


def _require_own_cards(remotes: Sequence[_Remote], cards: Sequence[str | None]) -> None:
    at: dict[str, str] = {}
    for remote, card in zip(remotes, cards, strict=True):
        if card is not None and at.setdefault(card, remote.name) != remote.name:
            raise MeasureError(
                f"the Dask workers {at[card]} and {remote.name} have the same GPU; start each Dask worker with its own "
                "CUDA_VISIBLE_DEVICES"
            )
