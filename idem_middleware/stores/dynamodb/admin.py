"""The calls of an operator on one table: patient, and nobody's request waits for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from idem_middleware.clock import CorrectedClock
from idem_middleware.errors import StoreMisconfigured
from idem_middleware.stores.dynamodb.calls import Answer, Calls, ConditionFailed, carry_out
from idem_middleware.stores.dynamodb.requests import Request
from idem_middleware.stores.dynamodb.transport import ClientTransport, Transport

__all__ = ["Admin"]

_PATIENCE_SECONDS = 10.0  # for one call


class Admin:
    """One table, by a client of boto3's or a `Transport`.

    `clock` learns from the answers what time it is, as a store's does.
    """

    def __init__(
        self,
        client: Any,
        table: str,
        sleep: Callable[[float], object] = time.sleep,
        *,
        clock: CorrectedClock | None = None,
    ) -> None:
        self.table = table
        self.clock = CorrectedClock() if clock is None else clock
        self.sleep = sleep
        self._transport = _transport_of(client)
        self._calls = Calls(table, clock=self.clock)

    def call(self, operation: str, request: Request) -> Mapping[str, Any]:
        """What DynamoDB answers; nothing, if a condition did not hold."""
        outcome = self.attempt(operation, request)
        return outcome.response if isinstance(outcome, Answer) else {}

    def attempt(self, operation: str, request: Request) -> Answer | ConditionFailed:
        """As `call`, for whoever wants to know of a condition that did not hold.

        Raises:
            StoreUnavailable: no answer in time, or a refusal.

        """
        steps = self._calls.call(operation, request, self.clock.monotonic() + _PATIENCE_SECONDS)
        return carry_out(steps, self._transport, self.sleep)

    def description(self) -> Mapping[str, Any] | None:
        """What DynamoDB says of the table; None if there is none."""
        try:
            described: Mapping[str, Any] = self.call("describe_table", {"TableName": self.table})["Table"]
        except StoreMisconfigured as exc:
            if exc.code == "ResourceNotFoundException":
                return None
            raise
        return described

    def ttl(self) -> tuple[str, str | None]:
        """The state of the table's TTL, and its attribute."""
        answer = self.call("describe_time_to_live", {"TableName": self.table})
        found = answer.get("TimeToLiveDescription", {})
        return found.get("TimeToLiveStatus", "DISABLED"), found.get("AttributeName")


def _transport_of(client: Any) -> Transport:
    """Clients of boto3 can't be called; a transport can."""
    transport: Transport = client
    return transport if callable(client) else ClientTransport(client)
