"""Fuzzing that is guided by coverage: `python -m tests.fuzz.guided` runs atheris for a bounded time on each target.

`corpus/` holds inputs that reach different code, kept from earlier runs; the default tests send each one through its
target.
"""
