"""Workload specs: which problems are measured, and how."""
