"""Canonical forms of what a request carries: equal for two requests exactly if they say the same.

Each function is pure. None means that there is no canonical form, and the bytes are compared as they were sent:
two requests that are the same may then look different, never the other way round.
"""
