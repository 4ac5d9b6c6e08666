"""Probe apps: one small HTTP contract over every framework, made to be broken.

A request tells the app how to answer (`plan.py`), every execution of a handler is written to a log
(`runs.py`), and so any scenario can be written as a list of requests and run on every framework, on real
servers: `python -m tests.probe --framework flask --port 8001`.
"""
