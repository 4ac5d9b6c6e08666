"""The fingerprint: it changes with everything that a request says, and with nothing else."""

from __future__ import annotations

import enum
import hashlib
import hmac
from collections import OrderedDict
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import combinations
from types import MappingProxyType
from typing import TypedDict, Unpack
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idem_middleware.body import SPOOL_BYTES, RequestBody
from idem_middleware.canonical.json import canonical_json, load_json_lossless
from idem_middleware.canonical.multipart import multipart_digest
from idem_middleware.canonical.query import canonical_query
from idem_middleware.fingerprint import FINGERPRINT_VERSION, canonical_value, fingerprints


class Changes(TypedDict, total=False):
    """What a test changes of the request below."""

    method: str
    path: str
    query: str
    content_type: str | None
    body: bytes
    headers: list[tuple[str, str]]
    secret: bytes | None
    payload: bytes | None


def of(**changes: Unpack[Changes]) -> bytes:
    """Fingerprint of a payment, with changes."""
    (print_,) = fingerprints(
        (changes.get("secret"),),
        method=changes.get("method", "POST"),
        path=changes.get("path", "/v1/payments"),
        query=changes.get("query", "a=1&b=2"),
        content_type=changes.get("content_type", "application/json"),
        body=RequestBody.from_bytes(changes.get("body", b'{"amount":12,"to":"x"}')),
        headers=changes.get("headers", []),
        payload=changes.get("payload"),
    )
    return print_


def test_a_fingerprint_is_a_version_and_a_digest() -> None:
    """33 bytes, the first of which says how the others were made."""
    assert len(of()) == len(of(secret=b"s")) == 33
    assert of()[0] == of(secret=b"s")[0] == FINGERPRINT_VERSION == 1


def test_a_fingerprint_never_changes() -> None:
    """Records outlive deployments: a change of these needs another version."""
    assert of().hex() == "01fdf2f403f3f6b2de44d178e3936cd7de9fff2e7368e869c00299cf4f5c8922d9"
    assert (
        of(secret=b"secret", headers=[("stripe-version", "1")]).hex()
        == "015e3709654ad836c3e53e076b08cebf268b80c02d11a4d2a743d1cc47e2f60470"
    )
    assert (
        of(content_type="text/plain", query="").hex()
        == "017a6509e7463d9fe3603c807ecd6feff3f4cf00c8cb85b97336d3d5b632769e41"
    )


def laid_out(*fields: bytes) -> bytes:
    """The digest of these fields, each with its length in front."""
    written = b"".join(len(field).to_bytes(8, "big") + field for field in fields)
    return b"\x01" + hashlib.sha256(b"idem-middleware request\0" + written).digest()


def test_a_fingerprint_is_of_fields_with_their_lengths_and_of_nothing_else() -> None:
    """Method, path, query, media type, the form of what stands for the body, that, and chosen headers by name."""
    head = (b"POST", b"/v1/payments", canonical_query("a=1&b=2"))
    json = canonical_json(b'{"amount":12,"to":"x"}')
    assert json is not None
    assert of() == laid_out(*head, b"application/json", b"json", json)
    assert of(payload=b"p") == laid_out(*head, b"application/json", b"payload", b"p")
    text = hashlib.sha256(b"x").digest()
    assert of(content_type="text/plain", body=b"x") == laid_out(*head, b"text/plain", b"as sent", text)
    assert of(content_type=None, body=b"x") == laid_out(*head, b"", b"as sent", text)
    parts = multipart_digest([form("one").get("body", b"")], b"one")
    assert parts is not None
    assert of(**form("one")) == laid_out(*head, b"multipart/form-data", b"multipart", parts)
    headers = [("b", "1"), ("a", "2"), ("b", "3")]
    assert of(payload=b"", headers=headers) == laid_out(
        *head, b"application/json", b"payload", b"", b"a", b"2", b"b", b"1", b"b", b"3"
    )


DIFFERENT: dict[str, Changes] = {
    "as it was": {},
    # Method and concrete path are bound (nensii21/devlink#1195, RamaAditya49/titen#37, LabsCrypt/remitlend#1680).
    "method": {"method": "PUT"},
    "path": {"path": "/v1/payments/"},
    "path, in other letters": {"path": "/V1/payments"},
    "path, spelled otherwise": {"path": "/v1/%70ayments"},
    # The query is bound (pathosDev/actor-ts#609, theam/facility#196).
    "query": {"query": "a=1&b=3"},
    "no query": {"query": ""},
    "media type": {"content_type": "application/vnd.api+json"},
    "no media type": {"content_type": None},
    "no type": {"content_type": "/json"},
    "a type of one letter": {"content_type": "X/json"},
    "form": {"content_type": "application/x-www-form-urlencoded"},
    # The body is bound, whatever its type, and nothing is not {} (ikyriak/IdempotentAPI#58).
    "body": {"body": b'{"amount":13,"to":"x"}'},
    "body, empty": {"body": b""},
    "body, {}": {"body": b"{}"},
    "body, null": {"body": b"null"},
    "body, as text": {"content_type": "text/plain"},
    "body, other text": {"content_type": "text/plain", "body": b"x"},
    "body, no text": {"content_type": "text/plain", "body": b""},
    "header": {"headers": [("stripe-version", "1")]},
    "header, other value": {"headers": [("stripe-version", "2")]},
    "header, empty": {"headers": [("stripe-version", "")]},
    "header, other name": {"headers": [("stripe-account", "1")]},
    "header, twice": {"headers": [("stripe-version", "1"), ("stripe-version", "2")]},
    "header, twice, turned": {"headers": [("stripe-version", "2"), ("stripe-version", "1")]},
    "secret": {"secret": b"one"},
    "other secret": {"secret": b"two"},
    "payload": {"payload": b"x"},
    "payload, empty": {"payload": b""},
    "payload, like the body's form": {"payload": b'{"amount":"\\u000012","to":"x"}'},
}


@pytest.mark.parametrize(("one", "other"), list(combinations(DIFFERENT, 2)))
def test_every_component_counts(one: str, other: str) -> None:
    """There is no part of a request whose change goes unseen (ikyriak/IdempotentAPI#58)."""
    assert of(**DIFFERENT[one]) != of(**DIFFERENT[other])


MULTIPART = (
    b"--%(b)s\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n"
    b"--%(b)s\r\nContent-Disposition: form-data; name=b\r\n\r\n2\r\n--%(b)s--\r\n"
)


def form(boundary: str, content_type: str = "multipart/form-data; boundary={}", data: bytes = MULTIPART) -> Changes:
    """Send a form of two fields under a boundary."""
    return {"content_type": content_type.format(boundary), "body": data % {b"b": boundary.strip('"').encode()}}


SAME: dict[str, tuple[Changes, Changes]] = {
    "order of the query": ({"query": "a=1&b=2"}, {"query": "b=2&a=1"}),
    "encoding of the query": ({"query": "a=x"}, {"query": "a=%78"}),
    "no media type, and an empty one": ({"content_type": None}, {"content_type": ""}),
    "white space around the media type": ({}, {"content_type": "\t application/json \t;a=b"}),
    "parameters of the media type": ({}, {"content_type": "Application/JSON; charset=UTF-8"}),
    "layout of JSON": ({}, {"body": b'{ "to": "\\u0078", "amount": 12 }'}),
    "layout of +json": (
        {"content_type": "application/merge-patch+json", "body": b'{"a":1,"b":2}'},
        {"content_type": "application/Merge-Patch+JSON;x=y", "body": b'{"b":2, "a":1}'},
    ),
    "boundary": (form("one"), form("two-2")),
    "boundary, quoted": (form("one"), form('"a b"')),
    "boundary, of another multipart": (
        form("one", "multipart/mixed; boundary={}"),
        form("two", "Multipart/Mixed; charset=x; BOUNDARY={}"),
    ),
    "order of headers of different names": (
        {"headers": [("a", "1"), ("b", "2"), ("a", "3")]},
        {"headers": [("b", "2"), ("a", "1"), ("a", "3")]},
    ),
    "body, beside a payload": ({"payload": b"p", "body": b"1"}, {"payload": b"p", "body": b"2"}),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_spelling_does_not_count(one: Changes, other: Changes) -> None:
    """A client library's choices make no other request (aws-powertools/powertools-lambda-typescript#2120)."""
    assert of(**one) == of(**other)


AS_SENT: dict[str, tuple[Changes, Changes]] = {
    "JSON as text": (
        {"content_type": "text/plain", "body": b'{"a":1,"b":2}'},
        {"content_type": "text/plain", "body": b'{"b":2,"a":1}'},
    ),
    "urlencoded": (
        {"content_type": "application/x-www-form-urlencoded", "body": b"a=1&b=2"},
        {"content_type": "application/x-www-form-urlencoded", "body": b"b=2&a=1"},
    ),
    "no media type": ({"content_type": None, "body": b"[1]"}, {"content_type": None, "body": b"[1] "}),
    "JSON with duplicates": ({"body": b'{"a":1,"a":2}'}, {"body": b'{"a":2,"a":1}'}),
    "broken JSON": ({"body": b'{"a":1'}, {"body": b'{"a":1 '}),
    "JSON that is not UTF-8": ({"body": b'"\xff"'}, {"body": b'"\xfe"'}),
    "deep JSON": ({"body": b"[" * 20000 + b"]" * 20000}, {"body": b"[" * 20001 + b"]" * 20001}),
    "large JSON": ({"body": b"[" + b" " * SPOOL_BYTES + b"]"}, {"body": b" [" + b" " * SPOOL_BYTES + b"]"}),
    "broken multipart": (form("one", data=MULTIPART[:-10]), form("two", data=MULTIPART[:-10])),
    "multipart without a boundary": (form("one", "multipart/form-data"), form("two", "multipart/form-data")),
    "multipart with a foreign boundary": (form("one", "multipart/form-data; boundary=€"), form("two", "multipart/x")),
}


@pytest.mark.parametrize(("one", "other"), AS_SENT.values(), ids=AS_SENT)
def test_everything_else_is_compared_as_sent(one: Changes, other: Changes) -> None:
    """Without a canonical form every byte counts, and the same bytes are the same request."""
    assert of(**one) != of(**other)
    assert of(**one) == of(**one)
    assert of(**other) == of(**other)


@pytest.mark.parametrize("content_type", ["multipart/form-data", "multipart/form-data; boundary=\u20ac"])
def test_a_form_whose_boundary_is_not_told_is_compared_as_sent(content_type: str) -> None:
    """None is guessed, whatever the body looks like."""
    sent = form("XXXX", content_type)
    body = hashlib.sha256(sent.get("body", b"")).digest()
    head = (b"POST", b"/v1/payments", canonical_query("a=1&b=2"), b"multipart/form-data")
    assert of(**sent) == laid_out(*head, b"as sent", body)


def test_no_form_of_a_body_imitates_another() -> None:
    """The canonical form, the parts' digest or the body's digest sent as a body is another body."""
    document = b'{"b":1,"a":2}'
    digests = {of(body=document), of(body=hashlib.sha256(document).digest()), of(payload=document)}
    digests |= {of(payload=hashlib.sha256(document).digest()), of(body=b'{"a":"\\u00002","b":"\\u00001"}')}
    assert len(digests) == 5


def test_how_the_body_arrived_does_not_count() -> None:
    """In one chunk or many, in memory or in a file."""
    data = b"x" * (SPOOL_BYTES + 5)
    chunked = RequestBody()
    for start in range(0, len(data), 70_001):
        chunked.write(data[start : start + 70_001])
    with chunked:
        assert chunked.in_memory() is None
        (found,) = fingerprints((None,), method="POST", path="/", query="", content_type="text/plain", body=chunked)
    assert found == of(path="/", query="", content_type="text/plain", body=data)


def test_a_secret_makes_it_an_hmac() -> None:
    """Who reads the table cannot try out bodies; the empty secret is a secret, not none."""
    assert of(secret=b"") != of()
    assert of(secret=b"one") == of(secret=b"one")
    assert hmac.compare_digest(of(secret=b"k" * 100), of(secret=b"k" * 100))


TEXT = st.text(max_size=3)
HEADERS = st.lists(st.tuples(st.sampled_from(["a", "b"]), TEXT), max_size=2)
QUERIES = st.sampled_from(["", "a=1", "b"])
COMPONENTS = st.tuples(TEXT, TEXT, QUERIES, st.sampled_from([None, "a/b"]), st.binary(max_size=3), HEADERS)
Components = tuple[str, str, str, str | None, bytes, list[tuple[str, str]]]


@given(COMPONENTS, COMPONENTS)
def test_equal_fingerprints_mean_equal_requests(one: Components, other: Components) -> None:
    """No component runs into the next one, whatever characters are in it."""
    found = [
        of(method=method, path=path, query=query, content_type=content_type, body=body, headers=headers)
        for method, path, query, content_type, body, headers in (one, other)
    ]
    comparable = [(*parts[:5], sorted(parts[5], key=lambda header: header[0])) for parts in (one, other)]
    assert (found[0] == found[1]) is (comparable[0] == comparable[1])


@given(TEXT, TEXT, st.text(), st.none() | st.text(), st.binary())
def test_no_request_is_an_error(method: str, path: str, query: str, content_type: str | None, body: bytes) -> None:
    """Whatever a server hands over has a fingerprint."""
    for prefix in ("", "application/json;", "multipart/form-data; boundary="):
        media_type = None if content_type is None else prefix + content_type
        assert len(of(method=method, path=path, query=query, content_type=media_type, body=body)) == 33


@dataclass
class Refund:
    """One thing to do."""

    order: str
    amount: Decimal


@dataclass
class Charge:
    """Another, of the same fields."""

    order: str
    amount: Decimal


class Model:
    """Looks like a pydantic model."""

    def __init__(self, **members: object) -> None:
        self.members = members

    def model_dump(self) -> dict[str, object]:
        """Give the fields."""
        return self.members


class Halfway:
    """Has what a model has, under another meaning."""

    model_dump = "secret"


class Colour(enum.StrEnum):
    """A string under a name."""

    RED = "red"


class Plain(enum.Enum):
    """Neither string nor number."""

    A = 1


NOON = datetime(2025, 1, 2, 12)  # noqa: DTZ001 - a naive one is meant
VALUES: list[object] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    10**5000,
    0.0,
    -0.0,
    1.0,
    1.5,
    float("inf"),
    Decimal(1),
    Decimal("1.0"),
    Decimal("1.00"),
    "",
    "1",
    "a",
    "null",
    "\ud800",
    "\udfff",
    b"",
    b"1",
    b"a",
    UUID(int=1),
    str(UUID(int=1)),
    UUID(int=1).bytes,
    NOON,
    NOON.isoformat(),
    NOON.date(),
    NOON.replace(tzinfo=timezone.utc),  # noqa: UP017
    NOON.replace(tzinfo=timezone(timedelta(hours=1))),
    [],
    [[]],
    [[], []],
    [None],
    [1, 2],
    [2, 1],
    ["1", "2"],
    ["1,2"],
    ["1:0:2"],
    [1, [2]],
    {},
    [{}],
    {"a": None},
    {"a": 1},
    ["a", 1],
    {"a": {"b": 1}},
    {"a": [], "b": 1},
    {"a": ["b", 1]},
    {"b": {"a": 1}},
    {"": 1},
    Refund("1", Decimal(5)),
    Charge("1", Decimal(5)),
    Refund("1", Decimal(6)),
    {"order": "1", "amount": Decimal(5)},
    [("order", "1"), ("amount", Decimal(5))],
    Model(a=1),
    Model(a=2),
    *(load_json_lossless(literal) for literal in (b"1.0", b"1e0", b"-0", b"-0.0", b"1.50", b"1" * 301)),
]


def test_different_values_are_written_differently() -> None:
    """No value imitates another one, of its own type or not."""
    written = [canonical_value(value) for value in VALUES]
    imitations = [written[n] for n in range(len(written)) if written.index(written[n]) != n]
    assert not imitations


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": 1}, OrderedDict(a=1)),
        ({"a": 1}, MappingProxyType({"a": 1})),
        ([1, "a"], (1, "a")),
        (b"a", bytearray(b"a")),
        (b"a", memoryview(b"a")),
        ("red", Colour.RED),
        (Refund("1", Decimal(5)), Refund("1", Decimal(5))),
        (Model(a=1, b=2), Model(b=2, a=1)),
        (date(2025, 1, 2), NOON.date()),
        ({"a": 1, "b": [1, None]}, load_json_lossless(b'{"b":[1,null],"a":1}')),
    ],
)
def test_the_same_value_is_written_the_same(one: object, other: object) -> None:
    """The order of members and the kind of container do not count."""
    assert canonical_value(one) == canonical_value(other)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (object(), "object"),
        ({1, 2}, "set"),
        ([lambda: None], "function"),
        ({"a": {"secret": 1j}}, "complex"),
        ({1: "a"}, "int"),
        ({"a": 1, None: "secret"}, "NoneType"),
        (Refund, "type"),
        (Model, "type"),
        (Plain.A, "Plain"),
        (Model(secret=object()), "object"),
        (Halfway(), "Halfway"),
    ],
)
def test_any_other_type_is_refused_by_name(value: object, kind: str) -> None:
    """The message names the type and never the value."""
    with pytest.raises(TypeError, match=rf"\b{kind}\b") as error:
        canonical_value(value)
    assert "secret" not in str(error.value)


def test_a_value_that_holds_itself_is_refused() -> None:
    """Depth has a limit, far above that of a JSON document and without using the stack."""
    endless: list[object] = []
    endless += [endless, endless]
    with pytest.raises(ValueError, match="nested deeper"):
        canonical_value(endless)
    deepest = load_json_lossless(b"[" * 200 + b"]" * 200)
    for _ in range(52):
        assert canonical_value(deepest)
        deepest = [deepest]
    with pytest.raises(ValueError, match="nested deeper than 250"):
        canonical_value(deepest)


def test_written_values_never_change() -> None:
    """Fingerprints outlive deployments."""
    assert canonical_value({"b": [1, "x"], "a": None}) == (
        b"object0:4:str1:0:anull0:0:str1:0:blist0:2:int1:0:1str1:0:x"
    )
    for value, written in [
        (True, b"bool1:0:1"),
        (False, b"bool1:0:0"),
        (-255, b"int3:0:-ff"),
        (load_json_lossless(b"1.50"), b"literal4:0:1.50"),
        (1.5, b"float3:0:1.5"),
        (Decimal("1.50"), b"decimal4:0:1.50"),
        (b"a:", b"bytes2:0:a:"),
        (bytearray(b"a"), b"bytes1:0:a"),
        (memoryview(b"a"), b"bytes1:0:a"),
        (UUID(int=1), b"uuid16:0:" + b"\0" * 15 + b"\1"),
        (NOON, b"datetime19:0:2025-01-02T12:00:00"),
        (NOON.date(), b"date10:0:2025-01-02"),
        ((), b"list0:0:"),
        (Refund("1", Decimal(5)), b"dataclass6:2:Refundlist0:2:str5:0:orderstr1:0:1list0:2:str6:0:amountdecimal1:0:5"),
        (Model(a=1), b"model5:1:Modelobject0:2:str1:0:aint1:0:1"),
    ]:
        assert canonical_value(value) == written, value


def test_a_path_that_selects_the_document_many_times_over_is_bounded() -> None:
    """The operator writes the path, the client the document."""
    value: object = "x" * 1024
    for _ in range(20):
        value = [value, value]  # a million times the text, in twenty lists
    with pytest.raises(ValueError, match="larger than"):
        canonical_value(value)


def test_what_is_written_of_a_value_has_sixteen_megabytes_at_most() -> None:
    """Before the next part of it is looked at."""
    largest = 16 * 1024 * 1024 - len(b"list0:2:bytes16777192:0:")
    assert len(canonical_value([b"x" * largest, None])) == 16 * 1024 * 1024 + len(b"null0:0:")
    with pytest.raises(ValueError, match="larger than 16777216 bytes"):
        canonical_value([b"x" * (largest + 1), None])
