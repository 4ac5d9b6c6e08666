"""What a handler answers, before any framework gives it its form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.probe.plan import Plan

# Answers with these statuses have no body, whatever the plan says: servers treat one as a protocol error.
_BODILESS = frozenset({204, 205, 304})

# Every method that a route answers. QUERY is there because nothing but its absence from a list makes it special.
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY")

NO_BODY_SHA256 = hashlib.sha256(b"").hexdigest()


class PlannedError(RuntimeError):
    """The exception that the plan asked for."""


@dataclass(frozen=True, slots=True)
class Form:
    """Fields and files of a form, as the framework gave them to the handler."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Execution:
    """One run of a handler, and what the handler saw of its request.

    `body_sha256` is of the raw body that the handler read itself: with the read modes `form` and `none` it
    reads none. `attempt` is None where the product does not protect the route.
    """

    run: int
    name: str
    method: str
    path: str
    query: str
    body_sha256: str
    form: Form
    attempt: int | None


def body_of(plan: Plan, execution: Execution) -> bytes:
    """Give the bytes of the answer."""
    if plan.status in _BODILESS:
        return b""
    if plan.body is not None:
        return plan.body
    return json.dumps(document_of(plan, execution)).encode()


def document_of(plan: Plan, execution: Execution) -> dict[str, Any]:
    """Give the JSON answer of a plan that names no body of its own."""
    if not plan.echo:
        return {"run": execution.run, "name": execution.name}
    return {
        "run": execution.run,
        "name": execution.name,
        "method": execution.method,
        "path": execution.path,
        "query": execution.query,
        "body_sha256": execution.body_sha256,
        "form": dict(execution.form.fields),
        "files": dict(execution.form.files),
        "attempt": execution.attempt,
    }


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece of a streamed answer: wait first, then send it."""

    wait_seconds: float
    data: bytes


def pieces(plan: Plan, body: bytes) -> Iterator[Piece]:
    """Split the body into `plan.chunks` pieces of nearly equal size.

    Raises:
        PlannedError: after `plan.fail_after_chunk` pieces.

    """
    for number in range(plan.chunks):
        if number == plan.fail_after_chunk:
            raise PlannedError(f"planned failure after chunk {number}")
        start, end = number * len(body) // plan.chunks, (number + 1) * len(body) // plan.chunks
        yield Piece(wait_seconds=plan.chunk_delay if number else 0, data=body[start:end])
    if plan.fail_after_chunk is not None and plan.fail_after_chunk >= plan.chunks:
        raise PlannedError(f"planned failure after chunk {plan.chunks}")


def grouped(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of form items: a name that comes once has its value, a repeated one the list of them."""
    lists: dict[str, list[Any]] = {}
    for name, value in items:
        lists.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in lists.items()}


def principal(authorization: str | None) -> str | None:
    """Give who holds this `Authorization`: `Bearer good-ann.2` is ann, anything else nobody.

    The part after the dot changes with every refresh of a token and says nothing about who it is.
    """
    scheme, _, token = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not token.startswith("good-"):
        return None
    return token.removeprefix("good-").split(".", 1)[0] or None
