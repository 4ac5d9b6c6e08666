"""What the key's header may hold, through real servers: each has its own way with odd field lines."""

from __future__ import annotations

import pytest

from tests.servers.client import Service, is_replay
from tests.support.http import RawResponse

pytestmark = [pytest.mark.processes, pytest.mark.dynamodb_local, pytest.mark.thorough]

UUID = "8e03978e-40d5-43e8-bc93-6894a57f9324"
UUID_BY_LETTER = "a1b2c3d4-0000-4000-8000-000000000000"

# The value as it is sent, and the key that it is.
STRINGS = [
    (f'"{UUID}"', UUID),
    (f'"{UUID_BY_LETTER}"', UUID_BY_LETTER),
    ('"a b"', "a b"),
    ('" abc "', " abc "),
    ('  "abc"  ', "abc"),
    ('\t"abc"\t', "abc"),
    (r'"a\"b"', 'a"b'),
    (r'"a\\b"', r"a\b"),
    ('"abc";p=1', "abc"),
    ('"abc"; p=1', "abc"),
    ('"abc";p', "abc"),
    ('"' + "a" * 255 + '"', "a" * 255),
]
BARE = [UUID, UUID_BY_LETTER, "KG5LxwFBepaKHyUD", "123", "1.5", "order_1.2~a:/b+c=@d|e-"]
INVALID = {
    "boolean": "?1",
    "date": "@1659578233",
    "binary": ":aGVsbG8=:",
    "list": '("a")',
    "asterisk": "*abc",
    "empty": "",
    "only spaces": "   ",
    "empty string": '""',
    "bare with a space": "a b",
    "unknown escape": r'"a\nb"',
    "trailing backslash": '"abc\\',
    "no closing quote": '"abc',
    "no opening quote": 'abc"',
    "single quotes": "'abc'",
    "space before the parameter": '"abc" ;p=1',
    "upper-case parameter": '"abc";P=1',
    "dangling semicolon": '"abc";',
    "bare with a parameter": "abc;p=1",
    "two strings": '"a", "b"',
    "twice the same": '"a","a"',
    "two bare ones": "a,b",
    "two without a comma": '"x" "y"',
    "data after the string": '"x"junk',
    "UTF-8": '"caf\xc3\xa9"',
    "Latin-1": '"caf\xe9"',
    "display string": '%"caf%c3%a9"',
    "control character": '"a\x01b"',
    "delete": '"a\x7fb"',
    "tab inside": '"a\tb"',
    "too long": "a" * 256,
    "too long a string": '"' + "a" * 256 + '"',
}
# Servers end the request themselves.
NOT_HTTP = {"NUL": '"a\x00b"', "carriage return": '"a\rb"', "line feed": '"a\nb"'}


def sent(service: Service, *values: str, name: str = "Idempotency-Key") -> RawResponse:
    """Send these values, a field line for each, for a caller who has used no key before."""
    return service.send_raw(f"X-Tenant: {service.name}", *[f"{name}: {value}" for value in values], route="tenant")


def is_refused(answer: RawResponse, service: Service, kind: str = "key-invalid") -> None:
    """Refused by the product, or by the server before it; and nothing ran."""
    assert answer.status == 400
    if answer.all("content-type") == ["application/problem+json"]:
        assert kind.encode() in answer.body
    service.ran(0)


@pytest.mark.parametrize(("value", "key"), [*STRINGS, *((bare, bare) for bare in BARE)])
def test_a_valid_value_is_a_key(single_service: Service, value: str, key: str) -> None:
    """Quoted or bare: its record bears the key's name, and the same key in plain quotes finds it."""
    assert sent(single_service, value).status == 201
    assert single_service.record(key, caller=single_service.name) is not None

    quoted = '"' + key.replace("\\", r"\\").replace('"', r"\"") + '"'
    again = sent(single_service, quoted)
    assert (again.status, again.all("idempotent-replayed")) == (201, ["true"])
    single_service.ran(1)


@pytest.mark.parametrize("value", [f'"{UUID}"', f'"{UUID_BY_LETTER}"', f'"{UUID}"; p=1', f'  "{UUID}"  '])
def test_a_strict_server_takes_strings(demanding_service: Service, value: str) -> None:
    """As the draft has them; this one asks for UUIDs besides."""
    assert sent(demanding_service, value).status == 201
    demanding_service.ran(1)


@pytest.mark.parametrize("value", BARE)
def test_a_strict_server_takes_nothing_else(demanding_service: Service, value: str) -> None:
    """A raw UUID that begins with a letter is a token, one that begins with a digit is nothing."""
    is_refused(sent(demanding_service, value), demanding_service)


@pytest.mark.parametrize("value", INVALID.values(), ids=INVALID.keys())
def test_an_invalid_value_is_refused(single_service: Service, value: str) -> None:
    """It is not taken for a missing one, and is not repeated to whoever reads the answer.

    Sources: granit-fx/granit-dotnet#1151, KanishJebaMathewM/Truxify#15676.
    """
    answer = sent(single_service, value)
    is_refused(answer, single_service)
    if len(value) > len("two words"):
        assert value.encode("latin-1") not in answer.body


@pytest.mark.parametrize("value", NOT_HTTP.values(), ids=NOT_HTTP.keys())
def test_what_is_no_field_line_reaches_no_view(single_service: Service, value: str) -> None:
    """Whoever ends the request."""
    is_refused(sent(single_service, value), single_service)


def test_a_folded_line_is_one_key_or_none(single_service: Service) -> None:
    """Servers that still take the obsolete form make a space of the fold."""
    answer = sent(single_service, '"a\r\n b"')
    if answer.status == 201:
        assert single_service.record("a b", caller=single_service.name) is not None
    else:
        is_refused(answer, single_service)


@pytest.mark.parametrize("values", [('"a"', '"b"'), ('"a"', '"a"'), ("a", "a"), ("a", "b")])
def test_two_lines_are_refused(single_service: Service, values: tuple[str, str]) -> None:
    """Whether the server shows both or joins them."""
    is_refused(sent(single_service, *values), single_service)


def test_two_halves_make_no_key_unless_the_server_joins_them(single_service: Service) -> None:
    """Then it can't be told from one line, and harms nobody."""
    answer = sent(single_service, '"foo', 'bar"')
    if answer.status == 201:
        assert single_service.record("foo,bar", caller=single_service.name) is not None
    else:
        is_refused(answer, single_service)


def test_case_makes_another_key(single_service: Service) -> None:
    """Keys are compared as they are."""
    for value in ("ABC", "abc"):
        answer = sent(single_service, value)
        assert (answer.status, answer.all("idempotent-replayed")) == (201, [])
    single_service.ran(2)


def test_an_underscore_makes_another_header(single_service: Service) -> None:
    """It is not the key's, although WSGI has one name for both."""
    is_refused(sent(single_service, "x", name="Idempotency_Key"), single_service, "key-missing")


def test_the_headers_name_is_known_in_any_case(single_service: Service) -> None:
    """As that of any header."""
    first = single_service.send(headers={"idempotency-KEY": single_service.key}, key=None)
    assert first.status_code == 201
    is_replay(single_service.send(), first)
