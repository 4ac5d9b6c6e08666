"""One call to DynamoDB, with all its tries: the retry layer, the only one (boto3's own is switched off).

What is tried, when and how often is written once, as generators that send and pause by yielding. `carry_out` does what
they yield, blocking; `aio.carry_out` does it on an event loop.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from idem_middleware.clock import CorrectedClock
from idem_middleware.errors import StoreCrowded, StoreMisconfigured
from idem_middleware.events import Event, EventKind, Observer, emit
from idem_middleware.stores.dynamodb.crowds import Crowds, Entry
from idem_middleware.stores.dynamodb.faults import Fault, Kind, classify, error_for
from idem_middleware.stores.dynamodb.requests import Request
from idem_middleware.stores.dynamodb.transport import Transport
from idem_middleware.transactions import CancellationCode, CancellationReason

__all__ = [
    "Answer",
    "Calls",
    "ConditionFailed",
    "Pause",
    "Send",
    "SkewWatch",
    "Steps",
    "carry_out",
    "key_digest",
]

T = TypeVar("T")

# AWS Architecture Blog, "Exponential Backoff And Jitter": full jitter finishes soonest under contention.
_BASE_SECONDS = 0.05
_CAP_SECONDS = 1.0
_TURN_SECONDS = 0.01


@dataclass(slots=True)
class Send:
    """Asks for one request to be sent; what comes back is the answer, or the transport's exception."""

    operation: str
    request: Request


@dataclass(slots=True)
class Pause:
    """Asks for some time to pass."""

    seconds: float


Steps = Generator[Send | Pause, Any, T]
"""What to do, one thing after the other, and a result in the end."""


def carry_out(steps: Steps[T], transport: Transport, sleep: Callable[[float], object] = time.sleep) -> T:
    """Do it, blocking."""
    try:
        return _driven(steps, transport, sleep)
    finally:
        steps.close()  # now, and not when nobody looks at a traceback any longer


def _driven(steps: Steps[T], transport: Transport, sleep: Callable[[float], object]) -> T:
    try:
        step = next(steps)
        while True:
            if isinstance(step, Pause):
                sleep(step.seconds)
                step = steps.send(None)
                continue
            try:
                answer = transport(step.operation, step.request)
            except Exception as exc:  # noqa: BLE001  # the steps judge it, and let go what they don't know
                step = steps.throw(exc)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


@dataclass(frozen=True, slots=True)
class Answer:
    """DynamoDB did it, and said this."""

    response: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ConditionFailed:
    """The condition did not hold. `item` stands there; None: nothing does, or whoever answered does not tell.

    Of a transaction there are `reasons`, one for each of its actions.
    """

    item: object | None
    reasons: tuple[CancellationReason, ...] = ()


def key_digest(pk: str) -> str:
    """What an event tells of a key: enough to find it again, too little to use."""
    return pk[:12]


class SkewWatch:
    """Says once when the machine's clock is further off than the margin, and again when that happens anew."""

    def __init__(self, clock: CorrectedClock, observers: Iterable[Observer]) -> None:
        self._clock = clock
        self._observers = observers
        self._told = False

    def learn(self, response: object, sent_at: float) -> None:
        """Learn from one answer, be it an error's, to a request sent at that instant of the machine's own clock."""
        metadata = response.get("ResponseMetadata") if isinstance(response, Mapping) else None
        # After a retry inside of the SDK it is not known which attempt this Date answers.
        if not isinstance(metadata, Mapping) or metadata.get("RetryAttempts"):
            return
        headers = metadata.get("HTTPHeaders")
        date = headers.get("date") if isinstance(headers, Mapping) else None
        if not isinstance(date, str):
            return
        self._clock.observe(date, sent_at)
        offset = self._clock.offset_seconds
        if abs(offset) > self._clock.margin_seconds:
            if not self._told:
                self._told = True
                emit(self._observers, Event(kind=EventKind.CLOCK_SKEWED, seconds=offset))
        elif not offset:
            self._told = False


class Calls:
    """Says how to get one call answered before its deadline. Safe under threads; does no I/O by itself."""

    def __init__(
        self,
        table: str,
        *,
        clock: CorrectedClock,
        observers: Iterable[Observer] = (),
        skew: SkewWatch | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.table = table
        self.clock = clock
        self._observers = observers
        self._skew = skew or SkewWatch(clock, observers)
        self._draw = draw
        self.crowds = Crowds()

    def call(
        self, operation: str, request: Request, deadline: float, *, pk: str | None = None
    ) -> Steps[Answer | ConditionFailed]:
        """Send the request, again and again where that may help, at least once.

        `deadline` is an instant of `clock.monotonic()`. No try is begun that, taking as long as the one before it,
        would end later; one under way is not cut short.

        Raises:
            StoreUnavailable: no answer in time, or one that says it never will be. A write may have been applied.

        """
        tries = 0
        while True:
            began_at, sent_at = self.clock.monotonic(), self.clock.local_now()
            try:
                response = yield Send(operation, request)
            except Exception as exc:
                took_seconds = self.clock.monotonic() - began_at
                fault = classify(exc)
                if fault is None:
                    raise
                answered = getattr(exc, "response", None)
                self._skew.learn(answered, sent_at)
                self._tell_of(fault, pk)
                if fault.kind is Kind.ANSWER:
                    item = answered.get("Item") if isinstance(answered, Mapping) else None
                    return ConditionFailed(item, fault.reasons)
                tries += 1
                if fault.kind is not Kind.RETRY:
                    failure = error_for(fault, self.table, operation)
                    if isinstance(failure, StoreMisconfigured):
                        failure.tried_before = tries > 1
                    raise failure from exc
                pause_seconds = self.pause_seconds(tries, deadline, fault, took_seconds, pk=pk)
                if pause_seconds is None:
                    raise error_for(fault, self.table, operation) from exc
            else:
                self._skew.learn(response, sent_at)
                self.crowds.note(pk, None)
                return Answer(response)
            yield Pause(pause_seconds)

    def entered(self, pk: str, deadline: float) -> Steps[None]:
        """Wait for one's turn to claim a key, which is soon or never. `crowds.leave` is to be called at the end.

        Raises:
            StoreCrowded: others wait for an answer about this key already; or it was nobody's turn in time.

        """
        while True:
            entry = self.crowds.enter(pk)
            if entry is Entry.IN:
                return
            pause_seconds = _TURN_SECONDS * (0.5 + self._draw())
            if entry is Entry.TURNED_AWAY or self.clock.monotonic() + pause_seconds > deadline:
                code = self.crowds.trouble(pk) or "KeyBusy"
                raise StoreCrowded(
                    f"DynamoDB table {self.table!r}: too many requests of this process ask for one key ({code})",
                    code=code,
                )
            yield Pause(pause_seconds)

    def pause_seconds(
        self, tries: int, deadline: float, fault: Fault, took_seconds: float = 0.0, *, pk: str | None = None
    ) -> float | None:
        """How long to wait before the next try, of which the observers are told; None if no time is left for it."""
        # The exponent is bounded: 2.0**2000 is an OverflowError.
        pause_seconds = self._draw() * min(_CAP_SECONDS, _BASE_SECONDS * 2.0 ** min(tries - 1, 10))
        if self.clock.monotonic() + pause_seconds + took_seconds > deadline:
            return None
        emit(
            self._observers,
            Event(
                kind=EventKind.STORE_RETRIED,
                key_digest=None if pk is None else key_digest(pk),
                seconds=pause_seconds,
                dynamo_error_code=fault.code,
                throttling_reasons=fault.throttling,
            ),
        )
        return pause_seconds

    def _tell_of(self, fault: Fault, pk: str | None) -> None:
        """Tell of an answer that says no: neither of these is a fault of DynamoDB's."""
        # A conflict is told promptly, of a key that others get on with: duplicates that meet are no trouble.
        self.crowds.note(pk, None if fault.kind is Kind.ANSWER or fault.is_conflict else fault.code)
        if fault.reasons:
            kind = EventKind.TRANSACTION_CANCELLED
        elif fault.kind is Kind.ANSWER:
            kind = EventKind.CONDITION_FAILED
        else:
            return
        emit(
            self._observers,
            Event(
                kind=kind,
                key_digest=None if pk is None else key_digest(pk),
                dynamo_error_code=fault.code,
                reason=_decisive(fault.reasons),
                cancellation_reasons=tuple(reason.code.value for reason in fault.reasons),
            ),
        )


def _decisive(reasons: Sequence[CancellationReason]) -> str | None:
    """What stood against a transaction: rather what will stand there again than what passes."""
    codes = [reason.code for reason in reasons if reason.code is not CancellationCode.NONE]
    lasting = [code for code in codes if not code.passes]
    return next((code.value for code in (*lasting, *codes)), None)
