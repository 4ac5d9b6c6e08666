"""What to write when the work has ended: pure, the same for every kind of lease."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from idem_middleware import transitions
from idem_middleware.bodies import MAX_HEADER_BYTES, header_bytes, pack
from idem_middleware.events import EventKind
from idem_middleware.keeping import CREDENTIALS_REFUSED, Verdict, failure_verdict, kept_headers, verdict
from idem_middleware.messages import Response
from idem_middleware.options import Options
from idem_middleware.problems import ProblemType
from idem_middleware.records import KeptResponse, OmittedResponse, Record

COMPLETIONS = frozenset({EventKind.COMPLETED, EventKind.COMPLETED_WITHOUT_ANSWER})
"""The plans that say that the work is done."""

__all__ = [
    "COMPLETIONS",
    "Plan",
    "Recorded",
    "Settled",
    "Superseded",
    "Unrecorded",
    "plan_answer",
    "plan_completion",
    "plan_exception",
    "plan_failure",
    "plan_omission",
    "plan_release",
]


@dataclass(frozen=True, slots=True)
class Plan:
    """The record to put in the claim's place, the chunks that must lie there first, and what to call it."""

    make: Callable[[Record, float], Record]
    kind: EventKind
    chunks: Sequence[bytes] = ()
    status: int | None = None
    location: str | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """It is durable: the answer may be shown."""


@dataclass(frozen=True, slots=True)
class Superseded:
    """Another attempt took the key over. `response` is its stored answer, if it has one already."""

    response: Response | None = None


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """The store can't be reached. The true answer may be shown; recording goes on in the background."""


Settled = Recorded | Superseded | Unrecorded


def plan_answer(response: Response, options: Options, *, inline_bytes: int | None, from_view: bool = True) -> Plan:
    """By the rules of `keeping`."""
    match verdict(response, options, from_view=from_view):
        case Verdict.KEEP:
            return plan_completion(response, options, inline_bytes=inline_bytes)
        case Verdict.FAIL:
            return plan_failure(options, status=response.status)
        case Verdict.RELEASE:
            return plan_release(status=response.status)
        case Verdict.OUTCOME_UNKNOWN:
            return plan_omission(ProblemType.OUTCOME_UNKNOWN, None, options)
        case kind:
            assert_never(kind)


def plan_completion(response: Response, options: Options, *, inline_bytes: int | None) -> Plan:
    """Keep this answer, whatever it is; only one that is too large is not."""
    headers = kept_headers(response.headers, options)
    if len(response.body) > options.max_response_bytes or header_bytes(headers) > MAX_HEADER_BYTES:
        return plan_omission(ProblemType.RESPONSE_NOT_STORED, response.header("location"), options)
    kept, chunks = pack(Response(response.status, headers, response.body), headers, inline_bytes=inline_bytes)
    location = response.header("location")
    return Plan(_completing(kept, options), EventKind.COMPLETED, chunks, response.status, location)


def plan_omission(kind: ProblemType, location: str | None, options: Options) -> Plan:
    """The work ended, and a retry gets this problem instead of an answer."""
    omitted = OmittedResponse(reason=kind.slug, location=location)
    return Plan(_completing(omitted, options), EventKind.COMPLETED_WITHOUT_ANSWER)


def plan_failure(options: Options, *, status: int | None = None) -> Plan:
    """The next try runs again."""
    unwelcome = status in CREDENTIALS_REFUSED
    return Plan(
        lambda old, now: transitions.failed(old, now, options, unwelcome=unwelcome), EventKind.FAILED, status=status
    )


def plan_release(*, status: int | None = None) -> Plan:
    """The key is as good as new."""
    return Plan(transitions.released, EventKind.RELEASED, status=status)


def plan_exception(options: Options) -> Plan:
    """The handler raised."""
    if failure_verdict(options) is Verdict.OUTCOME_UNKNOWN:
        return plan_omission(ProblemType.OUTCOME_UNKNOWN, None, options)
    return plan_failure(options)


def _completing(response: KeptResponse | OmittedResponse, options: Options) -> Callable[[Record, float], Record]:
    return lambda old, now: transitions.completed(old, response, now, options)
