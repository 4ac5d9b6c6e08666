"""A client of the probes: sends requests under one key, and says what their answers must be."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import httpx

from idem_middleware.keys import record_pk
from tests.servers.table import Table
from tests.support.fault_proxy import FaultProxy
from tests.support.http import RawConnection, RawResponse, request_head
from tests.support.polling import eventually
from tests.support.probes import RunningProbe

MARK = "idempotent-replayed"
A = b'{"amount": 12, "currency": "EUR"}'
B = b'{"amount": 13, "currency": "EUR"}'

_TIMEOUT_SECONDS = 30
_MOST_AT_ONCE = 64


def plan(**members: Any) -> dict[str, Any]:
    """Say what the handler shall do; it answers 201 unless told otherwise."""
    return {"status": 201, **members}


class Service:
    """One running probe and its store, with a key and a name under which nothing else runs."""

    def __init__(self, probe: RunningProbe, table: Table, proxy: FaultProxy) -> None:
        self.probe = probe
        self.table = table
        self.proxy = proxy
        self.name = f"n{uuid4().hex}"
        self.key = str(uuid4())
        # A connection for each request, so that every worker process gets its share of them. No TLS, no certificates.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._client = httpx.Client(timeout=_TIMEOUT_SECONDS, limits=limits, verify=False)  # noqa: S501
        self._threads = ThreadPoolExecutor(_MOST_AT_ONCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._threads.shutdown()
        self._client.close()

    def send(self, planned: Mapping[str, Any] | None = None, **request: Any) -> httpx.Response:
        """Send a request, made as by `request`, and give its answer."""
        return self._client.send(self.request(planned, **request))

    def send_in_background(self, planned: Mapping[str, Any] | None = None, **request: Any) -> Future[httpx.Response]:
        """Send a request; its answer comes later."""
        return self._threads.submit(self.send, planned, **request)

    @contextmanager
    def streaming(self, planned: Mapping[str, Any], **request: Any) -> Iterator[Iterator[bytes]]:
        """Send a request, and give its answer's body piece by piece."""
        answer = self._client.send(self.request(planned, **request), stream=True)
        try:
            yield answer.iter_raw()
        finally:
            answer.close()

    def request(
        self,
        planned: Mapping[str, Any] | None = None,
        *,
        body: bytes = A,
        method: str = "POST",
        route: str = "probe",
        name: str | None = None,
        query: str = "",
        key: str | None = "",
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Request:
        """Make a request.

        `key` is the header's value: without one it is this service's own key in quotes, None leaves the header out.
        """
        sent = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            "X-Plan": json.dumps(plan() if planned is None else planned),
            **({} if key is None else {"Idempotency-Key": key or f'"{self.key}"'}),
            **(headers or {}),
        }
        target = f"{self.probe.url}/{route}/{name or self.name}{query}"
        return self._client.build_request(method, target, content=body, headers=sent)

    def send_raw(self, *lines: str | bytes, method: str = "POST", route: str = "probe") -> RawResponse:
        """Send a request without a body, with these header lines as they are, and give its answer."""
        with RawConnection(self.probe.port) as connection:
            every = [*lines, f"X-Plan: {json.dumps(plan())}", "Connection: close"]
            connection.send(request_head(method, f"/{route}/{self.name}", *every, length=0))
            return connection.read_response(method=method)

    def pk(self, key: str | None = None, *, caller: str | None = None) -> str:
        """Name the record of a key, by default this service's own."""
        return record_pk("", caller, key or self.key)

    def record(self, key: str | None = None, *, caller: str | None = None) -> dict[str, Any] | None:
        """Give what stands in the table under a key."""
        return self.table.record(self.pk(key, caller=caller))

    def let_pass(self, seconds: float) -> None:
        """Let so much time pass for the record of this service's key."""
        self.table.let_pass(self.pk(), seconds)

    @property
    def operations(self) -> list[str]:
        """The calls to DynamoDB about this service's key so far."""
        return self.proxy.operations(self.pk())

    @property
    def runs(self) -> int:
        """How often the handler ran, by its log."""
        return self.probe.runs(self.name)

    def ran(self, times: int) -> None:
        """Make sure that the handler ran so often."""
        assert self.runs == times, f"the handler ran {self.runs} times"

    def is_running(self, run: int = 1) -> None:
        """Wait until the handler has begun so often."""
        eventually(lambda: self.runs >= run, what=f"run {run} of the handler")


def is_fresh(answer: httpx.Response, status: int = 201) -> None:
    """Make sure that the handler gave this answer, just now."""
    assert answer.status_code == status, shown(answer)
    assert MARK not in answer.headers, shown(answer)


def is_replay(answer: httpx.Response, of: httpx.Response) -> None:
    """Make sure that this is an earlier answer again, and says so."""
    assert answer.status_code == of.status_code, shown(answer)
    assert answer.headers.get(MARK) == "true", shown(answer)
    assert answer.content == of.content
    assert answer.headers.get("content-type") == of.headers.get("content-type")


def is_problem(answer: httpx.Response, kind: str, status: int, *, retry: bool = False) -> None:
    """Make sure that the product refused, for this reason, and whether it asks for a retry."""
    assert answer.status_code == status, shown(answer)
    assert answer.headers["content-type"] == "application/problem+json", shown(answer)
    problem = answer.json()
    assert problem["type"].endswith(kind), shown(answer)
    assert problem["status"] == status
    assert answer.headers["cache-control"] == "no-store"
    assert MARK not in answer.headers
    if retry:
        assert 1 <= int(answer.headers["retry-after"]) <= 5
    else:
        assert "retry-after" not in answer.headers


def statuses(answers: Iterable[httpx.Response]) -> list[int]:
    """Give the statuses of some answers, sorted."""
    return sorted(answer.status_code for answer in answers)


def shown(answer: httpx.Response) -> str:
    """Show an answer in a failed test's message."""
    return f"{answer.status_code} {dict(answer.headers)} {answer.text[:300]}"
