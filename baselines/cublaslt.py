"""cuBLASLt's int8 product through ``torch._int_mm``, enqueued in turn with our templates on the harness's stream."""

from typing import Any

from tilearena.errors import NoGpuError

NAME = "torch._int_mm"
#: ``torch._int_mm`` refuses fewer rows than this, and extents that are no multiple of 8 (its argument checks).
MIN_ROWS = 17


class _Memory:
    """A dense matrix at a device address, as the CUDA array interface describes it."""

    def __init__(self, address: int, shape: tuple[int, int], typestr: str) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": typestr,
            "data": (address, False),
            "version": 3,
            "strides": None,
        }


class TorchIntMm:
    """Callable for ``GpuRunner(vendor=...)``: D (s32) = A x B for int8 operands."""

    def __init__(self) -> None:
        """Import torch.

        Raises:
            NoGpuError: torch is missing or sees no CUDA device.
        """
        try:
            import torch
        except ImportError:
            raise NoGpuError("torch is not installed, so cuBLASLt cannot be timed beside the templates") from None
        if not torch.cuda.is_available():
            raise NoGpuError("torch sees no CUDA device, so cuBLASLt cannot be timed beside the templates")
        self._torch = torch

    def __call__(self, a: int, b: int, d: int, m: int, n: int, k: int, stream: int) -> int:
        """Enqueue one product; 0, or 1 where ``torch._int_mm`` does not serve the shape."""
        if m < MIN_ROWS or n % 8 or k % 8:
            return 1
        torch = self._torch
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            torch._int_mm(
                self._view(a, (m, k), "|i1"), self._view(b, (n, k), "|i1").t(), out=self._view(d, (m, n), "<i4")
            )
        return 0

    def _view(self, address: int, shape: tuple[int, int], typestr: str) -> Any:
        return self._torch.as_tensor(_Memory(address, shape, typestr), device="cuda")
