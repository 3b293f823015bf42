"""A Dask cluster of processes on this machine, as docs/clusters.md starts one; they may be killed one by one."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from distributed import Client

FOLDER = Path(__file__).parent
START_S = 60
#: As in docs/clusters.md.
WORKER_OPTIONS = ("--nthreads", "1", "--no-nanny", "--resources", "GPU=1")


class Processes:
    """``address`` of the scheduler, its process, and those of one Dask worker for each GPU.

    Each worker has a folder of its own for temporary files, and so for the locks of cards.
    """

    def __init__(self, folder: Path, gpus: Sequence[str]) -> None:
        self._folder, self._file = folder, folder / "scheduler.json"
        own = ("--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0")
        self.scheduler = self._start("scheduler", own)
        self.workers = [self._start("worker", WORKER_OPTIONS, gpu) for gpu in gpus]

    def wait(self) -> None:
        """Until all are up."""
        end = time.monotonic() + START_S
        while not self._file.exists() and time.monotonic() < end:
            time.sleep(0.02)
        self.address = json.loads(self._file.read_text())["address"]
        with Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(len(self.workers), timeout=START_S)

    def _start(self, what: str, options: Sequence[str], gpu: str = "") -> subprocess.Popen[bytes]:
        folder = self._folder / f"{what}{gpu}"
        folder.mkdir()
        paths = [str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
        own = {"PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(folder), "CUDA_VISIBLE_DEVICES": gpu}
        command = [sys.executable, "-m", "dask", what, "--scheduler-file", str(self._file), *options]
        return subprocess.Popen(command, env=os.environ | own)

    def kill(self) -> None:
        """All of them."""
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@contextmanager
def running(folder: Path, gpus: Sequence[str]) -> Iterator[Processes]:
    """The processes, up; killed in the end."""
    processes = Processes(folder, gpus)
    try:
        processes.wait()
        yield processes
    finally:
        processes.kill()
