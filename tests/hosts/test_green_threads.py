"""gevent patches a process after it was forked, as gunicorn does with --preload; its parent has answered requests."""

from __future__ import annotations

import sys

import pytest

from tests.support.processes import Process

pytestmark = pytest.mark.processes

pytest.importorskip("gevent", reason="gevent is not installed")
pytest.importorskip("cryptography", reason="the extra crypto is not installed")

_PARENT = """
import os, sys, time

from idem_middleware import Engine, EventKind, Options
from idem_middleware.ciphers import KmsCipher
from idem_middleware.stores.forks import LateLock, reset_in_children

class Held:
    def __init__(self):
        self.after_fork()
        reset_in_children(self)

    def after_fork(self):
        self.lock = LateLock()

class Kms:
    def generate_data_key(self, **parameters):
        time.sleep(0.01)
        return {"Plaintext": bytes(32), "CiphertextBlob": b"encrypted"}

held, seen, cipher = Held(), [], KmsCipher("key", client=Kms(), data_key_seconds=0.001)
cipher.seal(b"of the parent", b"")
engine = Engine("memory://", Options(lease_seconds=1, max_execution_seconds=60, observers=(seen.append,)))
engine.run_once("of the parent", None, lambda lease: 1)
with held.lock:
    pass
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

from gevent import monkey
monkey.patch_all()
import gevent
"""

_LEASES = """
def work(lease):
    while sum(event.kind is EventKind.RENEWED for event in seen) < 4:
        time.sleep(0.02)
    return 1

jobs = [gevent.spawn(engine.run_once, key, None, work) for key in ("a", "b")]
gevent.joinall(jobs, timeout=30)
os._exit(0 if [job.value for job in jobs] == [1, 1] else 1)
"""

_LOCKS = """
def hold():
    with held.lock:
        time.sleep(0.01)
    return 1

jobs = [gevent.spawn(hold) for _ in range(3)]
gevent.joinall(jobs, timeout=30)
os._exit(0 if [job.value for job in jobs] == [1, 1, 1] else 1)
"""


_KEYS = """
def seal():
    return bool(cipher.seal(b"an answer", b""))

jobs = [gevent.spawn(seal) for _ in range(3)]
gevent.joinall(jobs, timeout=30)
os._exit(0 if all(job.value for job in jobs) else 1)
"""

_CHILDREN = {"leases are renewed": _LEASES, "locks are waited for": _LOCKS, "data keys are waited for": _KEYS}


@pytest.mark.parametrize("child", list(_CHILDREN.values()), ids=list(_CHILDREN))
def test_a_patched_child_works(child: str) -> None:
    """No green thread stands still with all others."""
    with Process([sys.executable, "-W", "ignore", "-c", _PARENT + child]) as process:
        assert process.wait(within_seconds=60) == 0, process.errors
