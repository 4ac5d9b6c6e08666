"""The lean transport for event loops, over sessions of aiohttp: one for each loop, closed with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from threading import Lock
from typing import Any, TypeVar

import aiohttp
from botocore import exceptions
from yarl import URL

from idem_middleware.stores.dynamodb.client import ClientSettings
from idem_middleware.stores.dynamodb.lean.network import Network, tls_context
from idem_middleware.stores.dynamodb.lean.signing import Keys
from idem_middleware.stores.dynamodb.lean.source import Line, Source
from idem_middleware.stores.dynamodb.lean.wire import decode
from idem_middleware.stores.dynamodb.requests import Request
from idem_middleware.stores.dynamodb.transport import keep_from_closing
from idem_middleware.stores.forks import reset_in_children

__all__ = ["AsyncLeanTransport"]

T = TypeVar("T")

_AT_ONCE_BYTES = 60 * 1024
"""What a transport of asyncio's takes without waiting for the other side."""

_LAST_MINUTE_SECONDS = 60
"""How near their end keys must be that a call waits for new ones."""


async def _in_own_thread(function: Callable[[], T]) -> T:
    """Run what may block in a thread that nobody else can keep busy."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="idem-lean")
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, function)
    finally:
        thread.shutdown(wait=False)


class AsyncLeanTransport:
    """Signs by itself and sends by aiohttp. Belongs to no event loop; safe under forks."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lock = Lock()
        self._ends: dict[asyncio.AbstractEventLoop, _LoopEnd] = {}
        reset_in_children(self)

    @staticmethod
    def can_use(settings: ClientSettings) -> bool:
        """Whether aiohttp can do what the settings say: it knows no certificates for proxies."""
        return not getattr(settings.config, "proxies_config", None)

    async def __call__(self, operation: str, request: Request) -> Mapping[str, Any]:
        end = self._ends.get(asyncio.get_running_loop()) or self._new_end()
        return await end.send(operation, request)

    async def aclose(self) -> None:
        """Close the connections of the running loop; the next call opens new ones."""
        end = self._ends.pop(asyncio.get_running_loop(), None)
        if end is not None:
            await end.close()

    def after_fork(self) -> None:  # pragma: no cover - runs in children, where nothing is measured
        """Forget the loops of the parent and their connections."""
        keep_from_closing(self._ends)
        self._lock = Lock()
        self._ends = {}

    def _new_end(self) -> _LoopEnd:
        loop = asyncio.get_running_loop()
        with self._lock:
            # What a loop leaves behind that was closed without a word.
            for other in [other for other in self._ends if other.is_closed()]:
                self._ends.pop(other).forget()
            end = self._ends[loop] = _LoopEnd(self._source, lambda: self._ends.pop(loop, None))
            return end


class _LoopEnd:
    """What belongs to one event loop."""

    def __init__(self, source: Source, closed: Callable[[], object]) -> None:
        self._source = source
        self._closed = closed
        self._opening = asyncio.Lock()
        self._connection: _Connection | None = None
        self._keeper: AsyncGenerator[_Connection, None] | None = None

    async def send(self, operation: str, request: Request) -> Mapping[str, Any]:
        """Sign the request, send it, and read the answer."""
        return await (self._connection or await self._opened()).send(operation, request)

    async def close(self) -> None:
        """Close the session."""
        if self._keeper is not None:
            await self._keeper.aclose()

    def forget(self) -> None:
        """Let go of a session whose loop can close nothing any more."""
        if self._connection is not None:
            self._connection.session.detach()

    async def _opened(self) -> _Connection:
        async with self._opening:
            if self._connection is None:
                line = self._source.known
                if line is None:
                    line = await _in_own_thread(self._source.line)
                # A loop ends the generators that have begun on it before it closes (`shutdown_asyncgens`): the one
                # public way to be told.
                self._keeper = self._keep(line)
                self._connection = await anext(self._keeper)
            return self._connection

    async def _keep(self, line: Line) -> AsyncGenerator[_Connection, None]:
        try:
            connection = _Connection(line)
        except Exception as exc:
            error = self._source.refusal(exc)
            if error is None:
                raise
            raise error from exc
        try:
            yield connection
        finally:
            self._connection = None
            self._closed()
            await connection.session.close()


class _Connection:
    """A session of aiohttp, and the keys to sign with."""

    def __init__(self, line: Line) -> None:
        self._line = line
        network = line.network
        self._keys: Keys | None = None
        self._renewal: asyncio.Task[Keys] | None = None
        self._url = URL(network.url, encoded=True)
        self._options: dict[str, Any] = {"allow_redirects": False}
        self._more_headers: Mapping[str, str] = {}
        if network.proxy_url is not None:
            # Its user and password go by a header, as botocore writes it: to the proxy alone where it tunnels.
            self._options["proxy"] = URL(network.proxy_url).with_user(None)
            if network.is_tls:
                self._options["proxy_headers"] = dict(network.proxy_headers)
            else:
                self._more_headers = network.proxy_headers
        # With the wait for a place in the pool: one comes free in this time, or the store is in trouble.
        waits = {
            "connect": network.connect_seconds + network.read_seconds,
            "sock_connect": network.connect_seconds,
            "sock_read": network.read_seconds,
        }
        # aiohttp bounds the waits for bytes that come, not for those that go.
        self._bulky = aiohttp.ClientTimeout(total=waits["connect"] + 2 * network.read_seconds, **waits)
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=network.max_connections,
                ssl=tls_context(network, check_hostname=True) if network.is_tls else False,
            ),
            timeout=aiohttp.ClientTimeout(**waits),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept", "Content-Type", "User-Agent"),
            auto_decompress=False,
            trust_env=False,
        )

    async def send(self, operation: str, request: Request) -> Mapping[str, Any]:
        """Sign the request, send it, and read the answer."""
        line = self._line
        prepared = line.prepare(operation, request, await self._current_keys())
        intercepted = line.intercept(operation, prepared)
        if intercepted is not None:
            return intercepted
        data: bytes | BytesIO = prepared.body
        options = self._options
        if len(prepared.body) > _AT_ONCE_BYTES:
            data, options = BytesIO(prepared.body), {**options, "timeout": self._bulky}
        try:
            async with self.session.post(
                self._url, data=data, headers={**prepared.headers, **self._more_headers}, **options
            ) as answer:
                content = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as exc:
            raise _as_botocores(exc, line.network) from exc
        return decode(operation, answer.status, answer.headers, content)

    async def _current_keys(self) -> Keys:
        """The keys to sign with. New ones are fetched in a thread, once for all who wait, and ahead of time."""
        credentials = self._line.credentials
        is_due = getattr(credentials, "refresh_needed", None)
        if is_due is None or not is_due():
            keys: Keys = credentials.get_frozen_credentials()
            self._keys = keys
            return keys
        if self._renewal is None:
            self._renewal = asyncio.get_running_loop().create_task(
                _in_own_thread(credentials.get_frozen_credentials), name="idem-credentials"
            )
            self._renewal.add_done_callback(self._renewed)
        if self._keys is not None and not is_due(_LAST_MINUTE_SECONDS):
            return self._keys
        return await asyncio.shield(self._renewal)

    def _renewed(self, renewal: asyncio.Task[Keys]) -> None:
        self._renewal = None
        if not renewal.cancelled() and renewal.exception() is None:
            self._keys = renewal.result()


_MEANINGS: tuple[tuple[type[Exception], type[exceptions.BotoCoreError]], ...] = (
    (aiohttp.ClientProxyConnectionError, exceptions.ProxyConnectionError),
    (aiohttp.ClientHttpProxyError, exceptions.ProxyConnectionError),
    (aiohttp.ClientSSLError, exceptions.SSLError),
    (aiohttp.ClientConnectorError, exceptions.EndpointConnectionError),
    (aiohttp.ConnectionTimeoutError, exceptions.ConnectTimeoutError),
    (TimeoutError, exceptions.ReadTimeoutError),
    (aiohttp.ClientConnectionError, exceptions.ConnectionClosedError),
    (aiohttp.ClientPayloadError, exceptions.ConnectionClosedError),
    (OSError, exceptions.ConnectionClosedError),
    (Exception, exceptions.HTTPClientError),
)


def _as_botocores(exc: Exception, network: Network) -> exceptions.BotoCoreError:
    """The exception that botocore's own session would raise in this place: `faults` knows those."""
    meaning = next(meaning for kind, meaning in _MEANINGS if isinstance(exc, kind))
    return network.failure(meaning, exc)
