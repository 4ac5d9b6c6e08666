"""The record under a key, and the one table of the states that it can take.

All instants are unix seconds, all durations seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import floor

from idem_middleware.messages import HeaderPairs

__all__ = [
    "SCHEMA_VERSION",
    "TRANSITIONS",
    "Chunks",
    "KeptResponse",
    "OmittedResponse",
    "Record",
    "SealedResponse",
    "Status",
    "Transition",
]

SCHEMA_VERSION = 1
TTL_SLACK_SECONDS = 60
"""The sweeper's clock is not ours: it may delete a record a minute after the key was free anyway."""


class Status(StrEnum):
    """What a record says about its key."""

    PENDING = "PENDING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Transition:
    """One edge of the state table; `before` is None where nothing stands under the key."""

    name: str
    before: Status | None
    after: Status
    when: str


# The whole life of a record. `swap` writes nothing that is not here; the documentation's diagram is made from it.
TRANSITIONS = (
    Transition("claim", None, Status.PENDING, "the key is free"),
    Transition("renew", Status.PENDING, Status.PENDING, "the owner lives"),
    Transition("take over", Status.PENDING, Status.PENDING, "the lease is over"),
    Transition("complete", Status.PENDING, Status.COMPLETED, "the answer is final"),
    Transition("fail", Status.PENDING, Status.FAILED, "the answer is not kept"),
    Transition("run again", Status.FAILED, Status.PENDING, "a retry comes"),
    Transition("erase", Status.COMPLETED, Status.COMPLETED, "its answer is erased"),
    Transition("bind anew", Status.COMPLETED, Status.PENDING, "the retention is over"),
)


@dataclass(frozen=True, slots=True)
class Chunks:
    """Where a body lies that is too large for the claim's own item; sizes and hash are of the encoded bytes."""

    count: int
    size_bytes: int
    sha256: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptResponse:
    """A stored answer. Exactly one of `body` and `chunks` is set; both are in `encoding`."""

    status: int
    headers: HeaderPairs
    encoding: str = "identity"
    body: bytes | None = None
    chunks: Chunks | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OmittedResponse:
    """The work is done (or its outcome will never be known), and no answer can be given again.

    `reason` is the name of the problem that a retry gets.
    """

    reason: str
    location: str | None = None


@dataclass(frozen=True, slots=True)
class SealedResponse:
    """A kept or an omitted response under the service's cipher; `sealing` says what is in it."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What stands under one key. Immutable: every write is a new record with `version` + 1.

    `expires_at` ends what the status says: the lease (PENDING), the pause before a retry (FAILED), the retention
    (COMPLETED). From `bound_until` on the key is free, whatever stands there. `transaction` names the last one that
    wrote something else together with this record; like `checkpoint` it is kept until the key is bound anew. `audited`:
    the record itself is gone, and this is what an audit log knows of it.
    """

    pk: str
    status: Status
    version: int
    owner: str
    attempt: int
    fingerprint: bytes
    caller_digest: bytes | None
    created_at: float
    expires_at: float
    bound_until: float
    response: KeptResponse | OmittedResponse | SealedResponse | None = None
    checkpoint: bytes | None = None
    transaction: str | None = None
    schema: int = SCHEMA_VERSION
    audited: bool = False

    @property
    def has_written(self) -> bool:
        """Whether an attempt under this key left something that the next one has to know of."""
        return self.checkpoint is not None or self.transaction is not None

    @property
    def ttl(self) -> int:
        """When DynamoDB's sweeper may delete the item: whole unix seconds, later than `bound_until`."""
        return floor(self.bound_until) + TTL_SLACK_SECONDS
