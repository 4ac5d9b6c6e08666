"""A global table with eventual consistency, made of two independent ones and a copier that lags."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from typing import Any

import boto3

from idem_middleware.stores.dynamodb.layouts import item_key, item_name


class LaggingCopier:
    """Copies what was written in one region to the others, when it is told to; the last writer wins.

    It watches the clients of its sessions, one for each region, and notes in which order items were written: that is
    the time stamp by which DynamoDB decides. A write that is older than what stands in the other region is dropped
    there, whole, and nobody is told.
    """

    def __init__(self, table: str, endpoints: Mapping[str, str]) -> None:
        self.table = table
        self._lock = threading.Lock()
        self._ticks = itertools.count(1)
        self._written: dict[str, dict[str, int]] = {region: {} for region in endpoints}
        self._waiting: list[tuple[str, str, int]] = []
        self._clients: dict[str, Any] = {
            region: boto3.client("dynamodb", region_name=region, endpoint_url=url) for region, url in endpoints.items()
        }
        self.sessions = {region: self._watching(region) for region in endpoints}

    def catch_up(self) -> int:
        """Replicate all that was written since; gives the number of writes that lost and are gone."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            return sum(self._copy(source, name, tick) for source, name, tick in waiting)

    def _copy(self, source: str, name: str, tick: int) -> int:
        lost = 0
        if self._written[source][name] != tick:
            return 0  # overwritten at its source meanwhile; that write is copied, too
        item = self._clients[source].get_item(TableName=self.table, Key=item_key(name), ConsistentRead=True)["Item"]
        for region, written in self._written.items():
            if region == source:
                continue
            if written.get(name, 0) > tick:
                lost += 1
                continue
            self._clients[region].put_item(TableName=self.table, Item=item)
            written[name] = tick
        return lost

    def _watching(self, region: str) -> boto3.Session:
        session = boto3.Session(region_name=region)
        for operation in ("PutItem", "UpdateItem"):
            session.events.register(f"provide-client-params.dynamodb.{operation}", _remember)
            session.events.register(f"after-call.dynamodb.{operation}", self._noting(region))
        return session

    def _noting(self, region: str) -> Any:
        def note(parsed: Mapping[str, Any], context: Mapping[str, Any], **_: Any) -> None:
            if "Error" in parsed:
                return
            with self._lock:
                tick = next(self._ticks)
                self._written[region][context["idem_name"]] = tick
                self._waiting.append((region, context["idem_name"], tick))

        return note


def _remember(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    context["idem_name"] = item_name(params.get("Key") or params["Item"])
