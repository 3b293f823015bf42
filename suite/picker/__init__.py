"""Picking in microseconds: decision trees distilled from a predictor, as Python and as a C++ header."""
