"""What happened, one typed event per decision; and the observer that writes them to a log.

Events never hold a key, a token or a body: `key_digest` is the first 12 hexadecimal digits of the record's own key.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from traceback import extract_tb

__all__ = ["Event", "EventKind", "LoggingObserver", "Observer", "emit", "level_of", "told"]


class EventKind(StrEnum):
    """Every kind of event."""

    CLAIMED = "claimed"
    TAKEN_OVER = "taken_over"
    RUN_AGAIN = "run_again"
    WAITED = "waited"
    REPLAYED = "replayed"
    REFUSED = "refused"
    COMPLETED = "completed"
    COMPLETED_WITHOUT_ANSWER = "completed_without_answer"
    FAILED = "failed"
    RELEASED = "released"
    ABANDONED = "abandoned"
    RENEWED = "renewed"
    LEASE_LOST = "lease_lost"
    EXECUTED_NOT_RECORDED = "executed_not_recorded"
    CLAIM_UNDONE = "claim_undone"
    PROBED = "probed"
    CHECKPOINTED = "checkpointed"
    TRANSACTED = "transacted"
    TRANSACTION_CANCELLED = "transaction_cancelled"
    BYPASSED = "bypassed"
    CONDITION_FAILED = "condition_failed"
    STORE_RETRIED = "store_retried"
    STORE_FAILED = "store_failed"
    CLOCK_SKEWED = "clock_skewed"
    LATE_DUPLICATE = "late_duplicate"
    TTL_REMOVED = "ttl_removed"
    CROSS_REGION_DUPLICATE = "cross_region_duplicate"
    RECORD_REJECTED = "record_rejected"
    CROWDED = "crowded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened to one key (or, without a digest, to the store).

    `reason` is the name of a problem or a short word of ours; `observed` is true where mode="observe" let pass what
    would have been refused or replayed. `seconds` is how long it took: an execution from its claim to its record, a
    wait, a pause before a call is sent again; of a clock, how far it is off; of a removed record, how long after the
    end of its retention.

    `dynamo_error_code` is there wherever DynamoDB answered with an error: of a condition that did not hold, which is an
    answer and no fault, as of everything else. `throttling_reasons` say what was exceeded. `cancellation_reasons` are
    the codes of a cancelled transaction, the claim's own first and then one for each action; `reason` is the one that
    decided, which is counted as `transact_write_cancellation_reason`.
    """

    kind: EventKind
    key_digest: str | None = None
    attempt: int | None = None
    reason: str | None = None
    status: int | None = None
    seconds: float | None = None
    observed: bool = False
    dynamo_error_code: str | None = None
    throttling_reasons: tuple[str, ...] = ()
    cancellation_reasons: tuple[str, ...] = ()


Observer = Callable[[Event], None]

_WARNINGS = frozenset(
    {
        EventKind.TAKEN_OVER,
        EventKind.ABANDONED,
        EventKind.LEASE_LOST,
        EventKind.BYPASSED,
        EventKind.STORE_RETRIED,
        EventKind.CLOCK_SKEWED,
        EventKind.LATE_DUPLICATE,
    }
)
_ERRORS = frozenset(
    {
        EventKind.EXECUTED_NOT_RECORDED,
        EventKind.STORE_FAILED,
        EventKind.CROSS_REGION_DUPLICATE,
        EventKind.RECORD_REJECTED,
    }
)

logger = logging.getLogger("idem_middleware")


_LEVELS = {
    kind: logging.ERROR if kind in _ERRORS else logging.WARNING if kind in _WARNINGS else logging.DEBUG
    for kind in EventKind
}


def _shown(value: object) -> object:
    return ",".join(value) if isinstance(value, tuple) else value


def level_of(kind: EventKind) -> str:
    """The name of the level that such an event is logged at."""
    return logging.getLevelName(_LEVELS[kind])


class LoggingObserver:
    """Writes each event as one line, its fields also in `extra` for structured formatters.

    Two for one logger are equal, so that what a store says is written once, however many engines it serves.
    """

    def __init__(self, target: logging.Logger = logger) -> None:
        self._logger = target

    def __eq__(self, other: object) -> bool:
        return self._logger is other._logger if isinstance(other, LoggingObserver) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._logger)

    def hears(self, kind: EventKind) -> bool:
        """Whether an event of this kind would be written at all."""
        return self._logger.isEnabledFor(_LEVELS[kind])

    def __call__(self, event: Event) -> None:
        level = _LEVELS[event.kind]
        if not self._logger.isEnabledFor(level):
            return
        known = {name: getattr(event, name) for name in Event.__dataclass_fields__}
        shown = {
            name: value for name, value in known.items() if value is not None and value is not False and value != ()
        }
        shown.pop("kind")
        text = " ".join(f"{name}={_shown(value)}" for name, value in shown.items())
        self._logger.log(
            level,
            "idempotency %s%s",
            event.kind.value,
            f" {text}" if text else "",
            extra={
                "idempotency_event": event.kind.value,
                # Under its own name, whatever else in the service talks to DynamoDB: one search finds them all.
                **{k if k == "dynamo_error_code" else f"idempotency_{k}": v for k, v in shown.items()},
            },
        )


def told(error: BaseException) -> str:
    """What a log may say of an error in a user's function: what it is and where, not its text.

    That is often made of what the function was given: a token that is in no dictionary, a body that does not parse.
    """
    frames = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in extract_tb(error.__traceback__)[1:]]
    return f"{type(error).__name__} ({' > '.join(frames) or 'when it was called'})"


def emit(observers: Iterable[Observer], event: Event) -> None:
    """Tell every observer. One that raises is logged and harms nobody."""
    for observer in observers:
        try:
            observer(event)
        except Exception as error:  # noqa: BLE001 - whatever it is
            logger.error("an observer failed on the event %s: %s", event.kind.value, told(error))  # noqa: TRY400
