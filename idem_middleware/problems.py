"""Refusals, as RFC 9457 problem details."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum

from idem_middleware.messages import Response

__all__ = ["Problem", "ProblemType", "problem_response"]

_URN = "urn:idem-middleware:problem:"
_LOOK_UP = "Do not retry: look the resource up, and use a new key only if the work was not done."


class ProblemType(Enum):
    """Every refusal: the end of its `type`, its status, its title and its detail."""

    KEY_MISSING = (
        "key-missing",
        400,
        "Idempotency key missing",
        "This request needs an idempotency key. Send a fresh one, such as a UUID, and the same one with every retry.",
    )
    KEY_INVALID = ("key-invalid", 400, "Idempotency key invalid", "The idempotency key is not valid.")
    KEY_REUSED = (
        "key-reused",
        422,
        "Idempotency key reused",
        "This key was used for another request. Use a new key for a new request.",
    )
    CREDENTIALS_CHANGED = (
        "credentials-changed",
        422,
        "Credentials changed",
        "This key was used with other credentials. Look the result up before you use a new key.",
    )
    CALLER_UNKNOWN = (
        "caller-unknown",
        403,
        "Caller unknown",
        "It is not known who sends this request, so it can't be told from another caller's.",
    )
    IN_PROGRESS = (
        "in-progress",
        409,
        "Request in progress",
        "The first request with this key is still running. Retry with the same key after the given time.",
    )
    RETRY_LATER = (
        "retry-later",
        409,
        "Retry later",
        "The last attempt failed. Retry with the same key after the given time.",
    )
    OUTCOME_UNKNOWN = (
        "outcome-unknown",
        409,
        "Outcome unknown",
        "An earlier attempt ended without a known outcome. " + _LOOK_UP,
    )
    RESPONSE_NOT_STORED = (
        "response-not-stored",
        409,
        "Response not stored",
        "The request was carried out, but its answer was not kept. " + _LOOK_UP,
    )
    KEY_EXPIRED = (
        "key-expired",
        409,
        "Idempotency key expired",
        "This key was used, and its answer is no longer kept. " + _LOOK_UP,
    )
    RECORD_UNREADABLE = (
        "record-unreadable",
        409,
        "Record unreadable",
        "What is recorded under this key can't be read by this server. " + _LOOK_UP,
    )
    CLAIM_REFUSED = (
        "claim-refused",
        409,
        "Request refused",
        "The request can't be carried out as things stand. Nothing was done; it may be sent again with the same key.",
    )
    STORE_UNAVAILABLE = (
        "store-unavailable",
        503,
        "Idempotency store unavailable",
        "The request was not carried out. Retry with the same key after the given time.",
    )
    REQUEST_TOO_LARGE = ("request-too-large", 413, "Request too large", "The request's body is larger than allowed.")

    def __init__(self, slug: str, status: int, title: str, detail: str) -> None:
        self.slug = slug
        self.status = status
        self.title = title
        self.detail = detail

    @classmethod
    def recorded(cls, slug: str) -> ProblemType:
        """The type that a record gives for having no answer. No other than these is ever written, nor believed."""
        known = (cls.RESPONSE_NOT_STORED, cls.OUTCOME_UNKNOWN)
        return next((kind for kind in known if kind.slug == slug), cls.RECORD_UNREADABLE)


@dataclass(frozen=True, slots=True)
class Problem:
    """One refusal. `reason` is a sentence for the client that adds to the type's own detail."""

    type: ProblemType
    retry_after_seconds: int | None = None
    reason: str | None = None
    location: str | None = None

    @property
    def detail(self) -> str:
        """What happened and what to do, for the client's developer."""
        return self.type.detail if self.reason is None else f"{self.type.detail} {self.reason}"


def problem_response(problem: Problem, docs_url: str | None = None) -> Response:
    """The answer that tells the problem. Never stored, never holds the key."""
    kind = problem.type
    members = {
        "type": _URN + kind.slug if docs_url is None else _page(docs_url, kind.slug),
        "title": kind.title,
        "status": kind.status,
        "detail": problem.detail,
    }
    headers = [("content-type", "application/problem+json"), ("cache-control", "no-store")]
    if problem.retry_after_seconds is not None:
        headers.append(("retry-after", str(problem.retry_after_seconds)))
    if problem.location is not None:
        headers.append(("location", problem.location))
    if docs_url is not None:
        headers.append(("link", f'<{_page(docs_url, kind.slug)}>; rel="describedby"'))
    body = json.dumps(members).encode()
    headers.append(("content-length", str(len(body))))
    return Response(kind.status, tuple(headers), body)


def _page(docs_url: str, slug: str) -> str:
    return docs_url + slug if docs_url.endswith(("/", "#", "=")) else f"{docs_url}/{slug}"
