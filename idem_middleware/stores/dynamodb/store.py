"""The store on DynamoDB: each of its calls is one of DynamoDB's, and nothing is interpreted here."""

from __future__ import annotations

import logging
import random as random_numbers
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from idem_middleware.clock import CorrectedClock
from idem_middleware.errors import ConfigurationError, StoreUnavailable
from idem_middleware.events import Observer
from idem_middleware.records import Record
from idem_middleware.stores.base import GONE, WRITTEN, AsyncStore, Found, Gone, Written
from idem_middleware.stores.dynamodb.calls import Answer, Calls, ConditionFailed, SkewWatch
from idem_middleware.stores.dynamodb.client import LazyClient, slowest_seconds
from idem_middleware.stores.dynamodb.faults import Fault, Kind
from idem_middleware.stores.dynamodb.items import chunk_data, chunk_pk, record_of
from idem_middleware.stores.dynamodb.requests import (
    BATCH_KEYS,
    INLINE_BYTES,
    create_request,
    get_chunk_request,
    get_chunks_request,
    load_request,
    put_chunk_request,
    swap_request,
)
from idem_middleware.stores.dynamodb.table import (
    DEFAULT_TABLE,
    Billing,
    check_table,
    create_table,
    table_name_problem,
)

if TYPE_CHECKING:
    from botocore.config import Config

__all__ = ["DynamoDBStore"]

_TWIN_POOL_CONNECTIONS = 10
_MOST_VANISHINGS = 3
"""A record that stops a create and is gone when looked at: a sweeper's work, once. More often, something is wrong."""

logger = logging.getLogger("idem_middleware")


class DynamoDBStore:
    """Records in one DynamoDB table. Safe under threads and forks; nothing is connected before the first call.

    `table` is a name or an ARN. Region and credentials are found as boto3 finds them; a `session` or a
    `client_config` (a botocore Config, whose settings win over ours) changes how the client is made. A `client` is
    used as it is: it should have short timeouts and no retries of its own, and must not be used before a fork.

    The store tries again by itself until a call's deadline; `deadline_seconds` is how long the engine gives it for
    one decision. It never tells what a record means.

    Raises:
        ConfigurationError: settings that can't be right, all of them at once.

    """

    inline_bytes = INLINE_BYTES

    def __init__(
        self,
        table: str = DEFAULT_TABLE,
        *,
        region: str | None = None,
        endpoint: str | None = None,
        client: Any = None,
        session: Any = None,
        client_config: Config | None = None,
        clock: CorrectedClock | None = None,
        deadline_seconds: float = 3.0,
        max_pool_connections: int = 50,
        sleep: Callable[[float], object] = time.sleep,
        random: Callable[[], float] = random_numbers.random,
    ) -> None:
        problems = [
            problem
            for problem in (
                table_name_problem(table),
                _endpoint_problem(endpoint),
                None if deadline_seconds > 0 else f"deadline_seconds must be above 0, not {deadline_seconds!r}",
                None if max_pool_connections >= 1 else "max_pool_connections must be 1 or more",
            )
            if problem is not None
        ]
        if problems:
            raise ConfigurationError(problems)
        self.table = table
        self.clock: CorrectedClock = clock or CorrectedClock()
        self.deadline_seconds = deadline_seconds
        self._pool_connections = max_pool_connections
        self._sleep = sleep
        self._random = random
        self._observers: list[Observer] = []
        self._skew = SkewWatch(self.clock, self._observers)
        lazy_client = LazyClient(
            table,
            client=client,
            session=session,
            config=client_config,
            region=region,
            endpoint=endpoint,
            max_pool_connections=max_pool_connections,
        )
        self._use(lazy_client.start())
        if client is not None:
            _warn_if_slow(client, table, deadline_seconds)

    def __repr__(self) -> str:
        return f"DynamoDBStore({self.table!r})"

    def subscribe(self, observer: Observer) -> None:
        """Tell `observer` of retries and of a skewed clock; this store's twins tell it too."""
        if observer not in self._observers:
            self._observers.append(observer)

    # --- the register -------------------------------------------------------------------------------------------------

    def create(self, new: Record, deadline: float) -> Written | Found:
        """As `Store.create`."""
        request = create_request(self.table, new)
        for _ in range(_MOST_VANISHINGS):
            match self._calls("put_item", request, deadline, pk=new.pk):
                case Answer():
                    return WRITTEN
                case ConditionFailed(item=item):
                    found = self._standing(item, new.pk, deadline)
                    if isinstance(found, Found):
                        return found
        raise StoreUnavailable(
            f"DynamoDB table {self.table!r}: a record stopped a write {_MOST_VANISHINGS} times, and none is there",
            code="ConditionalCheckFailedException",
        )

    def swap(self, old: Record, new: Record, deadline: float) -> Written | Found | Gone:
        """As `Store.swap`.

        Raises:
            StoreUnavailable: also with the code ItemTooLarge, if the record does not fit into an item; at once.

        """
        match self._calls("update_item", swap_request(self.table, old, new), deadline, pk=new.pk):
            case Answer():
                return WRITTEN
            case ConditionFailed(item=item):
                return self._standing(item, new.pk, deadline)

    def load(self, pk: str, deadline: float) -> Found | Gone:
        """As `Store.load`."""
        item = self._read(load_request(self.table, pk), pk, deadline)
        return GONE if item is None else Found(record_of(item, pk))

    def _standing(self, item: object | None, pk: str, deadline: float) -> Found | Gone:
        """What stopped a write: as the write itself tells, else (no item, or an old emulator) as a read does."""
        return self.load(pk, deadline) if not item else Found(record_of(item, pk))

    # --- bodies -------------------------------------------------------------------------------------------------------

    def put_chunks(self, owner: Record, chunks: Sequence[bytes], deadline: float) -> None:
        """As `Store.put_chunks`. `owner` is the record that will point at them: they outlive it."""
        for number, data in enumerate(chunks):
            self._calls("put_item", put_chunk_request(self.table, owner, number, data), deadline, pk=owner.pk)

    def get_chunks(self, owner: Record, count: int, deadline: float) -> Sequence[bytes | None]:
        """As `Store.get_chunks`."""
        if count == 1:
            item = self._read(get_chunk_request(self.table, owner, 0), owner.pk, deadline)
            return [None if item is None else chunk_data(item)]
        pks = [chunk_pk(owner, number) for number in range(count)]
        found: dict[str, bytes | None] = {}
        for start in range(0, count, BATCH_KEYS):
            self._read_batch(pks[start : start + BATCH_KEYS], found, owner.pk, deadline)
        return [found.get(pk) for pk in pks]

    def _read(self, request: dict[str, Any], pk: str, deadline: float) -> object | None:
        outcome = self._calls("get_item", request, deadline, pk=pk)
        return outcome.response.get("Item") if isinstance(outcome, Answer) else None

    def _read_batch(self, pks: Sequence[str], found: dict[str, bytes | None], pk: str, deadline: float) -> None:
        """Read until nothing is left over: DynamoDB leaves off beyond 16 MB a call, and where it throttles."""
        tries = 0
        while pks:
            outcome = self._calls("batch_get_item", get_chunks_request(self.table, pks), deadline, pk=pk)
            response = outcome.response if isinstance(outcome, Answer) else {}
            items = [item for table in response.get("Responses", {}).values() for item in table]
            found.update((item["pk"]["S"], chunk_data(item)) for item in items)
            left = [key["pk"]["S"] for part in response.get("UnprocessedKeys", {}).values() for key in part["Keys"]]
            # Progress means the 16 MB: go on at once. None means throttling: wait.
            tries = 0 if items else tries + 1
            if left and not items and not self._calls.pause(tries, deadline, _LEFT_OVER, pk=pk):
                raise StoreUnavailable(
                    f"DynamoDB table {self.table!r} left {len(left)} chunks of a body unread", code=_LEFT_OVER.code
                )
            pks = left

    # --- around it ----------------------------------------------------------------------------------------------------

    def twin(self) -> DynamoDBStore:
        """As `Store.twin`. A client that was given is shared: only its owner could make another."""
        twin = DynamoDBStore(
            self.table,
            clock=self.clock,
            deadline_seconds=self.deadline_seconds,
            max_pool_connections=_TWIN_POOL_CONNECTIONS,
            sleep=self._sleep,
            random=self._random,
        )
        twin._observers, twin._skew = self._observers, self._skew
        twin._use(self._client.sibling(_TWIN_POOL_CONNECTIONS))
        return twin

    def to_async(self) -> AsyncStore:
        """As `Store.to_async`: as many threads as connections, so that none is thrown away after each call."""
        from idem_middleware.stores.threaded import ThreadedStore  # noqa: PLC0415  # asyncio, only where it is used

        return ThreadedStore(self, max_workers=self._pool_connections)

    def create_table(self, *, billing: Billing = "on-demand", ttl: bool = True, wait_seconds: float = 60.0) -> None:
        """Make the table, as `table.create_table`."""
        create_table(
            self._client.get(), self.table, billing=billing, ttl=ttl, wait_seconds=wait_seconds, sleep=self._sleep
        )

    def check(self, *, ttl: bool = True) -> None:
        """Check the table and our permissions, as `table.check_table`."""
        check_table(self._client.get(), self.table, ttl=ttl, sleep=self._sleep)

    def _use(self, client: LazyClient) -> None:
        self._client = client
        self._calls = Calls(
            client.get,
            self.table,
            clock=self.clock,
            observers=self._observers,
            skew=self._skew,
            sleep=self._sleep,
            draw=self._random,
        )


_LEFT_OVER = Fault(Kind.RETRY, "UnprocessedKeys")


def _endpoint_problem(endpoint: object) -> str | None:
    if endpoint is None:
        return None
    if isinstance(endpoint, str):
        try:
            parts = urlsplit(endpoint)
            if parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port):
                return None
        except ValueError:  # a port that is none
            pass
    return f"endpoint must be an http or https URL, not {endpoint!r}"


def _warn_if_slow(client: Any, table: str, deadline_seconds: float) -> None:
    """A client that was given is left alone; but whoever gave it should know what it can do to a request."""
    try:
        slowest = slowest_seconds(client)
    except (AttributeError, TypeError):  # a stub, a proxy
        return
    if slowest > deadline_seconds:
        logger.warning(
            "the client given for DynamoDB table %r may take %g s for one call, the deadline is %g s: "
            "give it shorter timeouts and no retries, or let the store make its own",
            table,
            slowest,
            deadline_seconds,
        )
