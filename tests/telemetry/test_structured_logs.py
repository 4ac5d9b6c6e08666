"""Events in the formats that log pipelines read: JSON made from `extra`, and structlog."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from idem_middleware import Engine, Event, EventKind, LoggingObserver, MemoryStore, Options

THROTTLED = Event(
    kind=EventKind.STORE_FAILED, key_digest="0123456789ab", reason="renewal", dynamo_error_code="Throttled"
)


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def handler(stream: io.StringIO) -> Iterator[logging.Handler]:
    """A handler of a logger of the test's own."""
    handler = logging.StreamHandler(stream)
    target = logging.getLogger("tests.structured")
    target.addHandler(handler)
    target.setLevel(logging.DEBUG)
    target.propagate = False
    yield handler
    target.removeHandler(handler)


OBSERVER = LoggingObserver(logging.getLogger("tests.structured"))


class JsonFormatter(logging.Formatter):
    """What formatters for JSON do: every attribute that a plain record has not is a field."""

    _PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message"}

    def format(self, record: logging.LogRecord) -> str:
        extra = {name: value for name, value in vars(record).items() if name not in self._PLAIN}
        return json.dumps({"message": record.getMessage(), **extra})


def test_a_json_formatter_gets_every_field(handler: logging.Handler, stream: io.StringIO) -> None:
    """As values, under the same names on every line."""
    handler.setFormatter(JsonFormatter())
    OBSERVER(THROTTLED)
    assert json.loads(stream.getvalue()) == {
        "message": "idempotency store_failed key_digest=0123456789ab reason=renewal dynamo_error_code=Throttled",
        "idempotency_event": "store_failed",
        "idempotency_key_digest": "0123456789ab",
        "idempotency_reason": "renewal",
        "dynamo_error_code": "Throttled",
    }


def test_structlog_gets_every_field(handler: logging.Handler, stream: io.StringIO) -> None:
    """With its formatter for the standard library, and ExtraAdder."""
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_log_level, structlog.stdlib.ExtraAdder()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    OBSERVER(THROTTLED)
    written = json.loads(stream.getvalue())
    assert (written["level"], written["idempotency_event"]) == ("error", "store_failed")
    assert (written["dynamo_error_code"], written["idempotency_reason"]) == ("Throttled", "renewal")


def test_what_a_store_says_is_logged_once_however_many_engines_it_serves() -> None:
    """Two logging observers of one logger are one."""

    class Talking(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.observers: list[object] = []

        def subscribe(self, observer: object) -> None:
            if observer not in self.observers:
                self.observers.append(observer)

    store = Talking()
    for namespace in ("a", "b"):
        Engine(store, Options(namespace=namespace))
    assert store.observers == [LoggingObserver()]
    assert {LoggingObserver(), LoggingObserver()} == {LoggingObserver()}
    assert LoggingObserver() != OBSERVER
    assert LoggingObserver() != print
