"""The lock that keeps two processes of a host from measuring on one card at the same time."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

from tilearena.errors import MeasureError
from tilearena.records import Device, fingerprint

#: Where the locks of all users and jobs lie: not under TMPDIR, which batch systems and tox set for each job.
FOLDER = Path("/tmp") if Path("/tmp").is_dir() else Path(tempfile.gettempdir())
#: How often a process that waits for a card says so.
WAIT_S = 0.5


def take(device: Device, waiting: Callable[[str], None], folder: Path = FOLDER) -> FileLock:
    """Wait until no other process measures on this card of this host; it is ours while the answer or its process lives.

    Args:
        device: the card.
        waiting: called with a sentence, again and again meanwhile.
        folder: of the locks.

    Raises:
        MeasureError: the lock's file cannot be opened.
    """
    path = folder / f"tilearena-gpu-{device.uuid_sha256 or fingerprint([device.product])}.lock"
    lock = FileLock(path, mode=0o666)
    while True:
        try:
            lock.acquire(timeout=WAIT_S)
            return lock
        except Timeout:
            waiting(f"another process measures on this {device.product}: waiting for it to end")
        except OSError as error:
            reason = error.strerror or str(error)
            raise MeasureError(f"{path}: cannot be locked ({reason}); {_advice(path)}") from None


def _advice(path: Path) -> str:
    if not path.exists() or path.stat().st_uid == os.getuid():
        return "remove it if nothing measures"
    try:
        owner = path.owner()
    except KeyError:  # of another host or container
        owner = f"user {path.stat().st_uid}"
    return f"it belongs to {owner}, who (or root) can remove it once nobody measures"
