"""Between a WSGI environment and the engine's messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from idem_middleware.body import BodyTooLarge, RequestBody
from idem_middleware.messages import HeaderPairs, Request
from idem_middleware.tee import TeeInput

__all__ = [
    "check_declared_length",
    "declared_length",
    "key_lines",
    "path_of",
    "status_line",
    "tee_input",
    "to_request",
]

_RAW_TARGETS = ("RAW_URI", "REQUEST_URI")  # gunicorn's and uWSGI's (also mod_wsgi's and Werkzeug's) raw request target
_ORIGIN = re.compile(r"https?://[^/?]*", re.IGNORECASE)
_MOST_DIGITS = 18  # a longer Content-Length is nobody's, and Python takes no more than 4300 digits
_SAFE = "/~!$&'()*+,;=:@"


def key_lines(environ: Mapping[str, Any], header: str) -> list[str]:
    """The header's value; servers join several lines with a comma, which no valid key survives."""
    value = environ.get("HTTP_" + header.upper().replace("-", "_"))
    return [] if value is None else [value]


def declared_length(environ: Mapping[str, Any]) -> int | None:
    """Content-Length, if it is one."""
    text = environ.get("CONTENT_LENGTH") or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


def tee_input(environ: Mapping[str, Any]) -> TeeInput:
    """The request's input, to put in the place of `wsgi.input`.

    Where the server does not say that its input ends by itself, nobody may read beyond the declared length.
    """
    length = declared_length(environ)
    return TeeInput(
        environ["wsgi.input"],
        length=None if environ.get("wsgi.input_terminated") else length or 0,
        whole_length=length,
    )


def to_request(environ: Mapping[str, Any], body: RequestBody, native: Any) -> Request:
    """The request as the engine sees it; the path as it was sent, where the server tells it."""
    return Request(
        method=environ["REQUEST_METHOD"],
        path=_raw_path(environ),
        query=environ.get("QUERY_STRING", ""),
        headers=_headers(environ),
        body=body,
        native=native,
    )


def check_declared_length(environ: Mapping[str, Any], max_bytes: int | None) -> None:
    """Don't even begin to read what says itself that it is too large.

    Raises:
        BodyTooLarge: it does.
    """
    if max_bytes is not None and (declared_length(environ) or 0) > max_bytes:
        raise BodyTooLarge(max_bytes)


def path_of(environ: Mapping[str, Any]) -> str:
    """The decoded path, where it is text."""
    path: str = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    return path.encode("latin-1").decode("utf-8", "replace")


def status_line(status: int) -> str:
    """For `start_response`."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Unknown"


def _raw_path(environ: Mapping[str, Any]) -> str:
    for name in _RAW_TARGETS:
        target = environ.get(name)
        if target:
            # Origin form but for clients that speak to a proxy (RFC 9112 §3.2).
            return _ORIGIN.sub("", str(target)).partition("?")[0]
    path: str = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    return quote(path.encode("latin-1"), safe=_SAFE)


def _headers(environ: Mapping[str, Any]) -> HeaderPairs:
    pairs = [
        (name[5:].replace("_", "-").lower(), value)
        for name, value in environ.items()
        if name.startswith("HTTP_") and isinstance(value, str)
    ]
    for name, header in (("CONTENT_TYPE", "content-type"), ("CONTENT_LENGTH", "content-length")):
        if environ.get(name):
            pairs.append((header, environ[name]))
    return tuple(pairs)
