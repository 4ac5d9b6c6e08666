"""Whether a service keeps the promise for a request: sent twice, and several times at once, through a test client."""

from __future__ import annotations

import asyncio
import copy
import json as json_text
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["ClientRequest", "Sent", "assert_idempotent", "assert_idempotent_async"]

_CONFLICT = 409
_CLIENT_ERROR, _SERVER_ERROR = 400, 500
_PROBLEM = "application/problem+json"
_SHOWN_BYTES = 200
_JSON = "application/json"

# A replay computes them anew, or leaves them out: docs/promise.md, "What a replay repeats".
_NOT_REPEATED = frozenset(
    {
        "age",
        "connection",
        "content-length",
        "date",
        "keep-alive",
        "proxy-authenticate",
        "retry-after",
        "server",
        "server-timing",
        "set-cookie",
        "traceparent",
        "tracestate",
        "trailer",
        "transfer-encoding",
        "via",
        "www-authenticate",
        "x-correlation-id",
        "x-request-id",
    }
)
_NOT_REPEATED_PREFIXES = ("access-control-", "ratelimit", "x-ratelimit", "x-amzn-trace")


@dataclass(frozen=True, kw_only=True)
class ClientRequest:
    """What is sent: `json` or `body`. The key is made up for each sequence."""

    method: str = "POST"
    path: str
    json: Any = None
    body: bytes | None = None
    content_type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def content(self) -> tuple[bytes, str | None]:
        """Its bytes, and their type."""
        if self.body is not None:
            return self.body, self.content_type
        if self.json is None:
            return b"", self.content_type
        return json_text.dumps(self.json).encode(), self.content_type or _JSON


@dataclass(frozen=True, slots=True)
class Answer:
    """A client's response, whatever client it was."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def values(self, name: str) -> list[str]:
        """All values of a header."""
        return [value for header, value in self.headers if header.lower() == name.lower()]

    def __str__(self) -> str:
        shown = self.body[:_SHOWN_BYTES]
        more = f"… ({len(self.body)} bytes)" if len(self.body) > _SHOWN_BYTES else ""
        return f"{self.status} {shown.decode('utf-8', 'backslashreplace')!r}{more}"


@dataclass(frozen=True, slots=True)
class Sent:
    """What came back: the first answer, its replay, and those of the requests that were sent at once."""

    first: Answer
    replay: Answer
    at_once: tuple[Answer, ...]


Request = ClientRequest | Mapping[str, Any]


def assert_idempotent(
    client: Any,
    request: Request,
    *,
    at_once: int = 4,
    header: str = "Idempotency-Key",
    replay_header: str = "Idempotent-Replayed",
    ignore_headers: Iterable[str] = (),
    runs: Callable[[], int] | None = None,
) -> Sent:
    """Send a request twice under one key, then `at_once` times at the same time under another, and compare.

    `client` is Starlette's or FastAPI's TestClient, an httpx.Client, a requests.Session, Django's or Flask's test
    client. `runs` counts what the request does (rows, charges): it must grow by one for each key. `at_once=0` leaves
    the second part out, where the test's database can't be used from other threads.

    `ignore_headers` are those that may differ; what a replay never repeats is ignored anyway.

    Raises:
        AssertionError: what differed, line by line.

    """
    wanted = _request(request)
    ignored = _ignored(ignore_headers)
    send = _sender(client)
    keys = [str(uuid.uuid4()), str(uuid.uuid4())]
    before = _count(runs)

    first, second = (send(client, _keyed(wanted, header, keys[0])) for _ in range(2))
    after_two = _count(runs)
    problems = list(_pair_problems(first, second, replay_header, ignored))
    problems += _run_problems("sent twice under one key", before, after_two)
    answers: tuple[Answer, ...] = ()
    if at_once and not problems:
        answers = _send_at_once(client, send, _keyed(wanted, header, keys[1]), at_once)
        last = send(client, _keyed(wanted, header, keys[1]))
        problems += _crowd_problems(answers, last, replay_header, ignored)
        problems += _run_problems(f"sent {at_once} times at once", after_two, _count(runs))
    _raise(wanted, problems)
    return Sent(first, second, answers)


async def assert_idempotent_async(
    client: Any,
    request: Request,
    *,
    at_once: int = 4,
    header: str = "Idempotency-Key",
    replay_header: str = "Idempotent-Replayed",
    ignore_headers: Iterable[str] = (),
    runs: Callable[[], int] | None = None,
) -> Sent:
    """As `assert_idempotent`, for an httpx.AsyncClient."""
    wanted = _request(request)
    ignored = _ignored(ignore_headers)
    keys = [str(uuid.uuid4()), str(uuid.uuid4())]
    before = _count(runs)

    first = await _send_async(client, _keyed(wanted, header, keys[0]))
    second = await _send_async(client, _keyed(wanted, header, keys[0]))
    after_two = _count(runs)
    problems = list(_pair_problems(first, second, replay_header, ignored))
    problems += _run_problems("sent twice under one key", before, after_two)
    answers: tuple[Answer, ...] = ()
    if at_once and not problems:
        crowd = _keyed(wanted, header, keys[1])
        answers = tuple(await asyncio.gather(*(_send_async(client, crowd) for _ in range(at_once))))
        last = await _send_async(client, crowd)
        problems += _crowd_problems(answers, last, replay_header, ignored)
        problems += _run_problems(f"sent {at_once} times at once", after_two, _count(runs))
    _raise(wanted, problems)
    return Sent(first, second, answers)


# --- comparing --------------------------------------------------------------------------------------------------------


def _pair_problems(first: Answer, second: Answer, mark: str, ignored: frozenset[str]) -> Iterator[str]:
    if _is_refusal(first):
        yield f"the first request was refused before it ran: {first}"
        return
    if first.values(mark):
        yield f"the first answer is marked as a replay ({mark}): a fresh key was known already"
    if not second.values(mark):
        yield f"the second answer is no replay: it has no {mark} header. {_why(first, second)}"
    yield from _differences("the second answer", first, second, {*ignored, mark.lower()})


def _why(first: Answer, second: Answer) -> str:
    if _is_refusal(second):
        return f"It was refused: {second}"
    if first.status >= _SERVER_ERROR:
        return f"The first answer, {first.status}, is not kept by default, so the request ran again."
    if first.status >= _CLIENT_ERROR:
        return f"The first answer, {first.status}, may be one that is not kept; see docs/promise.md."
    return "The request ran again: is the middleware around this view, and does it cover this method and path?"


def _crowd_problems(answers: Sequence[Answer], last: Answer, mark: str, ignored: frozenset[str]) -> Iterator[str]:
    ran = [answer for answer in answers if not answer.values(mark) and not _is_conflict(answer)]
    if len(ran) != 1:
        yield f"of {len(answers)} requests sent at once, {len(ran)} ran: one should. {_list(ran)}"
        return
    for answer in answers:
        if answer.values(mark):
            yield from _differences("a replay among those sent at once", ran[0], answer, {*ignored, mark.lower()})
    if not last.values(mark):
        yield f"after those sent at once, another one was no replay: {last}"
    else:
        yield from _differences("the replay after those sent at once", ran[0], last, {*ignored, mark.lower()})


def _differences(what: str, first: Answer, other: Answer, ignored: Iterable[str]) -> Iterator[str]:
    if first.status != other.status:
        yield f"{what} has another status: {other.status} instead of {first.status}"
    if first.body != other.body:
        yield f"{what} has another body:\n      first: {first}\n      then:  {other}"
    names = sorted({name.lower() for name, _ in (*first.headers, *other.headers)})
    for name in names:
        if name in ignored or name.startswith(_NOT_REPEATED_PREFIXES):
            continue
        if first.values(name) != other.values(name):
            yield f"{what} has another {name}: {other.values(name)} instead of {first.values(name)}"


def _run_problems(what: str, before: int | None, after: int | None) -> list[str]:
    if before is None or after is None or after - before == 1:
        return []
    return [f"{what}, it ran {after - before} times instead of once, as `runs` counts"]


def _is_refusal(answer: Answer) -> bool:
    kinds = answer.values("content-type")
    return answer.status >= _CLIENT_ERROR and any(kind.startswith(_PROBLEM) for kind in kinds)


def _is_conflict(answer: Answer) -> bool:
    return answer.status == _CONFLICT and _is_refusal(answer)


def _list(answers: Iterable[Answer]) -> str:
    return "".join(f"\n      {answer}" for answer in answers)


def _count(runs: Callable[[], int] | None) -> int | None:
    return None if runs is None else runs()


def _raise(request: ClientRequest, problems: Sequence[str]) -> None:
    if problems:
        lines = "".join(f"\n  - {problem}" for problem in problems)
        raise AssertionError(f"{request.method} {request.path} is not idempotent:{lines}")


def _ignored(names: Iterable[str]) -> frozenset[str]:
    return _NOT_REPEATED | {name.lower() for name in names}


# --- sending ----------------------------------------------------------------------------------------------------------


def _request(request: Request) -> ClientRequest:
    return request if isinstance(request, ClientRequest) else ClientRequest(**request)


def _keyed(request: ClientRequest, header: str, key: str) -> ClientRequest:
    return replace(request, headers={**request.headers, header: f'"{key}"'})


_Send = Callable[[Any, ClientRequest], Answer]


def _sender(client: Any) -> _Send:
    """How this kind of client sends; told by what it can do, so that no framework is imported.

    Raises:
        TypeError: it is none of those that we know.

    """
    if callable(getattr(client, "generic", None)):
        return _send_django
    if callable(getattr(client, "open", None)) and hasattr(client, "application"):
        return _send_werkzeug
    if asyncio.iscoroutinefunction(getattr(client, "request", None)):
        raise TypeError("this client is asynchronous: await assert_idempotent_async(…)")
    if callable(getattr(client, "request", None)):
        return _send_requests if type(client).__module__.startswith("requests") else _send_httpx
    raise TypeError(
        f"{type(client).__name__} is no client that is known here: take Starlette's TestClient, an httpx.Client, "
        "a requests.Session, Django's or Flask's test client"
    )


def _send_httpx(client: Any, request: ClientRequest) -> Answer:
    response = client.request(request.method, request.path, **_httpx_arguments(request))
    return _of_httpx(response)


async def _send_async(client: Any, request: ClientRequest) -> Answer:
    return _of_httpx(await client.request(request.method, request.path, **_httpx_arguments(request)))


def _httpx_arguments(request: ClientRequest) -> dict[str, Any]:
    content, headers = _content_and_headers(request)
    return {"content": content, "headers": headers}


def _of_httpx(response: Any) -> Answer:
    headers = response.headers
    pairs = headers.multi_items() if hasattr(headers, "multi_items") else headers.items()
    return Answer(response.status_code, tuple(pairs), response.content)


def _send_requests(client: Any, request: ClientRequest) -> Answer:
    content, headers = _content_and_headers(request)
    response = client.request(request.method, request.path, data=content, headers=headers)
    return Answer(response.status_code, tuple(response.headers.items()), response.content)


def _send_werkzeug(client: Any, request: ClientRequest) -> Answer:
    content, headers = _content_and_headers(request)
    response = client.open(request.path, method=request.method, data=content, headers=headers)
    return Answer(response.status_code, tuple(response.headers), response.get_data())


def _send_django(client: Any, request: ClientRequest) -> Answer:
    content, kind = request.content()
    response = client.generic(
        request.method,
        request.path,
        content,
        content_type=kind or "application/octet-stream",
        headers=dict(request.headers),
    )
    body = b"".join(response.streaming_content) if getattr(response, "streaming", False) else response.content
    return Answer(response.status_code, tuple(response.headers.items()), body)


def _content_and_headers(request: ClientRequest) -> tuple[bytes, dict[str, str]]:
    content, kind = request.content()
    headers = dict(request.headers)
    if kind is not None:
        headers["Content-Type"] = kind
    return content, headers


def _send_at_once(client: Any, send: _Send, request: ClientRequest, count: int) -> tuple[Answer, ...]:
    """All begin when all are ready."""
    barrier = threading.Barrier(count)

    def one(own: Any) -> Answer:
        try:
            barrier.wait(timeout=30)
            return send(own, request)
        finally:
            _close_django_connections()

    with ThreadPoolExecutor(count) as pool:
        return tuple(pool.map(one, [_of_its_own(client) for _ in range(count)]))


def _of_its_own(client: Any) -> Any:
    """Django's and Flask's clients are for one thread each; the copies keep the cookies."""
    if callable(getattr(client, "generic", None)):
        twin = copy.copy(client)
        twin.cookies = copy.deepcopy(client.cookies)
        return twin
    if hasattr(client, "application"):
        twin = client.application.test_client() if hasattr(client.application, "test_client") else copy.copy(client)
        with suppress(AttributeError):
            twin._cookies = dict(client._cookies)  # noqa: SLF001  # there is no other way to all of them
        return twin
    return client


def _close_django_connections() -> None:
    """A thread's connections would keep the test database from being dropped."""
    database = sys.modules.get("django.db")
    if database is not None:
        with suppress(Exception):  # settings may not even be configured
            database.connections.close_all()
