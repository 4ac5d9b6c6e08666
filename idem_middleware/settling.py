"""What to write when the work has ended: pure, the same for every kind of lease."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import assert_never

from idem_middleware import transitions
from idem_middleware.bodies import MAX_HEADER_BYTES, MAX_HEADER_LINES, header_bytes, pack
from idem_middleware.events import EventKind, told
from idem_middleware.keeping import CREDENTIALS_REFUSED, Verdict, failure_verdict, kept_headers, verdict
from idem_middleware.messages import Response
from idem_middleware.options import Options
from idem_middleware.problems import ProblemType
from idem_middleware.records import KeptResponse, OmittedResponse, Record, SealedResponse
from idem_middleware.sealing import reserved_bytes, seal_chunks, seal_response
from idem_middleware.values import immutable

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
    "unreviewed_location",
]


logger = logging.getLogger("idem_middleware")


@immutable()
class Plan:
    """The record to put in the claim's place, the chunks that must lie there first, and what to call it.

    `reason` is a short word for the event, where an answer is not kept.
    """

    make: Callable[[Record, float], Record]
    kind: EventKind
    chunks: Sequence[bytes] = ()
    status: int | None = None
    location: str | None = None
    reason: str | None = None


@immutable()
class Recorded:
    """It is durable: the answer may be shown."""


@immutable()
class Superseded:
    """Another attempt took the key over. `response` is its stored answer, if it has one already."""

    response: Response | None = None


@immutable()
class Unrecorded:
    """The store can't be reached. The true answer may be shown; recording goes on in the background."""


Settled = Recorded | Superseded | Unrecorded


def plan_answer(
    response: Response,
    options: Options,
    *,
    inline_bytes: int | None,
    from_view: bool = True,
    claimed: Record | None = None,
) -> Plan:
    """By the rules of `keeping`."""
    match verdict(response, options, from_view=from_view):
        case Verdict.KEEP:
            return plan_completion(response, options, inline_bytes=inline_bytes, claimed=claimed)
        case Verdict.FAIL:
            return plan_failure(options, status=response.status)
        case Verdict.RELEASE:
            return plan_release(status=response.status)
        case Verdict.OUTCOME_UNKNOWN:
            return plan_omission(ProblemType.OUTCOME_UNKNOWN, None, options)
        case kind:
            assert_never(kind)


def plan_completion(
    response: Response, options: Options, *, inline_bytes: int | None, claimed: Record | None = None
) -> Plan:
    """Keep this answer, whatever it is; only one that is too large is not, or that the user or the cipher keeps back.

    `claimed` is the record of the attempt that a cipher binds the answer to; it may be left out where none is set.
    """
    location = unreviewed_location(response.header("location"), options)
    headers = kept_headers(response.headers, options)
    if options.before_store is not None and len(response.body) <= options.max_response_bytes:
        reviewed = _reviewed(options.before_store, Response(response.status, headers, response.body))
        if not isinstance(reviewed, Response):
            return _withheld(reviewed, options)
        response, location = reviewed, reviewed.header("location")
        headers = kept_headers(reviewed.headers, options)
    too_large = len(response.body) > options.max_response_bytes or header_bytes(headers) > MAX_HEADER_BYTES
    if too_large or len(headers) > MAX_HEADER_LINES:
        return plan_omission(ProblemType.RESPONSE_NOT_STORED, location, options, claimed=claimed, reason="too-large")
    if inline_bytes is not None and options.cipher is not None:
        inline_bytes -= reserved_bytes(headers, options)
    kept, chunks = pack(response, headers, inline_bytes=inline_bytes)
    if options.cipher is None:
        return Plan(_completing(kept, options), EventKind.COMPLETED, chunks, response.status, location)
    sealed = _sealed(kept, chunks, options, claimed)
    if sealed is None:
        return _withheld("cipher", options)
    answer, pieces = sealed
    return Plan(_completing(answer, options), EventKind.COMPLETED, pieces, response.status, location)


def unreviewed_location(location: str | None, options: Options) -> str | None:
    """What may be kept of where an answer points that `before_store` does not see, since it is cut off or too large."""
    return None if options.before_store is not None or "location" in options.dropped_headers else location


def plan_omission(
    kind: ProblemType,
    location: str | None,
    options: Options,
    *,
    claimed: Record | None = None,
    reason: str | None = None,
) -> Plan:
    """The work ended, and a retry gets this problem instead of an answer."""
    omitted = OmittedResponse(reason=kind.slug, location=location)
    written: OmittedResponse | SealedResponse = omitted
    if options.cipher is not None:
        # Without a location it says nothing that is worth to be sealed, nor to be forged.
        sealed = None if location is None else _sealed(omitted, (), options, claimed)
        written = OmittedResponse(reason=kind.slug) if sealed is None else sealed[0]
    return Plan(_completing(written, options), EventKind.COMPLETED_WITHOUT_ANSWER, reason=reason)


def _withheld(reason: str, options: Options) -> Plan:
    """Of this answer nothing is kept, not even its location."""
    return plan_omission(ProblemType.RESPONSE_NOT_STORED, None, options, reason=reason)


def _reviewed(before_store: Callable[[Response], Response | None], response: Response) -> Response | str:
    """What the user lets be kept; a short word where that is nothing."""
    try:
        reviewed: object = before_store(response)
    except Exception as error:  # noqa: BLE001 - the work is done, so it neither fails nor runs again
        logger.error("the before_store function raised %s", told(error))  # noqa: TRY400 - its text may hold the answer
        return "before-store-failed"
    if isinstance(reviewed, Response):
        return reviewed
    if reviewed is not None:
        logger.error("the before_store function must give a Response or None, not %s", type(reviewed).__name__)
        return "before-store-failed"
    return "before-store"


def _sealed(
    response: KeptResponse | OmittedResponse, chunks: Sequence[bytes], options: Options, claimed: Record | None
) -> tuple[SealedResponse, list[bytes]] | None:
    """Sealed for this attempt; None where the cipher can't: an answer in the clear is no way out."""
    cipher = options.cipher
    if cipher is None or claimed is None:
        return None
    try:
        return seal_response(cipher, response, claimed), seal_chunks(cipher, chunks, claimed)
    except Exception as error:  # noqa: BLE001 - as with `before_store`
        logger.error("the cipher could not seal an answer: %s", told(error))  # noqa: TRY400 - as above
        return None


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


def _completing(
    response: KeptResponse | OmittedResponse | SealedResponse, options: Options
) -> Callable[[Record, float], Record]:
    return lambda old, now: transitions.completed(old, response, now, options)
