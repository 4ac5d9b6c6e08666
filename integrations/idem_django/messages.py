"""Between Django's messages and the engine's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from idem_middleware.body import RequestBody
from idem_middleware.messages import HeaderPairs, Request, Response

__all__ = ["ExactResponse", "header_pairs", "key_lines", "replace_response", "to_request", "to_response"]

_WITHOUT_LENGTH = frozenset({204, 304})  # RFC 9110 §8.6
_PATH_CHARACTERS = "/:@!$&'()*+,;=~"  # RFC 3986 §3.3, with the separator


def to_request(request: HttpRequest, body: RequestBody) -> Request:
    """The request as the engine sees it; the path as it was sent, where the server tells it."""
    return Request(
        method=request.method or "",
        path=_raw_path(request),
        query=str(request.META.get("QUERY_STRING") or ""),
        headers=tuple((name.lower(), str(value)) for name, value in request.headers.items()),
        body=body,
        native=request,
    )


def to_response(native: Any) -> Response:
    """A whole answer of Django's, as the engine sees it.

    Raises:
        TypeError: it is none, or its body comes only while it is sent.
        ContentNotRenderedError: it is a template's, or REST framework's, and not rendered yet.
    """
    if not isinstance(native, HttpResponse):
        raise TypeError(f"an answer that is kept in a transaction must be whole, not a {type(native).__name__}")
    return Response(native.status_code, header_pairs(native), native.content)


def key_lines(request: HttpRequest, header: str) -> list[str]:
    """The value of the key's header. Two lines come joined by a comma, which makes the key invalid."""
    value = request.headers.get(header)
    return [] if value is None else [str(value)]


def header_pairs(response: HttpResponseBase) -> HeaderPairs:
    """All headers in the order in which Django sends them."""
    cookies = (("Set-Cookie", morsel.output(header="").strip()) for morsel in response.cookies.values())
    return (*((str(name), str(value)) for name, value in response.items()), *cookies)


class ExactResponse(HttpResponse):
    """A stored or refusing answer, with exactly its headers: repeated ones too, and none that Django adds.

    Middleware further outside may still read and change them. Of a header that comes more than once it sees the
    first; changing or deleting that one does the same to all.
    """

    def __init__(self, response: Response) -> None:
        super().__init__(response.body, status=response.status)
        del self.headers["Content-Type"]
        self._stored = [pair for pair in response.headers if pair[0].lower() != "content-length"]
        for name, value in self._stored:
            self.headers.setdefault(name, value)
        self._first = {name.lower(): value for name, value in self.headers.items()}
        if response.status not in _WITHOUT_LENGTH:
            self.headers["Content-Length"] = str(len(response.body))

    def items(self) -> Iterator[tuple[str, str]]:
        """What is sent: Django's handlers ask here."""
        given: set[str] = set()
        for name, value in self._stored:
            if name not in self.headers:
                continue
            if name.lower() not in given:
                given.add(name.lower())
                yield name, self.headers[name]
            elif self.headers[name] == self._first[name.lower()]:
                yield name, value
        yield from ((name, value) for name, value in super().items() if name.lower() not in given)


def replace_response(old: HttpResponseBase, response: Response) -> ExactResponse:
    """Another attempt's answer in the place of this one; what the old one holds is still given back."""
    new = ExactResponse(response)
    closers: list[Any] = old._resource_closers  # type: ignore[attr-defined]  # noqa: SLF001 - no public way
    new._resource_closers.extend(closers)  # type: ignore[attr-defined]  # noqa: SLF001
    closers.clear()
    return new


def _raw_path(request: HttpRequest) -> str:
    scope = getattr(request, "scope", None)
    if scope is not None:
        raw = (scope.get("raw_path") or b"").decode("latin-1")
    else:
        raw = request.META.get("RAW_URI") or request.META.get("REQUEST_URI") or ""
    path = raw.partition("?")[0].partition("#")[0]
    if not path.startswith("/"):  # "http://host/path", as a client writes it to a proxy (RFC 9112 §3.2.2)
        _, _, rest = path.partition("://")
        _, slash, path = rest.partition("/")
        path = slash + path
    return path or quote(request.path, safe=_PATH_CHARACTERS)
