"""What is asked for: works with keys, and the flows of requests that clients send for each. The same for each seed."""

from __future__ import annotations

import base64
import hashlib
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from idem_middleware.keys import record_pk, short_digest

_SLOW_LEASES = 1.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One request that a client wants to be done once, and how its handler shall behave."""

    name: str
    key: str
    caller: str | None = None
    credentials: str | None = None
    body: bytes
    shape: str = "echo"
    delay: float = 0.0
    failures: tuple[Mapping[str, Any], ...] = ()
    seed: int = 0

    @property
    def path(self) -> str:
        """Where it is sent to."""
        return f"/{'probe' if self.caller is None else 'tenant'}/{self.name}"

    @property
    def body_sha256(self) -> str:
        """What tells its body."""
        return hashlib.sha256(self.body).hexdigest()

    @property
    def digest(self) -> str:
        """How the product's events call its key."""
        return short_digest(record_pk("", self.caller, self.key))

    @property
    def streams(self) -> bool:
        """Whether its answer comes in pieces."""
        return self.shape == "stream"

    def fails(self, number: int) -> bool:
        """Whether the handler of this flow's try of that number is told to fail."""
        return number < len(self.failures)

    def headers(self, identity: str, number: int) -> dict[str, str]:
        """Make the headers of one try. What the handler answers names the try that it ran for."""
        plan: dict[str, Any] = {"status": 201, "delay": self.delay, "headers": [["X-Answer-Of", identity]]}
        if self.fails(number):
            plan.update(self.failures[number])
        elif self.shape == "echo":
            plan["echo"] = True
        else:
            chance = random.Random(self.seed)  # noqa: S311  # made up, not secret
            plan["body_b64"] = base64.b64encode(chance.randbytes(chance.randint(5000, 12000))).decode()
            if self.shape == "stream":
                plan.update(chunks=3, chunk_delay=0.01)
        return {
            "Content-Type": "application/json",
            "Idempotency-Key": f'"{self.key}"',
            "X-Plan": json.dumps(plan),
            "X-Try": identity,
            **({} if self.caller is None else {"X-Tenant": self.caller}),
            **({} if self.credentials is None else {"Authorization": f"Bearer {self.credentials}"}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One client with one work: it tries until it has its answer, and perhaps asks again for what it has already."""

    work: Work
    again: int = 0
    impatience: float = 0.0
    seed: int


def flows(seed: int, lease_seconds: float) -> Iterator[Flow]:
    """Give flows without an end; those for one key come together, so that they meet."""
    number = 0
    while True:
        chance = random.Random(f"{seed}/{number}")  # noqa: S311  # made up, not secret
        yield from _flows_of(number, chance, lease_seconds)
        number += 1


def _flows_of(number: int, chance: random.Random, lease_seconds: float) -> list[Flow]:
    work = Work(
        name=f"w{number}",
        key=f"{chance.getrandbits(64):016x}-{number}",
        credentials=f"ann{number % 7}" if chance.random() < 0.5 else None,
        body=_body(chance),
        shape=chance.choices(("echo", "large", "stream"), (80, 12, 8))[0],
        delay=_SLOW_LEASES * lease_seconds if chance.random() < 0.015 else round(chance.uniform(0, 0.03), 3),
        failures=_failures(chance),
        seed=chance.getrandbits(32),
    )
    owners = [work]
    if chance.random() < 0.08:  # the same key, path and body of two callers
        owners = [_changed(work, caller=caller, credentials=None) for caller in ("ann", "bob")]
    copies = 1 + (chance.random() < 0.25) + (chance.random() < 0.05)
    several = [owner for owner in owners for _ in range(copies)]
    if chance.random() < 0.06:
        several.append(_changed(owners[0], body=_body(chance)))
    if chance.random() < 0.03 and work.credentials is not None and len(owners) == 1:
        several.append(_changed(work, credentials="mallory"))
    chance.shuffle(several)
    return [
        Flow(
            work=each,
            again=chance.choice((0, 0, 1, 2)),
            impatience=0.06 if chance.random() < 0.7 else 0.3,
            seed=chance.getrandbits(32),
        )
        for each in several
    ]


def _failures(chance: random.Random) -> tuple[Mapping[str, Any], ...]:
    """Say how the first tries end, for the few works whose handlers fail."""
    if chance.random() >= 0.1:
        return ()
    kinds: tuple[Mapping[str, Any], ...] = ({"status": 500, "body": "it broke"}, {"raise": "as planned"})
    return tuple(chance.choice(kinds) for _ in range(chance.choice((1, 1, 2))))


def _body(chance: random.Random) -> bytes:
    return json.dumps({"amount": chance.randint(1, 10**9), "note": "x" * chance.randint(0, 200)}).encode()


def _changed(work: Work, **members: Any) -> Work:
    known: dict[str, Any] = {name: getattr(work, name) for name in Work.__dataclass_fields__}
    return Work(**{**known, **members})
