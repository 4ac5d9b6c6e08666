"""The lean transport for callers that may block, over a pool of urllib3's."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from ssl import SSLContext
from typing import Any

from botocore import exceptions
from botocore.httpsession import create_urllib3_context
from urllib3 import PoolManager, Retry, Timeout, proxy_from_url
from urllib3 import exceptions as urllib3_exceptions
from urllib3.connectionpool import HTTPConnectionPool

from idem_middleware.clock import CorrectedClock
from idem_middleware.stores.dynamodb.client import ClientSettings
from idem_middleware.stores.dynamodb.lean.network import Network, tls_context
from idem_middleware.stores.dynamodb.lean.source import Line, Source
from idem_middleware.stores.dynamodb.lean.wire import decode
from idem_middleware.stores.dynamodb.requests import Request
from idem_middleware.stores.dynamodb.transport import AsyncTransport, keep_from_closing
from idem_middleware.stores.forks import LateLock, reset_in_children

__all__ = ["LeanTransport"]

_NO_RETRIES = Retry(total=False, redirect=False)


class Pool:
    """Connections to one endpoint."""

    def __init__(self, line: Line) -> None:
        self.line = line
        network = line.network
        self._manager = _manager(network)
        self._pool: HTTPConnectionPool = self._manager.connection_from_url(network.url)
        self._target = _request_target(network)

    def send(self, operation: str, request: Request) -> Mapping[str, Any]:
        """Sign the request, send it, and read the answer."""
        line = self.line
        prepared = line.prepare(operation, request, line.credentials.get_frozen_credentials())
        intercepted = line.intercept(operation, prepared)
        if intercepted is not None:
            return intercepted
        try:
            answer = self._pool.urlopen(
                "POST",
                self._target,
                body=prepared.body,
                headers=prepared.headers,
                retries=_NO_RETRIES,
                redirect=False,
                assert_same_host=False,
                decode_content=False,
            )
        except (urllib3_exceptions.HTTPError, OSError) as exc:
            raise _as_botocores(exc, line.network) from exc
        return decode(operation, answer.status, answer.headers, answer.data)


class LeanTransport:
    """Signs by itself and sends by urllib3. Safe under threads and forks."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._lock = LateLock()
        self._pool: Pool | None = None
        reset_in_children(self)

    @classmethod
    def of(cls, settings: ClientSettings, clock: CorrectedClock) -> LeanTransport:
        """One that is set like boto3's client would be."""
        return cls(Source(settings, clock))

    def __call__(self, operation: str, request: Request) -> Mapping[str, Any]:
        return (self._pool or self._opened()).send(operation, request)

    def sibling(self, max_pool_connections: int) -> LeanTransport:
        """The same settings with a pool of its own."""
        return LeanTransport(self.source.sibling(max_pool_connections))

    def asynchronous(self) -> AsyncTransport | None:
        """The same over aiohttp, if that is installed."""
        try:
            from idem_middleware.stores.dynamodb.lean.aio import (  # noqa: PLC0415  # an extra
                AsyncLeanTransport,
            )
        except ImportError:
            return None
        return AsyncLeanTransport(self.source) if AsyncLeanTransport.can_use(self.source.settings) else None

    def after_fork(self) -> None:  # pragma: no cover - runs in children, where nothing is measured
        """Forget the connections of the parent."""
        self._lock = LateLock()
        if self._pool is not None:
            keep_from_closing(self._pool)
            self._pool = None

    def _opened(self) -> Pool:
        line = self.source.line()
        with self._lock:
            if self._pool is None:
                try:
                    self._pool = Pool(line)
                except Exception as exc:
                    error = self.source.refusal(exc)
                    if error is None:
                        raise
                    raise error from exc
            return self._pool


def _manager(network: Network) -> PoolManager:
    settings: dict[str, Any] = {
        "timeout": Timeout(connect=network.connect_seconds, read=network.read_seconds),
        "maxsize": network.max_connections,
        "socket_options": network.socket_options,
    }
    if network.is_tls:
        # urllib3 compares the names by itself, also with contexts that don't.
        settings["ssl_context"] = tls_context(network, check_hostname=False)
    if network.proxy_url is None:
        return PoolManager(**settings)
    forwards = network.proxy_settings.get("proxy_use_forwarding_for_https")
    return proxy_from_url(
        network.proxy_url,
        proxy_headers=dict(network.proxy_headers),
        proxy_ssl_context=_proxy_context(network),
        use_forwarding_for_https=bool(forwards),
        **settings,
    )


def _proxy_context(network: Network) -> SSLContext | None:
    """The context for a proxy with certificates of its own; None where urllib3's will do."""
    bundle, cert = (network.proxy_settings.get(name) for name in ("proxy_ca_bundle", "proxy_client_cert"))
    if bundle is None and cert is None:
        return None
    context: SSLContext = create_urllib3_context()
    try:
        context.check_hostname = True
        if bundle is not None:
            context.load_verify_locations(cafile=bundle)
        if cert is not None:
            context.load_cert_chain(*((cert,) if isinstance(cert, str) else cert))
    except OSError as exc:
        raise exceptions.InvalidProxiesConfigError(error=exc) from exc
    return context


def _request_target(network: Network) -> str:
    """What stands in the request's first line: a proxy that does not tunnel is told the whole URL."""
    if network.proxy_url is not None and (
        not network.is_tls
        or (
            network.proxy_url.startswith("https:")
            and network.proxy_settings.get("proxy_use_forwarding_for_https", False)
        )
    ):
        return network.url
    return network.path


# In botocore's own order: some of urllib3's are kinds of others.
_MEANINGS: tuple[tuple[type[Exception], type[exceptions.BotoCoreError]], ...] = (
    (urllib3_exceptions.SSLError, exceptions.SSLError),
    (urllib3_exceptions.NewConnectionError, exceptions.EndpointConnectionError),
    (socket.gaierror, exceptions.EndpointConnectionError),
    (urllib3_exceptions.ProxyError, exceptions.ProxyConnectionError),
    (urllib3_exceptions.ConnectTimeoutError, exceptions.ConnectTimeoutError),
    (urllib3_exceptions.ReadTimeoutError, exceptions.ReadTimeoutError),
    (urllib3_exceptions.ProtocolError, exceptions.ConnectionClosedError),
    (Exception, exceptions.HTTPClientError),
)


def _as_botocores(exc: Exception, network: Network) -> exceptions.BotoCoreError:
    """The exception that botocore's own session would raise: `faults` knows those."""
    meaning = next(meaning for kind, meaning in _MEANINGS if isinstance(exc, kind))
    return network.failure(meaning, exc)
