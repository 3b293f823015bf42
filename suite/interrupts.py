"""Ctrl-C as a count to look at: raised as an exception it may strike within a lock, which then stays shut for ever."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def counted() -> Iterator[list[int]]:
    """The signals so far that would have raised KeyboardInterrupt meanwhile; only the main thread gets any."""
    seen: list[int] = []
    ours = []
    if threading.current_thread() is threading.main_thread():
        ours = [number for number in signal.valid_signals() if signal.getsignal(number) is signal.default_int_handler]
    for number in ours:
        signal.signal(number, lambda number, _: seen.append(number))
    try:
        yield seen
    finally:
        for number in ours:
            signal.signal(number, signal.default_int_handler)
