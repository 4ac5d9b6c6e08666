"""The boto3 client: made with the first call, once in a process, and again after a fork."""

from __future__ import annotations

import logging
from threading import Lock
from typing import TYPE_CHECKING, Any

from idem_middleware.errors import ConfigurationError
from idem_middleware.stores.dynamodb.faults import Fault, Kind, classify, error_for
from idem_middleware.stores.forks import reset_in_children

if TYPE_CHECKING:
    from botocore.config import Config

__all__ = ["CONNECT_SECONDS", "READ_SECONDS", "LazyClient", "pinned_config", "slowest_seconds"]

# botocore's own are 60 s each: one unreachable endpoint would hold a request for minutes. With these a whole second
# try fits into a deadline of 3 s after a reply was lost (1.4 + 0.05 + 1.4), and it is the second that finds out.
CONNECT_SECONDS = 1.0
READ_SECONDS = 1.4

logger = logging.getLogger("idem_middleware")

# Clients inherited over a fork. They are kept, never closed: closing takes locks that a thread of the parent may have
# held, and says goodbye on connections that the parent still uses.
_inherited: list[object] = []


def pinned_config(user: Config | None, max_pool_connections: int) -> Config:
    """Our settings, with the user's own on top."""
    from botocore.config import Config  # noqa: PLC0415  # with the first call, not with the first import

    ours = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        # The store retries by itself, and has to know of every attempt: their times, and that a write may be its own.
        retries={"mode": "standard", "total_max_attempts": 1},
        max_pool_connections=max_pool_connections,
        tcp_keepalive=True,
        # Both are costs per call, a fifth of it together; what we send is checked by our tests instead.
        parameter_validation=False,
        user_agent="idem-middleware",
    )
    return ours if user is None else ours.merge(user)


def slowest_seconds(client: Any) -> float:
    """How long one call of this client may take until it fails, its own retries' pauses not counted."""
    config = client.meta.config
    tries = (config.retries or {}).get("total_max_attempts") or 1
    return float(tries * (config.connect_timeout + config.read_timeout))


class LazyClient:
    """Gives the one low-level client of this process. Safe under threads.

    A client that the user made is given as it is. One of ours comes from a session of its own: boto3's default session
    must not make clients in two threads at once.
    """

    def __init__(
        self,
        table: str,
        *,
        client: Any = None,
        session: Any = None,
        config: Config | None = None,
        region: str | None = None,
        endpoint: str | None = None,
        max_pool_connections: int = 50,
    ) -> None:
        if client is not None:
            given = {"session": session, "client_config": config, "region": region, "endpoint": endpoint}
            ignored = [name for name, value in given.items() if value is not None]
            if ignored:
                raise ConfigurationError([f"{name} has no effect on a client that is given" for name in ignored])
        self.is_users = client is not None
        self._table = table
        self._session = session
        self._config = config
        self._region = region
        self._endpoint = endpoint
        self._max_pool_connections = max_pool_connections
        self._lock = Lock()
        self._client = client

    def start(self) -> LazyClient:
        """Take part in forks from now on."""
        if not self.is_users:
            reset_in_children(self)
        return self

    def sibling(self, max_pool_connections: int) -> LazyClient:
        """The same settings with a client and a pool of its own; a client that the user made is shared."""
        if self.is_users:
            return self
        return LazyClient(
            self._table,
            session=self._session,
            config=self._config,
            region=self._region,
            endpoint=self._endpoint,
            max_pool_connections=max_pool_connections,
        ).start()

    def get(self) -> Any:
        """Give the client, making it if need be.

        Raises:
            StoreMisconfigured: no region, or settings that boto3 does not take.

        """
        client = self._client
        if client is not None:
            return client
        with self._lock:
            if self._client is None:
                self._client = self._make()
            return self._client

    def after_fork(self) -> None:
        """Forget the parent's client and its connections."""
        self._lock = Lock()
        if self._client is not None:
            _inherited.append(self._client)
            self._client = None

    def _make(self) -> Any:
        import boto3  # noqa: PLC0415  # with the first call, not with the first import

        session = self._session or boto3.Session()
        try:
            return session.client(
                "dynamodb",
                region_name=self._region,
                endpoint_url=self._endpoint,
                config=pinned_config(self._config, self._max_pool_connections),
            )
        except Exception as exc:
            fault = classify(exc)
            if fault is None:
                raise
            # Nothing was sent, so nothing of this is a matter of time.
            made = Fault(Kind.MISCONFIGURED, fault.code, fault.advice or "boto3 can't make a client of these settings")
            raise error_for(made, self._table, "create_client") from exc
