"""Asking a user's prober: how often, how many at once, how long, and what its answer means."""

from __future__ import annotations

import inspect
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from enum import Enum
from functools import partial
from typing import Any

from idem_middleware.events import told
from idem_middleware.probing import UNKNOWN, Abandoned, Done, NotDone, Probed, Unknown
from idem_middleware.reentry import DeferringLock

__all__ = ["Admission", "Probes", "answer_of", "failure_of", "probe_in_thread"]

_MOST_AT_ONCE = 8  # of one process; what hangs counts until it ends
_UNKNOWN_FOR_SECONDS = 5.0  # a client that loops on one key must not make us loop on the prober
_MOST_REMEMBERED = 1024

logger = logging.getLogger("idem_middleware")


class Admission(Enum):
    """Whether the prober is asked about a key now."""

    ASK = "nobody does"
    BUSY = "somebody does, in this process"
    UNKNOWN = "it was just asked, and did not know; or too many ask about other keys"


class Probes:
    """Who asks about which key in this process. Safe under threads."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = DeferringLock()
        self._asked: set[str] = set()
        self._unknown_until: OrderedDict[str, float] = OrderedDict()
        self._running = 0

    def begin(self, pk: str) -> Admission:
        """Ask for admission; who gets ASK must call `end`, and `finished` when the prober has really ended."""
        with self._lock:
            if pk in self._asked:
                return Admission.BUSY
            if self._running >= _MOST_AT_ONCE or self._monotonic() < self._unknown_until.get(pk, float("-inf")):
                return Admission.UNKNOWN
            self._asked.add(pk)
            self._running += 1
            return Admission.ASK

    def end(self, pk: str, answer: Probed) -> None:
        """It answered, or is not waited for any longer."""
        self._lock.do(partial(self._end, pk, answer))

    def _end(self, pk: str, answer: Probed) -> None:
        self._asked.discard(pk)
        self._unknown_until.pop(pk, None)
        if isinstance(answer, Unknown):
            self._unknown_until[pk] = self._monotonic() + _UNKNOWN_FOR_SECONDS
            while len(self._unknown_until) > _MOST_REMEMBERED:
                self._unknown_until.popitem(last=False)

    def finished(self) -> None:
        """The prober itself has come to its end."""
        self._lock.do(self._finished)

    def _finished(self) -> None:
        self._running -= 1


def probe_in_thread(
    prober: Callable[[Abandoned], Any], abandoned: Abandoned, finished: Callable[[], None]
) -> Future[Any]:
    """Ask in a thread of its own: whoever waits can give up, and nobody else's thread is held."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    context = copy_context()

    def run() -> None:
        try:
            answer = context.run(prober, abandoned)
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits
            future.set_exception(error)
        else:
            future.set_result(answer)
        finally:
            finished()

    try:
        threading.Thread(target=run, name="idempotency-prober", daemon=True).start()
    except RuntimeError as error:  # no more threads
        finished()
        future.set_exception(error)
    return future


def answer_of(answer: object) -> Probed:
    """What it said; what is no answer, is none."""
    if isinstance(answer, (Done, NotDone, Unknown)):
        return answer
    if inspect.iscoroutine(answer):
        answer.close()
        logger.error("the prober is a coroutine function, which only an engine on an event loop can ask")
    elif answer is not None:
        logger.error("the prober must give Done, NotDone or Unknown, not %s", type(answer).__name__)
    return UNKNOWN


def failure_of(error: BaseException, *, timed_out: bool) -> Probed:
    """It raised, or took too long: nothing is known."""
    if timed_out:
        logger.error("the prober did not answer within prober_seconds")
    else:
        logger.error("the prober raised %s", told(error))
    return UNKNOWN
