"""Chaos and wear: real servers under real kills, judged by what their clients saw; and long lives of one process.

`python -m tests.chaos` runs the chaos, `python -m tests.chaos.wear` the wear. Both have short versions in the tests.
"""
