"""What comes over the wire means the same, whichever transport carries it."""

from __future__ import annotations

import gc
import json
import weakref
from base64 import b64encode
from collections.abc import Mapping
from email.utils import formatdate
from typing import Any

import pytest

from idem_middleware.errors import StoreMisconfigured, StoreUnavailable
from idem_middleware.records import Record, Status
from idem_middleware.stores.base import Found, Gone, Written
from idem_middleware.stores.dynamodb import transport as transport_module
from idem_middleware.stores.dynamodb.items import chunk_item, chunk_pk, item_of
from idem_middleware.stores.dynamodb.transport import keep_from_closing
from tests.stores.conftest import OpenStore
from tests.stores.records import LARGE_ANSWER, NOW, SMALL_ANSWER, after, pending, soon
from tests.stores.servers import HANG_UP, Reply, scripted_server

PK = "0123456789abcdef" * 4
CLAIM = pending(PK)
DONE = after(CLAIM, status=Status.COMPLETED, response=SMALL_ANSWER, checkpoint=b"\x00paid")

NAME_SPACE = "com.amazonaws.dynamodb.v20120810#"


def on_the_wire(item: Mapping[str, Any]) -> Any:
    """An item as DynamoDB sends it: bytes in base64."""
    return json.loads(json.dumps(item, default=lambda value: b64encode(value).decode()))


def failure(code: str, message: str = "", *, status: int = 400, **members: Any) -> Reply:
    """An answer that is an error."""
    return Reply(status, {"__type": NAME_SPACE + code, "message": message, **members})


def stands_there(record: Record) -> Reply:
    """The answer to a write whose condition did not hold."""
    return failure(
        "ConditionalCheckFailedException", "The conditional request failed", Item=on_the_wire(item_of(record))
    )


class TestAnswers:
    """Those that are none of a fault."""

    def test_a_write_is_written(self, open_store: OpenStore) -> None:
        """One request, signed, to the root of the endpoint."""
        with scripted_server() as server:
            store = open_store(endpoint=server.url)
            assert store.create(CLAIM, soon(store)) == Written()
            (seen,) = server.seen
        assert seen.target == "/"
        assert seen.headers["x-amz-target"] == "DynamoDB_20120810.PutItem"
        assert seen.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=testing/")
        assert seen.headers["user-agent"].startswith("idem-middleware")
        assert seen.headers["accept-encoding"] == "identity"

    def test_all_transports_send_the_same(self, open_store: OpenStore) -> None:
        """Byte values in base64; the order of members alone may differ."""
        with scripted_server() as server:
            store = open_store(endpoint=server.url)
            store.swap(CLAIM, DONE, soon(store))
            sent = json.loads(server.seen[0].body)
        assert sent["TableName"] == "keys"
        assert sent["ExpressionAttributeValues"][":checkpoint"] == {"B": b64encode(b"\x00paid").decode()}
        assert sent["ExpressionAttributeValues"][":old_version"] == {"N": "1"}

    @pytest.mark.parametrize(
        "record", [CLAIM, DONE, after(DONE, response=LARGE_ANSWER)], ids=["claim", "body", "chunks"]
    )
    def test_a_failed_condition_brings_what_stands_there(self, open_store: OpenStore, record: Record) -> None:
        """Every attribute, bytes as bytes."""
        with scripted_server(stands_there(record)) as server:
            store = open_store(endpoint=server.url)
            assert store.create(CLAIM, soon(store)) == Found(record)

    def test_a_read_brings_the_record(self, open_store: OpenStore) -> None:
        """The same by GetItem."""
        with scripted_server(Reply(content={"Item": on_the_wire(item_of(DONE))})) as server:
            store = open_store(endpoint=server.url)
            assert store.load(PK, soon(store)) == Found(DONE)

    def test_a_read_of_nothing_is_gone(self, open_store: OpenStore) -> None:
        """DynamoDB leaves the item out."""
        with scripted_server() as server:
            store = open_store(endpoint=server.url)
            assert store.load(PK, soon(store)) == Gone()

    def test_a_batch_is_read_to_its_end(self, open_store: OpenStore) -> None:
        """What is left over is asked for again."""
        first = {
            "Responses": {"keys": [on_the_wire(chunk_item(CLAIM, 1, b"\xff1"))]},
            "UnprocessedKeys": {"keys": {"Keys": [{"pk": {"S": chunk_pk(CLAIM, 0)}}], "ConsistentRead": True}},
        }
        second = {"Responses": {"keys": [on_the_wire(chunk_item(CLAIM, 0, b"0"))]}, "UnprocessedKeys": {}}
        with scripted_server(Reply(content=first), Reply(content=second)) as server:
            store = open_store(endpoint=server.url)
            assert store.get_chunks(CLAIM, 2, soon(store)) == [b"0", b"\xff1"]

    def test_the_date_teaches_the_clock(self, open_store: OpenStore) -> None:
        """Of an error, too."""
        with scripted_server(
            Reply(400, {"__type": "x#InvalidSignatureException"}, {"date": formatdate(NOW, usegmt=True)}), Reply()
        ) as server:
            store = open_store(endpoint=server.url)
            with pytest.raises(StoreMisconfigured, match="clock"):
                store.load(PK, soon(store))
            assert abs(store.clock.now() - NOW) < 60

    def test_a_machine_with_a_wrong_clock_signs_right_from_its_second_request_on(
        self, open_lean_store: OpenStore
    ) -> None:
        """AWS takes no signature that is minutes off, and says what time it is when it refuses one."""
        with scripted_server(
            Reply(400, {"__type": "x#InvalidSignatureException"}, {"date": formatdate(NOW, usegmt=True)}), Reply()
        ) as server:
            store = open_lean_store(endpoint=server.url)
            with pytest.raises(StoreMisconfigured):
                store.load(PK, soon(store))
            store.load(PK, soon(store))
            assert server.seen[1].headers["x-amz-date"].startswith("20961002T07")

    def test_connections_are_kept(self, open_store: OpenStore) -> None:
        """One for a caller that asks for one thing after the other, failures among them."""
        with scripted_server(Reply(), stands_there(CLAIM), failure("ThrottlingException"), Reply()) as server:
            store = open_store(endpoint=server.url)
            for _ in range(4):
                store.create(CLAIM, soon(store))
            assert (server.connections, len(server.seen)) == (1, 5)


class TestFaults:
    """Those that are, and those that never came."""

    @pytest.mark.parametrize(
        "reply",
        [
            failure("ThrottlingException"),
            failure("ProvisionedThroughputExceededException"),
            failure("InternalServerError", status=500),
            failure("NeverHeardOf", status=503),
            Reply(503, b"<html><body>Service Unavailable</body></html>", {"content-type": "text/html"}),
            Reply(502, b""),
            Reply(429, b"slow down"),
            HANG_UP,
        ],
        ids=["throttled", "capacity", "internal", "unknown", "html", "empty", "text", "hung up"],
    )
    def test_what_passes_is_tried_again(self, open_store: OpenStore, reply: Reply) -> None:
        """Until it is answered."""
        with scripted_server(reply, reply, Reply()) as server:
            store = open_store(endpoint=server.url)
            assert store.create(CLAIM, soon(store)) == Written()
            assert len(server.seen) == 3

    @pytest.mark.parametrize(
        ("reply", "code"),
        [
            (failure("ThrottlingException"), "ThrottlingException"),
            (failure("InternalServerError", status=500), "InternalServerError"),
            (Reply(503, b"<html>"), "503"),
            (HANG_UP, "ConnectionClosedError"),
        ],
        ids=["throttled", "internal", "html", "hung up"],
    )
    def test_what_does_not_pass_is_told_by_its_code(self, open_store: OpenStore, reply: Reply, code: str) -> None:
        """The same code from all transports: alarms are set on them."""
        with scripted_server(reply) as server:
            store = open_store(endpoint=server.url)
            with pytest.raises(StoreUnavailable) as raised:
                store.create(CLAIM, store.clock.monotonic() - 1)
            assert (raised.value.code, len(server.seen)) == (code, 1)
        assert raised.value.__cause__ is not None

    @pytest.mark.parametrize(
        "code",
        ["AccessDeniedException", "ResourceNotFoundException", "ExpiredTokenException", "UnrecognizedClientException"],
    )
    def test_what_an_operator_must_mend_fails_at_once(self, open_store: OpenStore, code: str) -> None:
        """And says what to mend."""
        with scripted_server(failure(code, "SECRET")) as server:
            store = open_store(endpoint=server.url)
            with pytest.raises(StoreMisconfigured, match="keys") as raised:
                store.create(CLAIM, soon(store))
            assert (raised.value.code, len(server.seen)) == (code, 1)
        assert "SECRET" not in str(raised.value)

    def test_an_item_that_is_too_large_is_told_as_such(self, open_store: OpenStore) -> None:
        """By DynamoDB's words: it has no code for it."""
        message = "Item size to update has exceeded the maximum allowed size"
        with scripted_server(failure("ValidationException", message)) as server:
            store = open_store(endpoint=server.url)
            with pytest.raises(StoreUnavailable) as raised:
                store.swap(CLAIM, DONE, soon(store))
        assert raised.value.code == "ItemTooLarge"

    def test_a_redirect_is_not_followed(self, open_store: OpenStore) -> None:
        """A signed request is for one host."""
        with scripted_server(Reply(301, b"", {"location": "http://127.0.0.1:9/"})) as server:
            store = open_store(endpoint=server.url)
            with pytest.raises(StoreUnavailable) as raised:
                store.create(CLAIM, soon(store))
            assert (raised.value.code, len(server.seen)) == ("301", 1)


class TestDamage:
    """Answers that are not what they look like."""

    @pytest.mark.parametrize(
        "reply",
        [
            Reply(content=b"<html>log in to this network first</html>", headers={"content-type": "text/html"}),
            Reply(content=b""),
            Reply(content=b"\xff{}"),
            Reply(content={"Item": on_the_wire(item_of(CLAIM))}, is_cut=True),
            Reply(400, {"__type": NAME_SPACE + "ConditionalCheckFailedException"}, is_cut=True),
        ],
        ids=["html", "empty", "not utf-8", "cut", "an error, cut"],
    )
    def test_an_answer_that_can_not_be_read_is_none(self, open_store: OpenStore, reply: Reply) -> None:
        """Least of all one that says that nothing stands there, which botocore makes of it."""
        with scripted_server(reply, Reply(content={"Item": on_the_wire(item_of(CLAIM))})) as server:
            store = open_store(endpoint=server.url)
            assert store.load(PK, soon(store)) == Found(CLAIM)
            assert len(server.seen) == 2

    def test_pieces_of_a_body_that_can_not_be_read_are_not_missing(self, open_store: OpenStore) -> None:
        """They are asked for again."""
        pieces = {"Responses": {"keys": [on_the_wire(chunk_item(CLAIM, n, b"%d" % n)) for n in (0, 1)]}}
        with scripted_server(Reply(content=pieces, is_cut=True), Reply(content=pieces)) as server:
            store = open_store(endpoint=server.url)
            assert store.get_chunks(CLAIM, 2, soon(store)) == [b"0", b"1"]

    @pytest.mark.parametrize(
        "reply",
        [
            Reply(content=b"[]"),
            Reply(content={"Item": "none"}),
            Reply(content={"Item": {"pk": {"B": "!"}}}),
            Reply(content={"Item": {"pk": None}}),
            Reply(content={"Item": on_the_wire(item_of(CLAIM))}, is_damaged=True),
        ],
        ids=["list", "no item", "no base64", "null", "checksum"],
    )
    def test_a_damaged_answer_is_none(self, open_lean_store: OpenStore, reply: Reply) -> None:
        """boto3 takes some of them for an empty success."""
        with scripted_server(reply, Reply(content={"Item": on_the_wire(item_of(CLAIM))})) as server:
            store = open_lean_store(endpoint=server.url)
            assert store.load(PK, soon(store)) == Found(CLAIM)
            assert len(server.seen) == 2


def test_connections_of_a_parent_are_kept_and_never_closed() -> None:
    """Closing them would say goodbye on what the parent still uses."""

    class Connections:
        """Can be pointed at weakly."""

    connections = Connections()
    seen = weakref.ref(connections)
    keep_from_closing(connections)
    del connections
    gc.collect()
    kept = seen()
    assert kept is not None
    transport_module._inherited.remove(kept)
