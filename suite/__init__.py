"""tilearena: choose CUTLASS GEMM templates for low-bit matrix products, and show that the choice is good."""

__version__ = "0.1.0"
