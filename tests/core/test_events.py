"""Events: what they say, where they go, and that nobody is harmed by an observer."""

from __future__ import annotations

import logging

import pytest

from idem_middleware import Event, EventKind, LoggingObserver, MemoryStore, Options
from idem_middleware.events import emit, level_of
from idem_middleware.runtime import Runtime

EVENT = Event(kind=EventKind.REFUSED, key_digest="0123456789ab", reason="key-reused", status=422)


def line(event: Event, caplog: pytest.LogCaptureFixture) -> logging.LogRecord:
    """What is logged of it."""
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "idem_middleware"):
        LoggingObserver()(event)
    (record,) = caplog.records
    return record


def test_a_line_names_the_event_and_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    """Only those that say something."""
    assert line(EVENT, caplog).getMessage() == (
        "idempotency refused key_digest=0123456789ab reason=key-reused status=422"
    )
    assert line(Event(kind=EventKind.STORE_RETRIED), caplog).getMessage() == "idempotency store_retried"


def test_a_zero_says_something(caplog: pytest.LogCaptureFixture) -> None:
    """It is not the absence of a number."""
    assert line(Event(kind=EventKind.WAITED, seconds=0.0), caplog).getMessage() == "idempotency waited seconds=0.0"


def test_fields_are_there_for_structured_formatters(caplog: pytest.LogCaptureFixture) -> None:
    """Under names of their own, and the one of the platform."""
    record = line(Event(kind=EventKind.STORE_FAILED, dynamo_error_code="ThrottlingException", attempt=2), caplog)
    assert vars(record)["idempotency_event"] == "store_failed"
    assert vars(record)["idempotency_attempt"] == 2
    assert vars(record)["dynamo_error_code"] == "ThrottlingException"


@pytest.mark.parametrize(
    ("kind", "level"),
    [
        (EventKind.CLAIMED, logging.DEBUG),
        (EventKind.REPLAYED, logging.DEBUG),
        (EventKind.TAKEN_OVER, logging.WARNING),
        (EventKind.LEASE_LOST, logging.WARNING),
        (EventKind.BYPASSED, logging.WARNING),
        (EventKind.EXECUTED_NOT_RECORDED, logging.ERROR),
        (EventKind.STORE_FAILED, logging.ERROR),
    ],
)
def test_levels_say_whether_somebody_should_look(kind: EventKind, level: int, caplog: pytest.LogCaptureFixture) -> None:
    """A request as usual is no news; a loss is."""
    assert line(Event(kind=kind), caplog).levelno == level


def test_nothing_is_written_below_the_loggers_level(caplog: pytest.LogCaptureFixture) -> None:
    """Nor put together."""
    with caplog.at_level(logging.INFO, "idem_middleware"):
        LoggingObserver()(EVENT)
    assert not caplog.records


def test_an_event_that_nobody_hears_is_not_even_made(caplog: pytest.LogCaptureFixture) -> None:
    """Most requests happen while nobody looks."""
    heard: list[Event] = []
    quiet = Runtime(MemoryStore(), Options())
    watched = Runtime(MemoryStore(), Options(observers=(heard.append,)))
    with caplog.at_level(logging.INFO, "idem_middleware"):
        quiet.tell(EventKind.CLAIMED, None, no_such_field=1)
        quiet.tell(EventKind.BYPASSED, None)
        watched.tell(EventKind.CLAIMED, None)
    assert [record.getMessage() for record in caplog.records] == ["idempotency bypassed"]
    assert [event.kind for event in heard] == ["claimed"]


def test_another_logger_can_be_given(caplog: pytest.LogCaptureFixture) -> None:
    """For those who have their own names."""
    with caplog.at_level(logging.DEBUG, "audit"):
        LoggingObserver(logging.getLogger("audit"))(EVENT)
    assert [record.name for record in caplog.records] == ["audit"]


def test_an_observer_that_raises_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """The others are told, and the error is logged."""
    seen: list[Event] = []

    def broken(event: Event) -> None:
        raise LookupError(event.kind)

    with caplog.at_level(logging.ERROR, "idem_middleware"):
        emit((broken, seen.append), EVENT)
    assert seen == [EVENT]
    assert "an observer failed on the event refused" in caplog.text


def test_observers_that_log_to_one_place_are_one() -> None:
    """So that what a store says is written once, however many engines it serves."""
    other = logging.getLogger("another")
    assert len({LoggingObserver(), LoggingObserver(), LoggingObserver(other)}) == 2
    assert LoggingObserver() != "a logger"


@pytest.mark.parametrize(
    ("kind", "name"), [(EventKind.CLAIMED, "DEBUG"), (EventKind.BYPASSED, "WARNING"), (EventKind.STORE_FAILED, "ERROR")]
)
def test_an_event_s_level_has_a_name(kind: EventKind, name: str) -> None:
    """For the documentation."""
    assert level_of(kind) == name
