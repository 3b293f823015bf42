"""Keep what a plugin starts in the plugin's process group, so that it can be ended with it: Linux's seccomp, no root.

A filter answers ``setsid`` and ``setpgid`` as if they had done what they are asked for, and does nothing, so that a
library which starts a process in a session of its own works as ever; only does that process end with the rest.

Source: https://docs.kernel.org/userspace-api/seccomp_filter.html, ``linux/{filter,seccomp,audit}.h``.
"""

import ctypes
import platform
import sys

#: Of each machine: how seccomp names it (``AUDIT_ARCH_...``), and the numbers of ``setsid`` and ``setpgid`` there.
_MACHINES = {"x86_64": (0xC000003E, 112, 109), "aarch64": (0xC00000B7, 157, 154)}
#: Instructions: load a word of ``struct seccomp_data``, jump if it equals, return.
_LOAD, _JUMP_IF, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _MACHINE = 0, 4
_ALLOW, _ANSWER_ZERO = 0x7FFF0000, 0x00050000
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
#: Without root no process may filter its calls that could gain privileges later.
_PR_SET_NO_NEW_PRIVS = 38


class _Instruction(ctypes.Structure):
    """``struct sock_filter``: the jumps are over so many of the instructions that follow."""

    _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


def stay_in_group() -> bool:
    """Keep this thread, and what it starts from now on, in its process group for good; False where that cannot be."""
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        return False
    machine, setsid, setpgid = _MACHINES[platform.machine()]
    steps = (
        (_LOAD, 0, 0, _MACHINE),
        (_JUMP_IF, 0, 3, machine),  # a call of another machine, whose numbers mean something else, is allowed
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_IF, 2, 0, setsid),
        (_JUMP_IF, 1, 0, setpgid),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ANSWER_ZERO),
    )
    instructions = (_Instruction * len(steps))(*(_Instruction(*step) for step in steps))
    program = _Program(len(steps), instructions)
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return bool(prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program)) == 0)
