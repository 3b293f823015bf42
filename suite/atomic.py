"""A file appears whole or not at all, whatever ends the process that writes it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A scratch file beside ``path``, which takes its place once the block has written it; folders are made.

    Raises:
        OSError: it cannot be written; names ``path``.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield scratch
        scratch.replace(path)
    except OSError as error:  # of pyarrow, say, which names no file
        reason = os.strerror(error.errno) if error.errno else str(error)
        named = str(error.filename or scratch)
        name = str(path) if named == str(scratch) else named
        raise OSError(error.errno, reason, name) from error
    finally:
        with suppress(OSError):  # what kept it from being written is the error to report
            scratch.unlink()
