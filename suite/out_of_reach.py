"""What a plugin's process may read and write, held to without root: Linux's Landlock, from 5.13 on.

It reads all but the recordings and what was made of them, and writes in its own folder alone. A Landlock ruleset denies
what it handles everywhere and allows it below the paths of its rules. To deny reading below some folders alone, there
is a rule for all that lies beside them and beside the folders that lead to them. Names of files can still be listed,
since Python's import system lists the folders that it searches. Modes, owners, times, attributes and flags of files are
no matter of Landlock's, and before Linux 6.2 neither is it to empty a file (`truncate`).

Source: https://docs.kernel.org/userspace-api/landlock.html and ``include/uapi/linux/landlock.h``.
"""

import ctypes
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import tilearena
from tilearena.root import RECORDINGS

#: System calls, the same on every architecture that Python supports (``asm-generic/unistd.h``).
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1
#: From ``linux/prctl.h``; without root no process may restrict itself that could gain privileges later.
_PR_SET_NO_NEW_PRIVS = 38
#: To read files. To execute them (bit 0) and to list folders (bit 3) is left alone.
_READ = 1 << 2
#: Rights by the version of Landlock that brought them: to write and remove files and to make all kinds of them; to move
#: files between folders; to truncate.
_WRITE = {1: sum(1 << bit for bit in (1, *range(4, 13))), 2: 1 << 13, 3: 1 << 14}
#: To make device files, by which root could reach a disk: nowhere.
_DEVICES = 1 << 6 | 1 << 11
#: Those that a rule for a file rather than a folder may have.
_OF_FILES = 1 << 1 | _READ | 1 << 14
#: They keep nothing of what is written to them.
_SINKS = tuple(map(Path, ("/dev/null", "/dev/zero", "/dev/full")))

SUBMISSIONS = Path("leaderboard") / "submissions"

#: What a result says where plugins could have read the recordings.
NOTICE = (
    "the recordings were within the predictors' reach, and the user's files not safe from them, "
    "since this system has no Landlock (Linux from 5.13 on)"
)


class _PathBeneath(ctypes.Structure):
    """``struct landlock_path_beneath_attr``."""

    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def places(*roots: Path) -> tuple[Path, ...]:
    """What no plugin may read: recordings, submissions and history of ``roots`` and of the checkout.

    And the models of `tilearena.pick`, which were trained on all problems that are not locked.
    """
    package = Path(tilearena.__file__).resolve().parent
    parts = (RECORDINGS, SUBMISSIONS, Path("results") / SUBMISSIONS, Path(".git"))
    found = (root.resolve() / part for root in (*roots, package.parent) for part in parts)
    return tuple(dict.fromkeys(path for path in (*found, package / "picker" / "models") if path.exists()))


def version() -> int:
    """Version of this system's Landlock; 0 where there is none."""
    if sys.platform != "linux":
        return 0
    return max(_system_call(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION), 0)


def deny(forbidden: Iterable[Path], writable: Path) -> bool:
    """Hold this thread, and what it starts from now on, for good: to read nothing below ``forbidden``, and to write,
    make, move and remove files below the folder ``writable`` alone.

    What comes to be later beside the folders that lead to ``forbidden`` cannot be read either. False where there is no
    Landlock.

    Raises:
        OSError: the system refuses.
    """
    if not (supported := version()):
        return False
    write = sum(bits for since, bits in _WRITE.items() if since <= supported)
    handled = ctypes.c_uint64(_READ | write)
    ruleset = _checked(_system_call(_CREATE_RULESET, ctypes.byref(handled), ctypes.c_size_t(8), 0))
    try:
        for path in _beside({path.resolve() for path in forbidden}):
            _allow(ruleset, path, _READ)
        for path in (writable.resolve(), *_SINKS):
            _allow(ruleset, path, (_READ | write) & ~_DEVICES)
        _checked(_libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _checked(_system_call(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)
    return True


def _beside(forbidden: set[Path]) -> Iterator[Path]:
    """All entries of the folders that lead to ``forbidden`` which neither lead there nor lie there; else the root."""
    if not forbidden:
        yield Path("/")
    leading = {parent for path in forbidden for parent in path.parents}
    for folder in leading - forbidden:
        if forbidden & set(folder.parents):
            continue
        try:
            with os.scandir(folder) as entries:
                paths = [Path(entry.path) for entry in entries if not entry.is_symlink()]
        except OSError:  # what cannot be listed is not allowed either
            continue
        yield from (path for path in paths if path not in leading | forbidden)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    try:
        at = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # it is gone, or is not ours to open
        return
    try:
        if not stat.S_ISDIR(os.fstat(at).st_mode):
            rights &= _OF_FILES
        rule = _PathBeneath(rights, at)
        _checked(_system_call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0))
    finally:
        os.close(at)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _system_call(number: int, *arguments: object) -> int:
    """What the call answers, -1 for an error that `_checked` raises."""
    answer: int = _libc().syscall(number, *arguments)
    return answer


def _checked(answer: int) -> int:
    if answer < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
    return answer
