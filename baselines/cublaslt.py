"""cuBLASLt's int8 product through ``torch._int_mm``, enqueued in turn with our templates on the harness's stream.

`tilearena.vendor` has the library called directly; this is what a user of PyTorch gets.
"""

from functools import lru_cache
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
    """Callable for ``GpuRunner(externals=...)``: D (s32) = A x B for int8 operands."""

    def __init__(self, ordinal: int = 0) -> None:
        """Import torch, for the GPU with this number.

        Raises:
            NoGpuError: torch is missing or sees no CUDA device.
        """
        try:
            import torch
        except ImportError:
            raise NoGpuError("torch is not installed, so torch._int_mm cannot be timed beside the templates") from None
        if not torch.cuda.is_available():
            raise NoGpuError("torch sees no CUDA device, so torch._int_mm cannot be timed beside the templates")
        self._torch, self._device = torch, f"cuda:{ordinal}"
        self.version = str(torch.__version__)
        # hot launches use the same operands again and again; a view costs more than a launch
        self._views = lru_cache(maxsize=8)(self._new_views)
        self._used: int | None = None

    def __call__(self, a: int, b: int, d: int, m: int, n: int, k: int, launches: int, stream: int) -> int:
        """Enqueue the product ``launches`` times; 0, or 1 where ``torch._int_mm`` does not serve the shape."""
        if m < MIN_ROWS or n % 8 or k % 8:
            return 1
        torch = self._torch
        view_a, view_b, view_d = self._views(a, b, d, m, n, k)
        self._use(stream)
        with torch.inference_mode():
            for _ in range(launches):
                torch._int_mm(view_a, view_b, out=view_d)
        return 0

    def _use(self, stream: int) -> None:
        """Make torch enqueue on this stream from now on: nothing else in this process uses torch."""
        if stream != self._used:
            self._torch.cuda.set_stream(self._torch.cuda.ExternalStream(stream, device=self._device))
            self._used = stream

    def _new_views(self, a: int, b: int, d: int, m: int, n: int, k: int) -> tuple[Any, Any, Any]:
        return self._view(a, (m, k), "|i1"), self._view(b, (n, k), "|i1").t(), self._view(d, (m, n), "<i4")

    def _view(self, address: int, shape: tuple[int, int], typestr: str) -> Any:
        return self._torch.as_tensor(_Memory(address, shape, typestr), device=self._device)
