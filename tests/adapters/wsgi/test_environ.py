"""From a WSGI environment to the engine's request."""

from __future__ import annotations

from typing import Any

import pytest

from idem_middleware.body import RequestBody
from idem_middleware.wsgi.environ import declared_length, key_lines, path_of, status_line, to_request
from tests.adapters.support.server import environ_of


def path_seen(**environ: Any) -> str:
    return to_request(environ_of(**environ), RequestBody(), None).path


@pytest.mark.parametrize("name", ["RAW_URI", "REQUEST_URI"])
@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/a%2Fb?x=1", "/a%2Fb"),
        ("/a//b", "/a//b"),
        ("//a/b", "//a/b"),
        ("http://shop.example/a%2Fb?x=1", "/a%2Fb"),
        ("HTTPS://shop.example:443?x=1", ""),
        ("http://[broken/a", "/a"),
    ],
)
def test_the_path_is_as_it_was_sent_where_the_server_tells(name: str, target: str, path: str) -> None:
    assert path_seen(**{name: target}) == path


def test_the_path_is_quoted_again_where_the_server_does_not_tell() -> None:
    assert path_seen(path="/ä".encode().decode("latin-1"), SCRIPT_NAME="/shop") == "/shop/%C3%A4"


def test_the_decoded_path_is_text_even_where_the_bytes_are_none() -> None:
    assert path_of(environ_of(path="/ä".encode().decode("latin-1"))) == "/ä"
    assert path_of(environ_of(path="/\xff")) == "/\ufffd"


def test_headers_come_by_their_names() -> None:
    environ = environ_of(body=b"{}", CONTENT_TYPE="application/json", HTTP_X_API_KEY="secret", SERVER_NAME="x")
    request = to_request(environ, RequestBody(), None)
    assert request.header("X-Api-Key") == "secret"
    assert request.header("Content-Type") == "application/json"
    assert request.header("Content-Length") == "2"
    assert request.header("server-name") is None


def test_the_keys_header_can_have_any_name() -> None:
    assert key_lines(environ_of(key=None, HTTP_X_REQUEST_KEY="a"), "X-Request-Key") == ["a"]
    assert key_lines(environ_of(key=None), "Idempotency-Key") == []


@pytest.mark.parametrize(
    ("text", "length"), [("", None), ("0", 0), ("12", 12), ("-1", None), ("x", None), ("\u0661", None)]
)
def test_a_content_length_is_one_or_none(text: str, length: int | None) -> None:
    assert declared_length({"CONTENT_LENGTH": text}) == length


def test_a_status_line_has_a_reason_even_where_nobody_knows_one() -> None:
    assert status_line(201) == "201 Created"
    assert status_line(299) == "299 Unknown"
