"""Records to write, times to write them at, and other data of the store contract."""

from __future__ import annotations

import secrets
from dataclasses import replace

from idem_middleware.records import Chunks, KeptResponse, OmittedResponse, Record, Status
from idem_middleware.stores.base import Store

__all__ = ["LARGE_ANSWER", "NOW", "SHAPES", "SMALL_ANSWER", "after", "lives", "new_pk", "pending", "soon"]

NOW = 4_000_000_000.25
"""Far in the future: DynamoDB Local really sweeps what is over, every ten seconds."""


def new_pk() -> str:
    """A key that no other test has."""
    return secrets.token_hex(32)


def pending(pk: str, *, owner: str = "a" * 32, version: int = 1, now: float = NOW) -> Record:
    """A claim of one minute."""
    return Record(
        pk=pk,
        status=Status.PENDING,
        version=version,
        owner=owner,
        attempt=1,
        fingerprint=b"\x01" + b"f" * 32,
        caller_digest=b"c" * 32,
        created_at=now,
        expires_at=now + 60.0,
        bound_until=now + 86400.0,
    )


def after(old: Record, **changes: object) -> Record:
    """The next version of a record, with these changes."""
    return replace(old, version=old.version + 1, **changes)  # type: ignore[arg-type]


SMALL_ANSWER = KeptResponse(
    status=201,
    headers=(
        ("content-type", "application/json"),
        ("X-Twice", "one"),
        ("x-twice", "two"),
        ("x-latin", "caf\xe9"),
        ("x-empty", ""),
    ),
    body=b'{"id": 1}\x00\xff',
)
LARGE_ANSWER = KeptResponse(
    status=200,
    headers=(),
    encoding="deflate",
    chunks=Chunks(count=3, size_bytes=1_000_000, sha256=bytes(range(32))),
)


def lives(pk: str) -> dict[str, Record]:
    """One record of every shape, by name."""
    claim = pending(pk)
    completed = after(claim, status=Status.COMPLETED, response=SMALL_ANSWER)
    return {
        "pending": claim,
        "pending with a checkpoint": replace(claim, checkpoint=b"\x00paid"),
        "pending after a transaction": replace(claim, checkpoint=b"paid", transaction="t" * 32),
        "pending without a caller's digest": replace(claim, caller_digest=None),
        "failed": after(claim, status=Status.FAILED, attempt=0, checkpoint=b""),
        "completed": completed,
        "completed with an empty body": replace(completed, response=replace(SMALL_ANSWER, body=b"")),
        "completed in chunks": replace(completed, response=LARGE_ANSWER),
        "completed without an answer": replace(completed, response=OmittedResponse(reason="response-not-stored")),
        "completed with a location": replace(
            completed, response=OmittedResponse(reason="response-not-stored", location="/payments/1")
        ),
        "of a thousand attempts": replace(claim, attempt=1000, version=2**40),
    }


SHAPES = tuple(lives("0" * 64))


def soon(store: Store, seconds: float = 30.0) -> float:
    """A deadline that no test reaches."""
    return store.clock.monotonic() + seconds
