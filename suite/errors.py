"""Mistakes and conditions that a user can act on.

Every message is one sentence that says what is wrong, where, and what to do; the command line prints it without a
traceback and exits with code 2.
"""


def one_line(text: str) -> str:
    """``text`` with blanks for white space, and escapes for all else that a terminal does not simply print."""
    return "".join(c if c.isprintable() else " " if c.isspace() else ascii(c)[1:-1] for c in text)


def said(error: BaseException) -> str:
    """The message of what a plugin raised, in one line, even if asking for it raises."""
    try:
        return " ".join(str(error).split())
    except BaseException:  # it may be a plugin's class
        return "its message cannot be shown"


class TilearenaError(Exception):
    """Base of all errors that are reported to the user in one sentence, whatever the names in it hold."""

    def __str__(self) -> str:
        return one_line(super().__str__())


class SpecError(TilearenaError):
    """A YAML spec is wrong: names file, line and key."""


class RecordingError(TilearenaError):
    """A recording is missing, damaged, or of another schema version."""


class BuildError(TilearenaError):
    """Nothing can be compiled here, e.g. no nvcc or no CUTLASS headers."""


class NoGpuError(TilearenaError):
    """No usable NVIDIA GPU, driver, or kernel library on this machine."""


class MeasureError(TilearenaError):
    """A measurement cannot start or go on."""


class DeviceFailedError(MeasureError):
    """The GPU failed under a kernel (an illegal address, say); this process can measure nothing more."""


class OverloadedError(MeasureError):
    """Launching took too long again and again: the host is overloaded."""


class Interrupted(TilearenaError):  # noqa: N818 - it is no mistake
    """The user ended a measurement (Ctrl-C); the message says what is kept and how to go on."""


class PredictorError(TilearenaError):
    """A predictor raised, answered nonsense, or took too long."""


class SubmissionError(TilearenaError):
    """A submission is malformed or its figures do not follow from its picks."""
