"""One request and its answer, with control of every header line."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from idem_middleware.errors import ConfigurationError, IdempotencyError

__all__ = ["Answer", "Server", "Target", "Unreachable"]

_PROBLEM = "application/problem+json"
_SHOWN_BYTES = 80
_MOST_BYTES = 8 * 1024 * 1024


class Unreachable(IdempotencyError):
    """No answer came."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is sent where. `other_body` differs from `body`, and is as good a request.

    `slow`, `failing` and `other_caller` are headers that make the handler take a while, answer with 5xx, or come from
    somebody else; sequences that need them are left out without. `runs_url` answers how often the handler ran.

    Raises:
        ConfigurationError: it is no URL.

    """

    url: str
    method: str = "POST"
    body: bytes = b'{"amount": 1}'
    other_body: bytes = b'{"amount": 2}'
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    key_header: str = "Idempotency-Key"
    replay_header: str = "Idempotent-Replayed"
    slow: Mapping[str, str] | None = None
    failing: Mapping[str, str] | None = None
    other_caller: Mapping[str, str] | None = None
    runs_url: str | None = None
    timeout_seconds: float = 30.0

    def __post_init__(self) -> None:
        for url in (self.url, self.runs_url):
            if url is None:
                continue
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ConfigurationError([f"{url} is no http or https URL"])


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def values(self, name: str) -> list[str]:
        """All values of a header."""
        return [value for header, value in self.headers if header.lower() == name.lower()]

    @property
    def ok(self) -> bool:
        """Whether the request was carried out."""
        return 200 <= self.status < 400  # noqa: PLR2004

    @property
    def is_problem(self) -> bool:
        """Whether it explains itself as RFC 9457 says."""
        return any(value.startswith(_PROBLEM) for value in self.values("content-type"))

    @property
    def links(self) -> bool:
        """Whether it leads to documentation, in the body or by a Link header."""
        if self.values("link"):
            return True
        try:
            members = json.loads(self.body)
        except ValueError:
            return b"http://" in self.body or b"https://" in self.body
        return isinstance(members, dict) and any(
            isinstance(value, str) and value.startswith(("http://", "https://")) for value in members.values()
        )

    def __str__(self) -> str:
        if self.is_problem:
            with suppress(ValueError, AttributeError):
                problem = json.loads(self.body)
                return f"{self.status} {problem.get('title') or problem.get('type')}"
        shown = self.body[:_SHOWN_BYTES].decode("utf-8", "backslashreplace")
        return f"{self.status} {shown!r}" if shown else str(self.status)


class Server:
    """Sends requests to a target, each on a connection of its own."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.sent = 0
        self._lock = threading.Lock()

    @staticmethod
    def fresh() -> str:
        """A key that nobody has used."""
        return str(uuid.uuid4())

    def send(
        self,
        *keys: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        method: str | None = None,
    ) -> Answer:
        """Send the target's request, with a header line for each of `keys` as it is written.

        Raises:
            Unreachable: no answer.

        """
        target = self.target
        method = method or target.method
        content = b"" if method in ("GET", "OPTIONS") else (target.body if body is None else body)
        lines = [*target.headers.items(), *(headers or {}).items()]
        if content:
            lines.append(("Content-Type", target.content_type))
        lines += [(target.key_header, key) for key in keys]
        return self._exchange(target.url, method, lines, content)

    def quoted(
        self,
        key: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """The same with the key as a string of structured fields, as the draft wants it."""
        return self.send(f'"{key}"', body=body, headers=headers)

    def at_once(self, count: int, key: str, *, headers: Mapping[str, str] | None = None) -> list[Answer]:
        """The same request from several connections, all at once."""
        barrier = threading.Barrier(count)

        def one(_: int) -> Answer:
            barrier.wait(timeout=self.target.timeout_seconds)
            return self.quoted(key, headers=headers)

        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(one, range(count)))

    def runs(self) -> int | None:
        """How often the handler ran, if the server tells; the answer is a number, or JSON with a member `runs`."""
        if self.target.runs_url is None:
            return None
        answer = self._exchange(self.target.runs_url, "GET", list(self.target.headers.items()), b"")
        try:
            told = json.loads(answer.body)
            return int(told["runs"] if isinstance(told, dict) else told)
        except (ValueError, TypeError, KeyError) as error:
            raise Unreachable(f"{self.target.runs_url} tells no number of runs: {answer}") from error

    def _exchange(self, url: str, method: str, lines: Iterable[tuple[str, str]], content: bytes) -> Answer:
        with self._lock:
            self.sent += 1
        parts = urlsplit(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection = self._connection(parts.scheme, parts.hostname or "", parts.port)
        try:
            connection.putrequest(method, path, skip_accept_encoding=True)
            for name, value in lines:
                connection.putheader(name, value.encode("latin-1", "replace"))
            if content or method not in ("GET", "OPTIONS"):
                connection.putheader("Content-Length", str(len(content)))
            connection.putheader("Connection", "close")
            connection.endheaders(content or None)
            response = connection.getresponse()
            return Answer(response.status, tuple(response.getheaders()), response.read(_MOST_BYTES))
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{method} {url} got no answer: {type(error).__name__}: {error}") from error
        finally:
            connection.close()

    def _connection(self, scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
        timeout = self.target.timeout_seconds
        if scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=ssl.create_default_context())
        return http.client.HTTPConnection(host, port, timeout=timeout)
