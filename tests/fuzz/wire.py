"""Requests that no client library would send, and how each kind of application gets them from its server."""

from __future__ import annotations

import asyncio
import io
import json
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes
from wsgiref.util import setup_testing_defaults

from hypothesis import strategies as st

__all__ = [
    "CATALOGUE",
    "EXAMPLES",
    "PROTECTIONS",
    "Answer",
    "AsgiApp",
    "Send",
    "Wild",
    "WsgiApp",
    "check",
    "over_asgi",
    "over_wsgi",
    "wild_requests",
]

AsgiApp = Callable[[MutableMapping[str, Any], Any, Any], Awaitable[None]]
WsgiApp = Callable[[dict[str, Any], Any], Iterable[bytes]]

EXAMPLES = int(os.environ.get("IDEM_FUZZ_EXAMPLES", "12"))
"""How many requests each test makes up; a hundred times as many find more."""

PATIENCE_SECONDS = 20
PROTECTIONS: Mapping[str, Mapping[str, Any]] = {
    "header": {},
    "body": {"key": "detail.orderId", "payload": "detail"},
    "print": {"key": "fingerprint"},
    "narrow": {"payload": "sum(detail.*)", "fingerprint_headers": ["X-Wild"], "fingerprint_secret": b"s"},
}
"""Ways in which a request is known again: each reads other parts of it."""


@dataclass(frozen=True)
class Wild:
    """One request, as bytes; `path` and `query` as they stand in the request line."""

    path: bytes
    query: bytes
    headers: tuple[tuple[str, bytes], ...]
    body: bytes

    def __repr__(self) -> str:
        shown = [(name, value[:80], len(value)) for name, value in self.headers]
        return f"Wild({self.path!r}, {self.query!r}, {shown}, {self.body[:80]!r} of {len(self.body)} bytes)"


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def is_replay(self) -> bool:
        """Whether it says that it was given before."""
        return ("idempotent-replayed", "true") in [(name.lower(), value) for name, value in self.headers]

    @property
    def problem(self) -> str | None:
        """The end of a problem's type; None where the answer is no problem."""
        if "application/problem+json" not in dict(self.headers).values():
            return None
        kind: str = json.loads(self.body)["type"]
        return kind.rpartition(":")[2]


Send = Callable[[Wild], Answer]


def over_wsgi(app: WsgiApp, request: Wild) -> Answer:
    """As a WSGI server passes it on."""
    environ: dict[str, Any] = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": unquote_to_bytes(request.path).decode("latin-1"),
        "RAW_URI": (request.path + b"?" + request.query).decode("latin-1"),
        "QUERY_STRING": request.query.decode("latin-1"),
        "CONTENT_LENGTH": str(len(request.body)),
        "wsgi.input": io.BytesIO(request.body),
    }
    for name, value in request.headers:
        variable = name.upper().replace("-", "_")
        variable = variable if variable == "CONTENT_TYPE" else f"HTTP_{variable}"
        text = value.decode("latin-1")
        environ[variable] = f"{environ[variable]},{text}" if variable in environ else text
    setup_testing_defaults(environ)
    head: list[Any] = []

    def start(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> Callable[[bytes], object]:
        head[:] = [int(status[:3]), tuple(headers)]
        return lambda data: None

    produced = app(environ, start)
    try:
        body = b"".join(produced)
    finally:
        close = getattr(produced, "close", None)
        if close is not None:
            close()
    for name, value in head[1]:
        (name + value).encode("latin-1")
        assert not set("\r\n\0") & set(name + value), name
    return Answer(head[0], head[1], body)


def over_asgi(app: AsgiApp, request: Wild) -> Answer:
    """As an ASGI server passes it on."""
    return asyncio.run(_over_asgi(app, request))


async def _over_asgi(app: AsgiApp, request: Wild) -> Answer:
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": unquote_to_bytes(request.path).decode("utf-8", "replace"),
        "raw_path": request.path,
        "query_string": request.query,
        "root_path": "",
        "headers": [
            (b"content-length", b"%d" % len(request.body)),
            *((name.lower().encode("latin-1"), value) for name, value in request.headers),
        ],
        "client": ("127.0.0.1", 1),
        "server": ("testserver", 80),
    }
    half = len(request.body) // 2
    waiting: list[dict[str, Any]] = [
        {"type": "http.request", "body": request.body[:half], "more_body": True},
        {"type": "http.request", "body": request.body[half:], "more_body": False},
    ]
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if waiting:
            return waiting.pop(0)
        await asyncio.Event().wait()
        raise AssertionError("unreachable: nobody sets it")

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async with asyncio.timeout(PATIENCE_SECONDS):
        await app(scope, receive, send)
    headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in sent[0]["headers"])
    for name, value in headers:
        assert not set("\r\n\0") & set(name + value), name
    return Answer(sent[0]["status"], headers, b"".join(message.get("body", b"") for message in sent[1:]))


_BEFORE_ANY_VIEW = (307, 308, 400, 404)


# --- what is sent -----------------------------------------------------------------------------------------------------

_LINE = st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0"), max_size=60).map(
    lambda text: text.encode("latin-1")
)
_NASTY_KEYS = (
    b"",
    b'""',
    b'"',
    b'"a";b',
    b'"a";b=%"%ff"',
    b"a" * 255,
    b"a" * 256,
    b'"' + b"\\" * 500,
    b'"a"' + b";b=1" * 2000,
    b"caf\xe9",
    b"caf\xc3\xa9",
    "\N{CYRILLIC SMALL LETTER A}bc".encode(),
    b"\x1f",
    b"a,b",
    b" \t",
)
keys = st.from_regex(rb"[A-Za-z0-9]{1,30}", fullmatch=True) | st.sampled_from(_NASTY_KEYS) | _LINE

_CONTENT_TYPES = (
    b"application/json",
    b"application/json; charset=utf-16",
    b"application/json; charset=no-such-charset",
    b"application/problem+json",
    b"text/plain; charset=\xff",
    b"application/x-www-form-urlencoded",
    b"application/x-www-form-urlencoded; charset=no-such-charset",
    b"multipart/form-data",
    b"multipart/form-data; boundary=",
    b"multipart/form-data; boundary=b",
    b"multipart/form-data; boundary=\xff",
    b"multipart/form-data; boundary*=utf-8''%ff",
    b'multipart/form-data; boundary="' + b"b" * 200 + b'"',
    b"multipart/mixed; boundary=b;" + b"a=b;" * 500,
    b";;;",
    b"",
)

_NASTY_BODIES = (
    b"",
    b"{",
    b"[" * 50_000,
    b'{"detail":' * 20_000 + b"1" + b"}" * 20_000,
    b'{"detail":{"orderId":"\\ud800"}}',
    b'{"detail":{"orderId":"\\u0000"}}',
    b'{"detail":{"orderId":' + b"9" * 1_000_000 + b"}}",
    b'{"detail":{"orderId":1e999999999}}',
    b'{"detail":{"orderId":-0}}',
    b'{"detail":{"orderId":true}}',
    b'{"detail":{"orderId":{"a":[]}}}',
    b'{"detail":{"orderId":"a","orderId":"b"}}',
    b'{"detail":{"orderId":"a","n":' + b"1" * 100_000 + b"}}",
    b'{"detail":NaN}',
    b'{"detail":{"orderId":"a"},"detail":{"orderId":"b"}}',
    b'{"\\ud800":1,"\\udc00\\ud800":"\\udfff","detail":{"orderId":"a"}}',
    b'{"detail":{"orderId":"\xed\xa0\x80"}}',
    b'{"detail":{"orderId":"a"},"n":[' + b"-" + b"7" * 1_000_000 + b"]}",
    b'{"detail":{"orderId":"a"},"n":0.' + b"3" * 1_000_000 + b"e-" + b"9" * 1_000 + b"}",
    b'\xef\xbb\xbf{"detail":{"orderId":"a"}}',
    b'{"detail":"' + b"\\" * 99_999,
    b"\xff\xfe\x00",
    b"--b\r\n\r\n\r\n--b--\r\n",
    b'--b\r\nContent-Disposition: form-data; name="a"\r\nContent-Transfer-Encoding: base64\r\n\r\n!\r\n--b--\r\n',
    b"--b\r\n" + b"X: y\r\n" * 5_000 + b"\r\n--b--",
    b"\r\n--" * 20_000,
    b"&" * 5_000,
    b"a=%ff&%=&=" * 100,
)
_BROKEN_FORMS = (
    b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n1',  # no end
    b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--c--\r\n',  # another's end
    b'--b\nContent-Disposition: form-data; name="a"\n\n1\n--b--\n',  # bare line feeds
    b"--b\r\n\r\nnameless\r\n--b--\r\n",
    b'--b\r\nContent-Disposition: form-data; name="\xff"; filename="\x00../\r"\r\n\r\n1\r\n--b--\r\n',
    b"--b\r\nContent-Disposition: form-data; name*=utf-8''%ff\r\n\r\n1\r\n--b--\r\n",
    b"--b\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\n1\r\n--b--\r\n",
    b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n' * 2_000 + b"--b--\r\n",
    b"--b--",
    b"--",
)
_DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
bodies = (
    st.sampled_from((*_NASTY_BODIES, *_BROKEN_FORMS))
    | st.binary(max_size=300)
    | st.builds(lambda order: json.dumps({"detail": {"orderId": order}}).encode(), _DOCUMENTS)
)

_NASTY_PATHS = (
    b"/run/a",
    b"/run/%FF%FE",
    b"/run/%00",
    b"/run/%C0%80",
    b"/run/%",
    b"/run/%zz",
    b"/run/a;b=c",
    b"/run/a%2Fb",
    b"/run/" + b"a/../" * 200 + b"a",
    b"//",
)
_NASTY_QUERIES = (b"", b"&&", b"=", b"a=%", b"%ff=%fe", b"a=1&a=2", b"a=1;b=2", b"\xff", b"a&" * 5_000)
_PATHS = st.sampled_from(_NASTY_PATHS) | st.from_regex(rb"/run/([!$-.0->@-~]|%[0-9A-F]{2}){1,10}", fullmatch=True)
_QUERIES = st.sampled_from(_NASTY_QUERIES) | _LINE


_FITTING = {
    b"{": b"application/json",
    b"[": b"application/json",
    b"-": b"multipart/form-data; boundary=b",
    b"\r": b"multipart/form-data; boundary=b",
    b"&": b"application/x-www-form-urlencoded",
    b"a": b"application/x-www-form-urlencoded",
}


def _catalogue() -> Iterator[Wild]:
    """Each nasty part once, with whatever makes it matter; chance alone brings few of them together."""
    for number, body in enumerate((*_NASTY_BODIES, *_BROKEN_FORMS)):
        kind = _FITTING.get(body[:1], b"application/json")
        yield Wild(b"/run/a", b"", (("Idempotency-Key", b"body-%d" % number), ("Content-Type", kind)), body)
    for key in _NASTY_KEYS:
        yield Wild(b"/run/a", b"", (("Idempotency-Key", key),), b"{}")
    for kind in _CONTENT_TYPES:
        for body in (b"{}", _BROKEN_FORMS[0]):
            yield Wild(b"/run/a", b"", (("Idempotency-Key", b"k"), ("Content-Type", kind)), body)
    for path in _NASTY_PATHS:
        yield Wild(path, b"", (("Idempotency-Key", b"k"),), b"{}")
    for query in _NASTY_QUERIES:
        yield Wild(b"/run/a", query, (("Idempotency-Key", b"k"),), b"{}")
        yield Wild(b"/run/a", query, (("Idempotency-Key", b"k"), ("Content-Type", b"text/plain; charset=utf-16")), b"")
    for name in ("Authorization", "X-Api-Key", "X-Wild"):
        for value in (b"", b"\xff\x01", b"x" * 60_000, b"caf\xc3\xa9"):
            yield Wild(b"/run/a", b"", (("Idempotency-Key", b"k"), (name, value)), b"{}")


@st.composite
def wild_requests(draw: st.DrawFn) -> Wild:
    """One POST, with a key on most of them."""
    headers = [("Idempotency-Key", draw(keys))] * draw(st.sampled_from((1, 1, 1, 1, 0, 2)))
    headers += [("Content-Type", draw(st.sampled_from(_CONTENT_TYPES) | _LINE))]
    headers += draw(st.lists(st.tuples(st.sampled_from(("Authorization", "X-Api-Key", "X-Wild")), _LINE), max_size=3))
    return Wild(draw(_PATHS), draw(_QUERIES), tuple(headers), draw(bodies))


CATALOGUE = tuple(_catalogue())
"""Requests that every application gets, whatever chance makes up besides."""


def check(send: Send, runs: list[str], request: Wild) -> None:
    """Send it twice. It runs once and is replayed, or it is refused and never runs; nothing of it is our failure."""
    runs.clear()
    first, second = send(request), send(request)
    assert first.status < 500, first
    assert second.status == first.status, (first, second)
    if first.status == 201:
        assert len(runs) == 1
        assert second.is_replay
        assert second.body == first.body
    else:
        assert not runs, first
        assert first.problem == second.problem
        if first.problem is None:  # the framework's own answer, before any view
            assert first.status in _BEFORE_ANY_VIEW, first
        else:
            assert json.loads(first.body)["detail"], "it does not say what to do"
