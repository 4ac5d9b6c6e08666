"""Where a lean transport gets everything from: a client of boto3's is made once, asked, and let go."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import InvalidConfigError, NoCredentialsError

from idem_middleware.clock import CorrectedClock
from idem_middleware.errors import StoreUnavailable
from idem_middleware.stores.dynamodb.client import ClientSettings, cannot_be_made
from idem_middleware.stores.dynamodb.faults import Kind, classify
from idem_middleware.stores.dynamodb.lean.mocks import intercepted, interceptors
from idem_middleware.stores.dynamodb.lean.network import Network, network_of
from idem_middleware.stores.dynamodb.lean.signing import Keys, Signer
from idem_middleware.stores.dynamodb.lean.wire import action_of, decode, encode
from idem_middleware.stores.dynamodb.requests import Request
from idem_middleware.stores.forks import LateLock, reset_in_children

__all__ = ["Line", "Prepared", "Source"]

_SIGNED = re.compile(r"AWS4-HMAC-SHA256 Credential=[^/]+/\d{8}/([^/]+)/([^/]+)/aws4_request,")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that is ready to be sent."""

    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Line:
    """All that it takes to talk to one table's endpoint."""

    network: Network
    credentials: Any
    signer: Signer
    target: str
    """The name space of the actions: DynamoDB_20120810."""
    user_agent: str
    now: Callable[[], float]

    def prepare(self, operation: str, request: Request, keys: Keys) -> Prepared:
        """Write the request and sign it, at the store's time rather than the machine's."""
        body = encode(request)
        headers = self.signer.headers(keys, f"{self.target}.{action_of(operation)}", body, self.now())
        headers["User-Agent"] = self.user_agent
        headers["Accept-Encoding"] = "identity"  # the checksum is one of what is sent
        return Prepared(headers, body)

    def intercept(self, operation: str, prepared: Prepared) -> dict[str, Any] | None:
        """Give the answer of whoever stands in for AWS in this process; None where nobody does."""
        handlers = interceptors()
        if not handlers:
            return None
        answer = intercepted(handlers, self.network.url, prepared.headers, prepared.body, action_of(operation))
        return None if answer is None else decode(operation, *answer)


class Source:
    """Gives the line, finding out about it when it is first needed, and again after a fork. Safe under threads."""

    def __init__(self, settings: ClientSettings, clock: CorrectedClock) -> None:
        self.settings = settings
        self._clock = clock
        self._lock = LateLock()
        self._line: Line | None = None
        reset_in_children(self)

    def sibling(self, max_pool_connections: int) -> Source:
        """The same settings for another pool."""
        return Source(replace(self.settings, max_pool_connections=max_pool_connections), self._clock)

    @property
    def known(self) -> Line | None:
        """The line, if it is known already."""
        return self._line

    def line(self) -> Line:
        """The line. The first call reads files, and may ask the network for credentials.

        Raises:
            StoreMisconfigured: no region, no credentials, or settings that can't be met.
            BotoCoreError: whoever gives out credentials did not answer.

        """
        line = self._line
        if line is not None:
            return line
        with self._lock:
            if self._line is None:
                try:
                    self._line = _found_out(self.settings, self._clock.now)
                except Exception as exc:
                    fault = classify(exc)
                    error = self.refusal(exc)
                    if error is None or fault is None or fault.kind is Kind.RETRY:
                        raise
                    raise error from exc
            return self._line

    def refusal(self, exc: Exception) -> StoreUnavailable | None:
        """The error to raise where no connection can be prepared; None where `exc` is a bug."""
        return cannot_be_made(exc, self.settings.table, "the lean transport")

    def after_fork(self) -> None:  # pragma: no cover - runs in children, where nothing is measured
        """Forget the credentials too: a thread of the parent may have been renewing them, under their lock."""
        self._lock = LateLock()
        self._line = None


def _found_out(settings: ClientSettings, now: Callable[[], float]) -> Line:
    session = settings.new_session()
    client = settings.new_client(session)
    credentials = session.get_credentials()
    if credentials is None:
        raise NoCredentialsError
    specimen = _specimen(client, settings.table)
    # botocore signs with its own choice of region and service, which are not always those of the client.
    signed = _SIGNED.match(_text(specimen.headers.get("Authorization", "")))
    if signed is None:
        raise InvalidConfigError(error_msg="the lean transport signs by signature version 4 alone")
    # boto3 offers no public way to this one setting.
    ca_bundle = session._session.get_config_variable("ca_bundle")  # noqa: SLF001
    return Line(
        network=network_of(specimen.url, client.meta.config, ca_bundle, os.environ),
        credentials=credentials,
        signer=Signer(specimen.url, *signed.groups()),
        target=_text(specimen.headers["X-Amz-Target"]).partition(".")[0],
        user_agent=_text(specimen.headers["User-Agent"]),
        now=now,
    )


class _Empty(BytesIO):
    """The body of an answer, as botocore reads one."""

    def stream(self) -> Iterator[bytes]:
        """All of it."""
        yield self.read()


def _specimen(client: Any, table: str) -> AWSPreparedRequest:
    """Have the client make a request, and keep it from being sent: the one that says what it sends, and where to.

    The endpoint depends on more than the region: on the environment, files, FIPS, and the account of table and keys.
    """
    seen: list[AWSPreparedRequest] = []

    def answer(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        seen.append(request)
        nothing: Any = {}
        return AWSResponse(request.url, 200, nothing, _Empty(b"{}"))

    client.meta.events.register_first("before-send.dynamodb", answer)
    client.get_item(TableName=table, Key={"pk": {"S": "-"}})
    return seen[-1]


def _text(header: Any) -> str:
    return header.decode("latin-1") if isinstance(header, bytes) else str(header)
