"""Looking at things from a forked child."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable

import pytest

__all__ = ["in_child"]


def in_child(check: Callable[[], bool]) -> bool:
    """What this says in a child process; the child does nothing else."""
    if not hasattr(os, "fork"):  # pragma: no branch - Windows
        pytest.skip("this system has no fork")  # pragma: no cover - Windows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other tests' threads may live: the child uses none
        child = os.fork()
    if child == 0:  # pragma: no cover - measured in the parent
        failed = True
        try:
            failed = not check()
        finally:
            os._exit(failed)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0
