"""The parent's side of a process that runs code of a plugin: a session and a folder of its own, one thread, no GPU."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tilearena.predict_child import Limits

#: One thread, no GPU: ``predict_us`` is a figure of one core, and the GPU may be busy measuring.
CHILD_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "NPROC": "1",
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
}
#: What the child leaves in its folder.
ANSWER = "answer.json"


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for one child; afterwards it is gone, however deep the plugin nested folders in it."""
    # absolute, since it becomes the child's current folder
    place = os.path.abspath(tempfile.gettempdir())
    scratch = tempfile.TemporaryDirectory(prefix="tilearena-", dir=place, ignore_cleanup_errors=True)
    try:
        yield Path(scratch.name)
    finally:
        try:
            scratch.cleanup()
        except RecursionError:  # up to Python 3.12 it calls itself for every level
            subprocess.run(["rm", "-rf", "--", scratch.name], stderr=subprocess.DEVNULL, check=False)


def run_child(
    module: str, folder: Path, name: str, *, deadline_s: float, time_limit_s: float, limits: Limits, **environment: str
) -> str | None:
    """Run ``module`` on ``folder`` for the predictor ``name``, until it leaves ``answer.json`` there.

    Args:
        deadline_s: when it is stopped, by ``time.monotonic``.
        time_limit_s: what the sentence about it says, since several children may share a limit.
        limits: the child restricts itself to them; here they are only spoken of.
        environment: variables that this child has beside those of all.

    Returns:
        A sentence if it ended badly.
    """
    # with a root that holds nothing, `tilearena.root` does not look for the checkout
    places = {"TMPDIR": str(folder), "TILEARENA_ROOT": str(folder)}
    if path := os.environ.get("PYTHONPATH"):  # the child's current folder is another one
        places["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, path.split(os.pathsep)))
    with subprocess.Popen(
        [sys.executable, "-P", "-m", module, str(folder)],
        cwd=folder,
        env={**os.environ, **CHILD_ENVIRONMENT, **places, **environment},
        stdin=subprocess.PIPE,  # it closes when this process ends, however it does, and then the child ends too
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as child:
        try:
            code = child.wait(max(deadline_s - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            return f"predictor {name!r} took longer than {time_limit_s:g} s and was stopped"
        finally:
            # whatever the plugin started ends with it, also on Ctrl-C
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
    if code < 0:
        hint = ""
        if code == -signal.SIGABRT:  # so C++ and LLVM end where they get no memory
            hint = f"; perhaps it needed more memory than {limits.memory}"
        return f"predictor {name!r} was killed by {_signal(-code)}{hint}"
    try:
        answered = (folder / ANSWER).is_file()
    except OSError:  # the plugin may have locked the folder
        answered = False
    if not answered:
        return f"predictor {name!r} ended its process without an answer (exit code {code})"
    return None


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most of the real-time ones have no name
        return f"signal {number}"
