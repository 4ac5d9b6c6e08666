"""What a table is like, and how it is brought to what it should be: the calls of `table` and `doctor`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from idem_middleware.errors import StoreUnavailable
from idem_middleware.stores.dynamodb import DynamoDBStore
from idem_middleware.stores.dynamodb.describing import TableDescription, description_of

__all__ = ["NOT_KNOWN_THERE", "Change", "TableState", "changes", "look", "wait_until_active"]

Answer = TypeVar("Answer")

_POLL_SECONDS = 1.0
_MOST_POLLS = 120  # an UpdateTable usually takes seconds; a change of encryption minutes

NOT_KNOWN_THERE = "UnknownOperationException"
"""The code by which an emulator says that it does not have something."""

_NO_SUCH_CALL = "this endpoint has no such call"
_TOLD_BY = {"update_continuous_backups": "recovery", "tag_resource": "tags"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """What is there. None where the endpoint does not tell, with the reason in `untold`."""

    table: TableDescription
    encryption: str
    recovery: bool | None = None
    tags: Mapping[str, str] | None = None
    untold: Mapping[str, str]


def look(store: DynamoDBStore) -> TableState:
    """Ask for everything that can be asked without reading an item.

    Raises:
        StoreUnavailable: the table can't be described; a missing right to something lesser goes into `untold`.

    """
    admin = store.admin()
    described = admin.call("describe_table", {"TableName": store.table})["Table"]
    untold: dict[str, str] = {}

    def ask(what: str, question: Callable[[], Answer]) -> Answer | None:
        try:
            return question()
        except StoreUnavailable as error:
            untold[what] = _NO_SUCH_CALL if error.code == NOT_KNOWN_THERE else str(error)
            return None

    name = {"TableName": store.table}
    arn = {"ResourceArn": described.get("TableArn", store.table)}
    ttl = ask("ttl", admin.ttl)
    backups = ask("recovery", lambda: admin.call("describe_continuous_backups", name))
    tags = ask("tags", lambda: admin.call("list_tags_of_resource", arn))
    return TableState(
        table=description_of(described, *(ttl or (None, None))),
        encryption=_encryption(described),
        recovery=None if backups is None else _recovers(backups),
        tags=None if tags is None else {tag["Key"]: tag["Value"] for tag in tags.get("Tags", ())},
        untold=untold,
    )


def _encryption(described: Mapping[str, Any]) -> str:
    """Whose key the table is encrypted with."""
    found = described.get("SSEDescription", {})
    if found.get("Status") not in ("ENABLED", "UPDATING", "ENABLING"):
        return "aws-owned"
    return f"KMS {found.get('KMSMasterKeyArn', '')}".strip()


def _recovers(backups: Mapping[str, Any]) -> bool:
    found = backups.get("ContinuousBackupsDescription", {}).get("PointInTimeRecoveryDescription", {})
    return bool(found.get("PointInTimeRecoveryStatus") == "ENABLED")


@dataclass(frozen=True, slots=True)
class Change:
    """One thing to do to a table; `carry_out` does it."""

    what: str
    operation: str
    request: Mapping[str, Any]

    def carry_out(self, store: DynamoDBStore) -> None:
        """Do it.

        Raises:
            StoreUnavailable: not done; the code NOT_KNOWN_THERE from an emulator.

        """
        store.admin().call(self.operation, dict(self.request))

    def is_known_to_be_impossible(self, state: TableState) -> bool:
        """Whether the endpoint, an emulator, has said already that it has no such thing."""
        return state.untold.get(_TOLD_BY.get(self.operation, "")) == _NO_SUCH_CALL


def changes(
    state: TableState,
    table: str,
    *,
    on_demand: bool | None,
    recovery: bool,
    deletion_protection: bool,
    tags: Mapping[str, str],
    kms: bool | str | None,
) -> Iterator[Change]:
    """What must be done to bring the table there. None leaves a thing as it is; TTL is `create_table`'s own matter."""
    name = {"TableName": table}
    if on_demand and state.table.billing != "on-demand":
        yield Change("bill it on demand", "update_table", {**name, "BillingMode": "PAY_PER_REQUEST"})
    if deletion_protection and not state.table.deletion_protection:
        yield Change("protect it from deletion", "update_table", {**name, "DeletionProtectionEnabled": True})
    if kms and state.encryption == "aws-owned":
        specification = {"Enabled": True, "SSEType": "KMS"}
        if isinstance(kms, str):
            specification["KMSMasterKeyId"] = kms
        yield Change("encrypt it with a key of KMS", "update_table", {**name, "SSESpecification": specification})
    if recovery and not state.recovery:
        yield Change(
            "switch point-in-time recovery on",
            "update_continuous_backups",
            {**name, "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True}},
        )
    missing = {key: value for key, value in tags.items() if (state.tags or {}).get(key) != value}
    if missing:
        yield Change(
            f"tag it with {', '.join(f'{key}={value}' for key, value in missing.items())}",
            "tag_resource",
            {
                "ResourceArn": state.table.arn or table,
                "Tags": [{"Key": key, "Value": value} for key, value in missing.items()],
            },
        )


def wait_until_active(store: DynamoDBStore, sleep: Callable[[float], object]) -> None:
    """Wait until an earlier change is done: DynamoDB takes one at a time.

    Raises:
        StoreUnavailable: it took too long.

    """
    status = "unknown"
    for _ in range(_MOST_POLLS):
        status = store.describe(ttl=False).status
        if status == "ACTIVE":
            return
        sleep(_POLL_SECONDS)
    raise StoreUnavailable(f"DynamoDB table {store.table!r} is still being changed; try again later", code=status)
