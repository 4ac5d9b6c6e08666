"""What the sync and the async driver of one store share."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from idem_middleware.cache import AnswerCache
from idem_middleware.decisions import Attempt
from idem_middleware.errors import StoreUnavailable
from idem_middleware.events import Event, EventKind, LoggingObserver, Observer, emit
from idem_middleware.hosts import check_host
from idem_middleware.identity import Identity
from idem_middleware.keys import caller_partition, placed, short_digest
from idem_middleware.options import Options
from idem_middleware.probes import Probes
from idem_middleware.reentry import DeferringLock
from idem_middleware.stores.base import Store
from idem_middleware.stores.forks import reset_in_children
from idem_middleware.upkeep import Upkeep, process_upkeep
from idem_middleware.waiting import Flights

__all__ = ["Runtime"]


def _new_owner() -> str:
    return os.urandom(16).hex()


class Runtime:
    """A store, the upkeep of its leases, who waits for what, and how chance and time come in."""

    def __init__(
        self,
        store: Store,
        options: Options,
        *,
        upkeep: Upkeep | None = None,
        pause: Callable[[threading.Event, float], bool] = threading.Event.wait,
        chance: Callable[[], float] = random.random,
        new_owner: Callable[[], str] = _new_owner,
        log: Observer | None = None,
    ) -> None:
        check_host()
        self.store = store
        self.options = options
        self._by_caller = bool(getattr(store, "by_caller", False))
        self.flights = Flights()
        self.cache = AnswerCache()
        self.pause = pause
        self.chance = chance
        self._new_owner = new_owner
        self._upkeep = upkeep
        self._log = log or LoggingObserver()
        self._twin: Store | None = None
        self._twin_lock = threading.Lock()
        self._ready_twin: Store | None = None
        self.undos_lock = DeferringLock()
        self.undos: dict[str, Any] = {}  # jobs of `claims`, by key
        self.probes = Probes(store.clock.monotonic)
        reset_in_children(self)
        subscribe = getattr(store, "subscribe", None)
        if subscribe is not None:
            # Each by itself: an observer that two engines of one store share is told once.
            for observer in (self._log, *options.observers):
                subscribe(observer)

    @property
    def upkeep(self) -> Upkeep:
        """The process's own, unless another was given."""
        return process_upkeep() if self._upkeep is None else self._upkeep

    @property
    def upkeep_store(self) -> Store:
        """The same records over connections that request traffic can't use up.

        Making those may take longer than a short lease has left, on a busy machine. It goes on beside the first use,
        which has the requests' own connections.
        """
        if self._ready_twin is not None:
            return self._ready_twin
        with self._twin_lock:
            if self._twin is None:
                self._twin = self.store.twin()
                if hasattr(self._twin, "open"):
                    self.upkeep.schedule(0.0, self._open_twin)
                else:
                    self._ready_twin = self._twin
        return self._ready_twin or self.store

    def _open_twin(self) -> None:
        with suppress(StoreUnavailable):  # whoever calls it will be told
            self._twin.open()  # type: ignore[union-attr]
        self._ready_twin = self._twin

    def after_fork(self) -> None:  # pragma: no cover - runs in children, where nothing is measured
        """The parent may have been opening the twin, undoing a claim, or keeping an answer."""
        self.cache = AnswerCache()
        self._twin_lock = threading.Lock()
        self._twin = self._ready_twin = None
        self.undos_lock = DeferringLock()
        self.undos = {}
        self.probes = Probes(self.store.clock.monotonic)

    def attempt(self, identity: Identity) -> Attempt:
        """A fresh try, with an owner token of its own even within one process."""
        return Attempt(
            pk=self.name_of(identity.pk, identity.options.namespace, identity.caller),
            owner=self._new_owner(),
            fingerprint=identity.fingerprint,
            caller_digest=identity.caller_digest,
            accepted=identity.accepted,
            options=identity.options,
            patience_seconds=0.0 if identity.options.mode == "observe" else identity.options.wait_seconds,
            margin_seconds=self.store.clock.margin_seconds,
            request=identity.request,
        )

    def name_of(self, pk: str, namespace: str, caller: str | None) -> str:
        """What the store knows the record by."""
        return placed(pk, caller_partition(namespace, caller)) if self._by_caller else pk

    def tell(
        self, kind: EventKind, attempt: Attempt | None, *, attempt_number: int | None = None, **fields: Any
    ) -> None:
        """Emit one event, to the log and to the observers of the options in force."""
        options = self.options if attempt is None else attempt.options
        if not options.observers and isinstance(self._log, LoggingObserver) and not self._log.hears(kind):
            return
        digest = None if attempt is None else short_digest(attempt.pk)
        event = Event(kind=kind, key_digest=digest, attempt=attempt_number, **fields)
        emit((self._log, *options.observers), event)
