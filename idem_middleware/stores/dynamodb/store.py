"""The store on DynamoDB, for callers that may block."""

from __future__ import annotations

import logging
import random as random_numbers
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from idem_middleware.clock import CorrectedClock
from idem_middleware.errors import ConfigurationError
from idem_middleware.events import Observer
from idem_middleware.keys import caller_partition
from idem_middleware.records import Record
from idem_middleware.stores.base import AsyncStore, Cancelled, Found, Gone, Written
from idem_middleware.stores.dynamodb.admin import Admin
from idem_middleware.stores.dynamodb.audit import AuditLog, is_remembered
from idem_middleware.stores.dynamodb.calls import Calls, SkewWatch, Steps, carry_out
from idem_middleware.stores.dynamodb.client import (
    Boto3Transport,
    ClientSettings,
    pinned_config,
    refuse_beside_a_client,
    slowest_seconds,
)
from idem_middleware.stores.dynamodb.describing import TableDescription, describe_table
from idem_middleware.stores.dynamodb.layouts import LAYOUTS, Layout
from idem_middleware.stores.dynamodb.listing import UsedKey, keys_of
from idem_middleware.stores.dynamodb.register import Register
from idem_middleware.stores.dynamodb.requests import INLINE_BYTES
from idem_middleware.stores.dynamodb.sweeping import Swept, sweep
from idem_middleware.stores.dynamodb.table import (
    DEFAULT_TABLE,
    Billing,
    audit_problems,
    check_table,
    create_table,
    table_name_problem,
)
from idem_middleware.stores.dynamodb.transport import TRANSPORTS, PooledTransport, TransportName
from idem_middleware.transactions import Transaction

if TYPE_CHECKING:
    from botocore.config import Config

__all__ = ["DynamoDBStore"]

T = TypeVar("T")

_TWIN_POOL_CONNECTIONS = 10

logger = logging.getLogger("idem_middleware")


class DynamoDBStore:
    """Records in one DynamoDB table. Safe under threads and forks; nothing is connected before the first call.

    `table` is a name or an ARN. Region and credentials are found as boto3 finds them; a `session` or a
    `client_config` (a botocore Config, whose settings win over ours) changes how the client is made. A `client` is
    used as it is: it should have short timeouts and no retries of its own, and must not be used before a fork.

    `transport` says what carries the calls. "boto3" is a client of boto3's, with all that hooks into one. "lean"
    takes credentials, endpoint, timeouts, TLS and proxies from botocore too, but signs and sends by itself, for a
    third of the time; what instruments boto3's clients does not see it. With the extra `aio` it is also native to
    event loops, where anything else runs in threads.

    `layout` is how the table is keyed. "flat": one key, spread evenly. "caller": each caller's records lie together, so
    that `keys_of` can list them; the engine then needs a `caller`. `docs/tables.md` has the price.

    `audit_table` remembers keys for `audit_seconds` after they would have been free and their records are gone. Each
    claim consults it in the same transaction, at a price: `docs/tables.md`. `streams` writes its entries.

    The store tries again by itself until a call's deadline; `deadline_seconds` is how long the engine gives it for
    one decision. It never tells what a record means.

    Raises:
        ConfigurationError: settings that can't be right, all of them at once.

    """

    inline_bytes = INLINE_BYTES
    is_transactional = True

    def __init__(
        self,
        table: str = DEFAULT_TABLE,
        *,
        region: str | None = None,
        endpoint: str | None = None,
        client: Any = None,
        session: Any = None,
        client_config: Config | None = None,
        transport: TransportName = "boto3",
        layout: Layout = "flat",
        audit_table: str | None = None,
        audit_seconds: float = 90 * 86400.0,
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
                _transport_problem(transport, client),
                None if layout in LAYOUTS else f"layout must be one of {', '.join(LAYOUTS)}, not {layout!r}",
                None if audit_table is None else table_name_problem(audit_table),
                None if audit_table != table else "the audit table must be another table",
                None if audit_seconds > 0 else f"audit_seconds must be above 0, not {audit_seconds!r}",
                None if deadline_seconds > 0 else f"deadline_seconds must be above 0, not {deadline_seconds!r}",
                None if max_pool_connections >= 1 else "max_pool_connections must be 1 or more",
            )
            if problem is not None
        ]
        if problems:
            raise ConfigurationError(problems)
        self.table = table
        self.layout: Layout = layout
        self.region = region
        self.audit = None if audit_table is None else AuditLog(audit_table, audit_seconds)
        self.clock: CorrectedClock = CorrectedClock() if clock is None else clock
        self.deadline_seconds = deadline_seconds
        self._pool_connections = max_pool_connections
        self._sleep = sleep
        self._random = random
        self._observers: list[Observer] = []
        self._skew = SkewWatch(self.clock, self._observers)
        if client is not None:
            refuse_beside_a_client(session=session, client_config=client_config, region=region, endpoint=endpoint)
            _warn_if_slow(client, table, deadline_seconds)
        self._client = client
        self._settings = settings = ClientSettings(
            table,
            session=session,
            config=client_config,
            region=region,
            endpoint=endpoint,
            max_pool_connections=max_pool_connections,
        )
        self._use(self._lean(settings) if transport == "lean" else Boto3Transport(settings, client=client))

    def __repr__(self) -> str:
        return f"DynamoDBStore({self.table!r})"

    @property
    def by_caller(self) -> bool:
        """Whether each caller's records lie together, so that their names must say where."""
        return self.layout == "caller"

    @property
    def slowest_call_seconds(self) -> float:
        """How long one call may take until it is given up, all tries of the client's own counted."""
        if self._client is not None:
            return slowest_seconds(self._client)
        config: Any = pinned_config(self._settings.config, self._pool_connections)
        tries = (config.retries or {}).get("total_max_attempts") or 1
        return float(tries * (config.connect_timeout + config.read_timeout))

    def subscribe(self, observer: Observer) -> None:
        """Tell `observer` of retries and of a skewed clock; this store's twins tell it too."""
        if observer not in self._observers:
            self._observers.append(observer)

    # --- the register -------------------------------------------------------------------------------------------------

    def create(self, new: Record, deadline: float) -> Written | Found:
        """As `Store.create`."""
        return self._carry_out(self._register.create(new, deadline))

    def swap(self, old: Record, new: Record, deadline: float) -> Written | Found | Gone:
        """As `Store.swap`.

        Raises:
            StoreUnavailable: also with the code ItemTooLarge, if the record does not fit into an item; at once.

        """
        return self._carry_out(self._register.swap(old, new, deadline))

    def load(self, pk: str, deadline: float) -> Found | Gone:
        """As `Store.load`."""
        return self._carry_out(self._register.load(pk, deadline))

    def transact(
        self, old: Record | None, new: Record, transaction: Transaction, deadline: float
    ) -> Written | Found | Gone | Cancelled:
        """As `Store.transact`: one TransactWriteItems, tried again under the same token where that may help.

        Raises:
            TransactionInvalid: more than 99 actions (98 where the claim asks an audit table, too), over 4 MB, two for
                one item, another region, not well-formed.
            StoreUnavailable: conflicts, throttling or no answer until the deadline; it may have been applied.

        """
        return self._carry_out(self._register.transact(old, new, transaction, deadline))

    def put_chunks(self, owner: Record, chunks: Sequence[bytes], deadline: float) -> None:
        """As `Store.put_chunks`. `owner` is the record that will point at them: they outlive it."""
        self._carry_out(self._register.put_chunks(owner, chunks, deadline))

    def get_chunks(self, owner: Record, count: int, deadline: float) -> Sequence[bytes | None]:
        """As `Store.get_chunks`."""
        return self._carry_out(self._register.get_chunks(owner, count, deadline))

    # --- around it ----------------------------------------------------------------------------------------------------

    def twin(self) -> DynamoDBStore:
        """As `Store.twin`. A client that was given is shared: only its owner could make another."""
        twin = DynamoDBStore(
            self.table,
            layout=self.layout,
            audit_table=None if self.audit is None else self.audit.table,
            audit_seconds=90 * 86400.0 if self.audit is None else self.audit.seconds,
            clock=self.clock,
            deadline_seconds=self.deadline_seconds,
            max_pool_connections=_TWIN_POOL_CONNECTIONS,
            sleep=self._sleep,
            random=self._random,
        )
        twin._observers, twin._skew, twin.region = self._observers, self._skew, self.region
        twin._use(self._transport.sibling(_TWIN_POOL_CONNECTIONS))
        return twin

    def open(self) -> None:
        """Make what the first call would have to make: of boto3's client that takes tens of milliseconds.

        Raises:
            StoreUnavailable: it can't be made.

        """
        make = getattr(self._transport, "get", None)
        if make is not None:
            make()

    def to_async(self) -> AsyncStore:
        """As `Store.to_async`: natively over the lean transport if aiohttp is installed, else in threads.

        There are as many threads as connections, so that none is thrown away after each call.
        """
        from idem_middleware.stores.dynamodb.aio import (  # noqa: PLC0415  # asyncio, only where it is used
            AsyncDynamoDBStore,
            ThreadedTransport,
        )

        transport = self._transport.asynchronous() or ThreadedTransport(self._transport, self._pool_connections)
        return AsyncDynamoDBStore(self, self._register, transport)

    # --- an operator's, none of which the service needs ---------------------------------------------------------------

    def create_table(
        self, *, index: bool = True, billing: Billing = "on-demand", ttl: bool = True, wait_seconds: float = 60.0
    ) -> None:
        """Make the table in this store's layout, as `table.create_table`, and the audit table if there is to be one."""
        tables = [(self.table, index), *([(self.audit.table, False)] if self.audit else [])]
        for table, with_index in tables:
            create_table(
                self._transport,
                table,
                layout=self.layout,
                index=with_index,
                billing=billing,
                ttl=ttl,
                wait_seconds=wait_seconds,
                sleep=self._sleep,
            )

    def check(self, *, ttl: bool = True, homes: Sequence[str] | None = None) -> None:
        """Check the table and our permissions, as `table.check_table`; and the audit table, if there is one."""
        check_table(
            self._transport,
            self.table,
            layout=self.layout,
            ttl=ttl,
            homes=homes,
            audit_table=None if self.audit is None else self.audit.table,
            sleep=self._sleep,
        )

    def remember(self, record: Record, removed_at: float) -> None:
        """Write the audit table's entry of a record that was removed at that instant; for `streams`.

        Doing it twice is harmless. What has failed leaves nothing to remember.

        Raises:
            ConfigurationError: there is no audit table.
            StoreUnavailable: no answer in time.

        """
        if self.audit is None:
            raise ConfigurationError(["there is no audit table: give DynamoDBStore an audit_table"])
        if is_remembered(record):
            self.admin().attempt("put_item", self.audit.put_request(record, removed_at))

    def audit_problems(self) -> list[str]:
        """What is wrong with the audit table, one sentence each; nothing where there is none."""
        if self.audit is None:
            return []
        return list(
            audit_problems(self._transport, self.table, self.audit.table, layout=self.layout, sleep=self._sleep)
        )

    def describe(self, *, ttl: bool = True) -> TableDescription:
        """What the table is like, as `describing.describe_table`."""
        return describe_table(self._transport, self.table, ttl=ttl, sleep=self._sleep)

    def sweep(
        self,
        *,
        units_per_second: float = 25.0,
        max_seconds: float | None = None,
        resume_from: str | None = None,
        on_progress: Callable[[Swept], object] | None = None,
    ) -> Swept:
        """Delete what is over, where there is no TTL, as `sweeping.sweep`."""
        return sweep(
            self.admin(),
            units_per_second=units_per_second,
            max_seconds=max_seconds,
            resume_from=resume_from,
            on_progress=on_progress,
        )

    def keys_of(
        self,
        caller: str,
        *,
        namespace: str = "",
        since: float = 0.0,
        newest_first: bool = False,
        limit: int = 1000,
    ) -> Iterator[UsedKey]:
        """What a caller has used since an instant (unix seconds), by when its last attempt began; at most `limit`.

        Read as it is asked for, strongly consistent, from the local index; `load` gives the record itself.

        Raises:
            ConfigurationError: the layout is not `caller`.
            StoreMisconfigured: the table has no such index.

        """
        if not self.by_caller:
            raise ConfigurationError(["only the layout 'caller' knows which keys are whose"])
        return keys_of(
            self.admin(),
            caller_partition(namespace, caller),
            since=since,
            newest_first=newest_first,
            limit=limit,
        )

    def admin(self) -> Admin:
        """Any other call of an operator's, such as a scan, over this store's connections."""
        return Admin(self._transport, self.table, self._sleep, clock=self.clock)

    def _lean(self, settings: ClientSettings) -> PooledTransport:
        from idem_middleware.stores.dynamodb.lean.blocking import LeanTransport  # noqa: PLC0415  # only who wants it

        return LeanTransport.of(settings, self.clock)

    def _use(self, transport: PooledTransport) -> None:
        self._transport = transport
        calls = Calls(self.table, clock=self.clock, observers=self._observers, skew=self._skew, draw=self._random)
        self._register = Register(self.table, calls, region=self.region, audit=self.audit)

    def _carry_out(self, steps: Steps[T]) -> T:
        return carry_out(steps, self._transport, self._sleep)


def _transport_problem(transport: object, client: object) -> str | None:
    if transport not in TRANSPORTS:
        return f"transport must be one of {', '.join(TRANSPORTS)}, not {transport!r}"
    if transport == "lean" and client is not None:
        return "a client that is given is boto3's: leave transport='lean' out, or the client"
    return None


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
