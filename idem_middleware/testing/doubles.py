"""A clock that is moved by hand, and a store that fails where you say.

clock = ManualClock()
store = FaultyStore(MemoryStore(clock=clock))
store.fail(Fault.LOST_REPLY, on="create")
engine = Engine(store, Options())
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeVar

from idem_middleware.clock import Clock
from idem_middleware.errors import StoreMisconfigured, StoreUnavailable
from idem_middleware.records import Record
from idem_middleware.stores.base import AsyncStore, Cancelled, Found, Gone, Store, Written
from idem_middleware.stores.direct import DirectStore
from idem_middleware.transactions import Transaction

__all__ = ["Call", "Fault", "FaultyStore", "ManualClock", "Operation"]

T = TypeVar("T")

Operation = Literal["create", "swap", "load", "transact", "put_chunks", "get_chunks"]


class ManualClock:
    """Stands still until it is told to go on. The machine's clock and the one for deadlines move together.

    Set `offset_seconds` for what a store's answer may show: that the machine's clock was wrong by this much.
    """

    def __init__(
        self, now: float = 1_700_000_000.0, *, margin_seconds: float = 0.0, offset_seconds: float = 0.0
    ) -> None:
        self.margin_seconds = margin_seconds
        self.offset_seconds = offset_seconds
        self._wall = now
        self._monotonic = 0.0

    def now(self) -> float:
        """The instant, in unix seconds."""
        return self._wall + self.offset_seconds

    def monotonic(self) -> float:
        """Seconds since this clock was made."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._wall += seconds
        self._monotonic += seconds


class Fault(Enum):
    """What can happen to a call."""

    LOST_REQUEST = "the store never got it"
    LOST_REPLY = "it was applied, and nobody heard of it"
    SENT_TWICE = "it was applied, its reply got lost, and a client that sends again got the reply to the second try"
    REFUSED = "the store can't work like this, and an operator has to act"


@dataclass(frozen=True, slots=True)
class Call:
    """One call as the store got it: `old` is what a swap replaces, `new` what is written."""

    operation: Operation
    pk: str
    old: Record | None = None
    new: Record | None = None
    fault: Fault | None = None


@dataclass(slots=True)
class _Planned:
    operation: Operation | None
    skip: int
    times: int | None
    act: Fault | Callable[[], None]


class FaultyStore:
    """Another store, with faults where they are planned, and a log of all calls."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.calls: list[Call] = []
        self._planned: list[_Planned] = []
        self._lock = threading.Lock()

    @property
    def clock(self) -> Clock:
        return self.store.clock

    @property
    def deadline_seconds(self) -> float:
        return self.store.deadline_seconds

    @property
    def inline_bytes(self) -> int | None:
        return self.store.inline_bytes

    @property
    def is_transactional(self) -> bool:
        return self.store.is_transactional

    def fail(self, fault: Fault, *, on: Operation | None = None, skip: int = 0, times: int | None = 1) -> None:
        """Plan a fault: after `skip` calls of this operation (or of any), `times` in a row; None: until `recover`."""
        self._planned.append(_Planned(on, skip, times, fault))

    def before(self, action: Callable[[], None], *, on: Operation | None = None, skip: int = 0) -> None:
        """Do something just before a call reaches the store, such as what another worker could do."""
        self._planned.append(_Planned(on, skip, 1, action))

    def recover(self) -> None:
        """Forget all that is planned."""
        self._planned.clear()

    def create(self, new: Record, deadline: float) -> Written | Found:
        return self._call(Call("create", new.pk, new=new), lambda: self.store.create(new, deadline))

    def swap(self, old: Record, new: Record, deadline: float) -> Written | Found | Gone:
        return self._call(Call("swap", old.pk, old=old, new=new), lambda: self.store.swap(old, new, deadline))

    def load(self, pk: str, deadline: float) -> Found | Gone:
        return self._call(Call("load", pk), lambda: self.store.load(pk, deadline))

    def transact(
        self, old: Record | None, new: Record, transaction: Transaction, deadline: float
    ) -> Written | Found | Gone | Cancelled:
        call = Call("transact", new.pk, old=old, new=new)
        return self._call(call, lambda: self.store.transact(old, new, transaction, deadline))

    def put_chunks(self, owner: Record, chunks: Sequence[bytes], deadline: float) -> None:
        self._call(Call("put_chunks", owner.pk), lambda: self.store.put_chunks(owner, chunks, deadline))

    def get_chunks(self, owner: Record, count: int, deadline: float) -> Sequence[bytes | None]:
        return self._call(Call("get_chunks", owner.pk), lambda: self.store.get_chunks(owner, count, deadline))

    def twin(self) -> FaultyStore:
        """Itself: what goes on in the background meets the same faults, and is in the same log."""
        return self

    def to_async(self) -> AsyncStore:
        return DirectStore(self)

    def _call(self, call: Call, carry_out: Callable[[], T]) -> T:
        fault = self._next_fault(call.operation)
        self.calls.append(Call(call.operation, call.pk, call.old, call.new, fault))
        match fault:
            case Fault.REFUSED:
                raise StoreMisconfigured("refused, as planned", code="AccessDeniedException")
            case Fault.LOST_REQUEST:
                raise StoreUnavailable("request lost, as planned", code="ReadTimeoutError")
            case Fault.LOST_REPLY:
                carry_out()
                raise StoreUnavailable("reply lost, as planned", code="ReadTimeoutError")
            case Fault.SENT_TWICE:
                carry_out()
                return carry_out()
            case _:
                return carry_out()

    def _next_fault(self, operation: Operation) -> Fault | None:
        with self._lock:
            due = [planned for planned in self._planned if planned.operation in (None, operation)]
            acts = [planned.act for planned in due if planned.skip == 0]
            for planned in due:
                if planned.skip > 0:
                    planned.skip -= 1
                elif planned.times is not None:
                    planned.times -= 1
                    if planned.times == 0:
                        self._planned.remove(planned)
        faults = []
        for act in acts:
            if isinstance(act, Fault):
                faults.append(act)
            else:
                act()
        return faults[0] if faults else None
