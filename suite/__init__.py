"""tilearena: choose CUTLASS GEMM templates for low-bit matrix products, and show that the choice is good."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilearena.picker.choose import pick as pick

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """``pick`` is imported when it is first asked for (PEP 562), so that importing tilearena stays cheap."""
    if name != "pick":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tilearena.picker.choose import pick

    globals()["pick"] = pick
    return pick
