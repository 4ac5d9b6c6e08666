"""Whatever somebody writes into the table, nothing that was done is done again, and no header is made of it."""

from __future__ import annotations

import zlib
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idem_middleware import Engine, MemoryStore, Options
from idem_middleware.messages import Request, Response
from idem_middleware.records import Record
from idem_middleware.stores.base import Found, Gone, Written
from idem_middleware.stores.dynamodb.items import Item, item_of, record_of
from tests.fuzz.wire import EXAMPLES

BOMB = zlib.compress(b"\0" * 64 * 1024 * 1024, 9)


class Table(MemoryStore):
    """Keeps items as DynamoDB does, and reads them back as the store on DynamoDB does."""

    inline_bytes = 3072  # type: ignore[assignment]  # the memory store has no bound

    def __init__(self) -> None:
        super().__init__()
        self.items: dict[str, Item] = {}

    def create(self, new: Record, deadline: float) -> Written | Found:
        if new.pk in self.items:
            return Found(record_of(self.items[new.pk], new.pk))
        self.items[new.pk] = item_of(new)
        return Written()

    def swap(self, old: Record, new: Record, deadline: float) -> Written | Found | Gone:
        found = record_of(self.items[old.pk], old.pk)
        if (found.version, found.owner, found.status) != (old.version, old.owner, old.status):
            return Found(found)
        self.items[old.pk] = item_of(new)
        return Written()

    def load(self, pk: str, deadline: float) -> Found | Gone:
        return Found(record_of(self.items[pk], pk)) if pk in self.items else Gone()


class Service:
    """One engine, whose handler counts, and one request, carried out already."""

    def __init__(self) -> None:
        self.table = Table()
        self.runs = 0
        self.engine = Engine(self.table, Options(caller="shared", max_response_bytes=100_000))
        self.send()

    def handle(self, lease: object) -> Response:
        self.runs += 1
        return Response(201, (("X-Answer", "1"), ("Location", "/orders/1")), b"done")

    def send(self) -> Response:
        """The request, again."""
        return self.engine.run(Request(method="POST", path="/orders", headers=(("idempotency-key", "k"),)), self.handle)

    @property
    def item(self) -> Item:
        """What lies in the table."""
        [item] = self.table.items.values()
        return item

    @property
    def response(self) -> Any:
        """The answer in it."""
        return self.item["response"]["M"]


def refused_or_replayed(service: Service) -> Response:
    """Send the request once more; it does not run."""
    answer = service.send()
    assert service.runs == 1
    for name, value in answer.headers:
        assert not set("\r\n\0") & set(name + value)
    return answer


_SCALARS = st.one_of(
    st.builds(lambda text: {"S": text}, st.text(max_size=30) | st.sampled_from(("a\r\nX: y", "z" * 2_000))),
    st.builds(
        lambda text: {"N": text},
        st.integers().map(str) | st.sampled_from(("1E+125", "1E-130", "9" * 38, "0.5", "-0", "NaN", "Infinity", "x")),
    ),
    st.builds(lambda data: {"B": data}, st.binary(max_size=40)),
    st.sampled_from(
        ({"BOOL": True}, {"NULL": True}, {"SS": ["a"]}, {"NS": ["1"]}, {}, {"S": 1}, {"N": 1}, None, [], 7)
    ),
)
_ATTRIBUTES: st.SearchStrategy[Any] = st.recursive(
    _SCALARS,
    lambda inner: (
        st.builds(lambda values: {"L": values}, st.lists(inner, max_size=4))
        | st.builds(
            lambda values: {"M": values},
            st.dictionaries(
                st.sampled_from(("status", "headers", "encoding", "body", "chunks", "omitted", "reason", "location")),
                inner,
                max_size=5,
            ),
        )
    ),
    max_leaves=8,
)
# Who sets a key free by its times says that it is free: nothing could tell that from the truth.
_MEANING = ("status", "version", "owner", "attempt", "fingerprint", "created_at", "response", "checkpoint", "schema")


@settings(max_examples=10 * EXAMPLES, deadline=None)
@given(st.dictionaries(st.sampled_from(_MEANING), _ATTRIBUTES, min_size=1, max_size=3))
def test_any_attribute_may_hold_anything(spoiled: dict[str, Any]) -> None:
    """Of any type, and of any size: the request is refused, or gets what is recorded as its answer."""
    service = Service()
    before = deepcopy(service.item)
    service.item.update(spoiled)
    status: Any = service.item["status"]
    if isinstance(status, dict) and status.get("S") in ("FAILED", "PENDING"):
        return  # it says itself that it may run again
    refused_or_replayed(service)
    service.table.items[before["pk"]["S"]] = before
    assert refused_or_replayed(service).status == 201


@pytest.mark.parametrize("name", [*_MEANING, "expires_at", "bound_until", "ttl", "pk"])
def test_any_attribute_may_be_missing(name: str) -> None:
    """Never a crash, and never a second run."""
    service = Service()
    service.item.pop(name, None)
    refused_or_replayed(service)


@pytest.mark.parametrize("name", ["expires_at", "bound_until"])
@pytest.mark.parametrize("instant", ["1", "1.5", "86400"])
def test_a_time_before_the_claim_is_damage(name: str, instant: str) -> None:
    """No record ends before it began; a time from another epoch sets no key free of which work was done."""
    service = Service()
    service.item[name] = {"N": instant}
    refused_or_replayed(service)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Transfer-Encoding", "chunked"),
        ("Content-Length", "1"),
        ("Connection", "close"),
        ("Upgrade", "h2c"),
        ("Trailer", "X"),
        ("Keep-Alive", "timeout=5"),
        ("Set-Cookie", "session=planted"),
        ("Access-Control-Allow-Origin", "https://evil.example"),
    ],
)
def test_a_header_that_we_never_keep_is_never_replayed(name: str, value: str) -> None:
    """What frames a message or opens a session can only have been planted."""
    service = Service()
    service.response["headers"]["L"] += [{"S": name}, {"S": value}]
    assert (name.lower(), value) not in [(n.lower(), v) for n, v in refused_or_replayed(service).headers]


@pytest.mark.parametrize("status", [100, 101, 103, 199])
def test_an_interim_status_is_no_answer(status: int) -> None:
    """A client would wait for the final one for ever, or take the connection for another protocol's."""
    service = Service()
    service.response["status"] = {"N": str(status)}
    assert refused_or_replayed(service).status == 409


def test_a_planted_body_can_not_fill_the_memory() -> None:
    """What inflates to more than was ever kept is damage."""
    service = Service()
    service.response["encoding"] = {"S": "deflate"}
    service.response["body"] = {"B": BOMB}
    answer = refused_or_replayed(service)
    assert answer.status == 409
    assert len(answer.body) < 10_000


@pytest.mark.parametrize("reason", ["key-missing", "in-progress", "retry-later", "store-unavailable", "no such reason"])
def test_a_reason_that_we_never_write_invites_nobody_to_retry(reason: str) -> None:
    """The work was done: no planted reason may say that it was not, or that it still runs."""
    service = Service()
    service.item["response"] = {"M": {"omitted": {"M": {"reason": {"S": reason}}}}}
    answer = refused_or_replayed(service)
    assert answer.status == 409
    assert b"record-unreadable" in answer.body or b"response-not-stored" in answer.body
