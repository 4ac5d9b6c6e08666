"""The boto3 client: when it is made, how it is set, and the transport that it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from idem_middleware.errors import ConfigurationError, StoreUnavailable
from idem_middleware.stores.dynamodb.faults import Fault, Kind, classify, error_for
from idem_middleware.stores.dynamodb.requests import Request
from idem_middleware.stores.dynamodb.transport import AsyncTransport, keep_from_closing
from idem_middleware.stores.forks import LateLock, reset_in_children

if TYPE_CHECKING:
    from botocore.config import Config

__all__ = [
    "CONNECT_SECONDS",
    "READ_SECONDS",
    "Boto3Transport",
    "ClientSettings",
    "cannot_be_made",
    "pinned_config",
    "refuse_beside_a_client",
    "slowest_seconds",
]

# botocore's own are 60 s each: one unreachable endpoint would hold a request for minutes. With these a whole second
# try fits into a deadline of 3 s after a reply was lost (1.4 + 0.05 + 1.4), and it is the second that finds out.
CONNECT_SECONDS = 1.0
READ_SECONDS = 1.4


# What a read gives if it found something.
_READ = {"get_item": "Item", "batch_get_item": "Responses"}


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


def cannot_be_made(exc: Exception, table: str, maker: str) -> StoreUnavailable | None:
    """The error to raise where no connection can be prepared; None where `exc` is a bug.

    Nothing was sent, so nothing of this is a matter of time.
    """
    fault = classify(exc)
    if fault is None:
        return None
    made = Fault(Kind.MISCONFIGURED, fault.code, fault.advice or f"{maker} can't work with these settings")
    return error_for(made, table, "create_client")


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """What a user said about how DynamoDB is reached."""

    table: str
    session: Any = None
    config: Config | None = None
    region: str | None = None
    endpoint: str | None = None
    max_pool_connections: int = 50

    def new_session(self) -> Any:
        """The user's session, or one of ours: boto3's default one must not make clients in two threads at once."""
        import boto3  # noqa: PLC0415  # with the first call, not with the first import

        return self.session or boto3.Session()

    def new_client(self, session: Any) -> Any:
        """A low-level client of that session, with these settings."""
        return session.client(
            "dynamodb",
            region_name=self.region,
            endpoint_url=self.endpoint,
            config=pinned_config(self.config, self.max_pool_connections),
        )


class Boto3Transport:
    """Sends by the one low-level client of this process. Safe under threads.

    It is made with the first call, once in a process, and again after a fork. A client that the user made is used as
    it is.
    """

    def __init__(self, settings: ClientSettings, *, client: Any = None) -> None:
        self.is_users = client is not None
        self._settings = settings
        self._lock = LateLock()
        self._client = client
        if not self.is_users:
            reset_in_children(self)

    def __call__(self, operation: str, request: Request) -> Mapping[str, Any]:
        try:
            answer: Mapping[str, Any] = getattr(self._client or self.get(), operation)(**request)
        except UnicodeDecodeError as exc:  # which botocore lets out where it parses an answer
            raise _unread(operation) from exc
        member = _READ.get(operation)
        if member is not None and member not in answer and not _is_empty(answer):
            raise _unread(operation)
        return answer

    def sibling(self, max_pool_connections: int) -> Boto3Transport:
        """The same settings with a client and a pool of its own; a client that the user made is shared."""
        if self.is_users:
            return self
        return Boto3Transport(replace(self._settings, max_pool_connections=max_pool_connections))

    def asynchronous(self) -> AsyncTransport | None:
        """Clients of boto3 block."""
        return None

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

    def after_fork(self) -> None:  # pragma: no cover - runs in children, where nothing is measured
        """Forget the parent's client and its connections."""
        self._lock = LateLock()
        if self._client is not None:
            keep_from_closing(self._client)
            self._client = None

    def _make(self) -> Any:
        try:
            return self._settings.new_client(self._settings.new_session())
        except Exception as exc:
            error = cannot_be_made(exc, self._settings.table, "boto3")
            if error is None:
                raise
            raise error from exc


def _is_empty(answer: Mapping[str, Any]) -> bool:
    """Whether DynamoDB's answer was empty: there is no such item, which it says by two bytes.

    Botocore takes an answer that it can't parse, cut off or no JSON, for an empty one. One that says something else has
    been parsed: a user's session may ask for the consumed capacity with every call.
    """
    if answer.keys() - {"ResponseMetadata"}:
        return True
    metadata = answer.get("ResponseMetadata")
    headers = metadata.get("HTTPHeaders") if isinstance(metadata, Mapping) else None
    return not isinstance(headers, Mapping) or headers.get("content-length") in (None, "2")


def _unread(operation: str) -> Exception:
    from botocore.parsers import ResponseParserError  # noqa: PLC0415  # only where boto3 is loaded already

    error: Exception = ResponseParserError(f"the answer to {operation} is no JSON object")
    return error


def refuse_beside_a_client(**given: object) -> None:
    """Settings that would have no effect on a client that is given.

    Raises:
        ConfigurationError: there are some.

    """
    ignored = [name for name, value in given.items() if value is not None]
    if ignored:
        raise ConfigurationError([f"{name} has no effect on a client that is given" for name in ignored])
