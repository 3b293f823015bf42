"""Predictors that ship with tilearena; each is one file and one entry point."""
