"""How a claim can end that is no lease, and what both engines do to get there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

from idem_middleware.bodies import most_bytes, unpack
from idem_middleware.body import RequestBody
from idem_middleware.clock import Clock
from idem_middleware.decisions import Attempt, Execute, Replay, Step, Swap, decide
from idem_middleware.errors import (
    ConfigurationError,
    StoreCrowded,
    StoreFull,
    StoreMisconfigured,
    StoreUnavailable,
    TransactionInvalid,
)
from idem_middleware.events import EventKind
from idem_middleware.fingerprint import canonical_value, fingerprints
from idem_middleware.identity import Identity
from idem_middleware.keeping import kept_headers
from idem_middleware.keys import record_pk, validate_key
from idem_middleware.messages import HeaderPairs, Request, Response
from idem_middleware.options import Options
from idem_middleware.problems import Problem, ProblemType, problem_response
from idem_middleware.records import KeptResponse, OmittedResponse, Record, Status
from idem_middleware.runtime import Runtime
from idem_middleware.sealing import Rejected
from idem_middleware.values import immutable

__all__ = ["Refused", "Replayed", "Unprotected"]

BYPASS_HEADER = "Idempotency-Bypassed"
"""Says in the answer that the request ran unprotected, with `on_store_error="bypass"`."""


@immutable()
class Replayed:
    """The work was done before; this is its answer, marked as a replay."""

    response: Response


@immutable()
class Refused:
    """The work is neither run nor replayed; this answer says why."""

    problem: Problem
    response: Response


@immutable()
class Unprotected:
    """Run it as if there were no idempotency; `headers` go into its answer."""

    headers: HeaderPairs = ()


def refusal(runtime: Runtime, options: Options, problem: Problem, attempt: Attempt | None = None) -> Refused:
    """The problem's answer, and its event."""
    observed = options.mode == "observe"
    runtime.tell(EventKind.REFUSED, attempt, reason=problem.type.slug, status=problem.type.status, observed=observed)
    if problem.type is ProblemType.KEY_EXPIRED:
        runtime.tell(EventKind.LATE_DUPLICATE, attempt, reason="refused", observed=observed)
    return Refused(problem, problem_response(problem, options.docs_url))


def refused_by_store(
    runtime: Runtime, attempt: Attempt, error: StoreUnavailable | StoreFull, *, known: bool
) -> Refused | Unprotected:
    """Nothing is known of this key, so nothing may run, unless the options say that it may.

    `known` is true where the store told that the work runs or was done, before it failed: then it may not run anyway.
    """
    code = error.code if isinstance(error, StoreUnavailable) else "StoreFull"
    runtime.tell(EventKind.STORE_FAILED, attempt, reason=_advice(error), dynamo_error_code=code)
    if attempt.options.on_store_error == "bypass" and not known:
        runtime.tell(EventKind.BYPASSED, attempt, dynamo_error_code=code)
        return Unprotected(((BYPASS_HEADER, "store-unavailable"),))
    return refusal(runtime, attempt.options, Problem(ProblemType.STORE_UNAVAILABLE, retry_after_seconds=1), attempt)


def _advice(error: StoreUnavailable | StoreFull) -> str:
    return str(error) if isinstance(error, (StoreMisconfigured, StoreFull)) else "unavailable"


def replayed(
    runtime: Runtime,
    attempt: Attempt,
    record: Record,
    answer: Response | Problem | Rejected,
    *,
    reason: str | None = None,
) -> Replayed | Refused:
    """The stored answer with its mark; one that is damaged or forged is never a reason to run again."""
    options = attempt.options
    if isinstance(answer, Rejected):
        answer = rejection(runtime, attempt, answer)
    if isinstance(answer, Problem):
        return refusal(runtime, options, answer, attempt)
    response = answer
    if options.local_cache_bytes and reason is None:
        runtime.cache.keep(record, options.local_cache_bytes, response)
    runtime.tell(
        EventKind.REPLAYED,
        attempt,
        attempt_number=record.attempt,
        reason=reason,
        status=response.status,
        observed=options.mode == "observe",
    )
    return Replayed(marked(response, options))


def rejection(runtime: Runtime, attempt: Attempt, rejected: Rejected) -> Problem:
    """Tell what lies in the table and must not be given out."""
    if rejected.reason == "damaged":
        return Problem(ProblemType.RESPONSE_NOT_STORED)
    runtime.tell(EventKind.RECORD_REJECTED, attempt, reason=rejected.reason)
    return Problem(ProblemType.RECORD_UNREADABLE)


def answer_of(kept: KeptResponse, chunks: Sequence[bytes | None] | Rejected, options: Options) -> Response | Rejected:
    """The answer whose pieces these are."""
    if isinstance(chunks, Rejected):
        return chunks
    return unpack(kept, chunks, max_bytes=most_bytes(options)) or Rejected("damaged")


def omitted_problem(omitted: OmittedResponse) -> Problem:
    """What a retry gets where no answer was kept."""
    return Problem(ProblemType.recorded(omitted.reason), location=omitted.location)


def remembered(runtime: Runtime, attempt: Attempt) -> Replayed | Refused | None:
    """The answer that this process keeps, without a call of the store; None: ask the store.

    Nothing but a replay is decided here: what else there is to say about the key, the store says.
    """
    if not attempt.options.local_cache_bytes:
        return None
    record = runtime.cache.find(attempt.pk)
    if record is None:
        return None
    # By the clock of the worker that is furthest ahead: it may have bound the key anew when the retention was over.
    now = runtime.store.clock.now() + runtime.store.clock.margin_seconds
    step = decide(attempt, record, now)
    if isinstance(step, Replay) and isinstance(step.response, KeptResponse):
        answer = answer_of(step.response, (), attempt.options)
        return replayed(runtime, attempt, record, answer, reason="local-cache")
    if now >= record.expires_at:
        runtime.cache.forget(record)
    return None


def marked(response: Response, options: Options) -> Response:
    """With the header that says that it is a replay.

    What is never kept is not given back either: whoever can write to the table must not set cookies or end messages.
    """
    kept = kept_headers(response.headers, options)
    return replace(response, headers=(*kept, (options.replay_header, "true")))


def certain(error: BaseException) -> bool:
    """Whether a write that raised this was surely not applied."""
    if isinstance(error, StoreMisconfigured):
        return not error.tried_before
    return isinstance(error, (StoreCrowded, StoreFull, TransactionInvalid, ConfigurationError))


def well_timed(attempt: Attempt, step: Step, clock: Clock, offset_before: float) -> Step:
    """A claim that was written by a wrong clock, or so slowly that its lease is over, is rewritten before it counts.

    The first answer of the store is what shows the wrong clock.
    """
    if not isinstance(step, Execute):
        return step
    now = clock.now()
    if abs(clock.offset_seconds - offset_before) <= clock.margin_seconds / 2 and now < step.record.expires_at:
        return step
    fresh = attempt.claim(step.record, now, attempt=step.record.attempt, anew=False)
    return Swap(step.record, fresh)


def claim_kind(record: Record, before: Record | None) -> EventKind:
    """What to call a new lease on top of what stood there."""
    if before is None or record.attempt == 1:
        return EventKind.CLAIMED
    return EventKind.TAKEN_OVER if before.status is Status.PENDING else EventKind.RUN_AGAIN


def function_pk(pk: str) -> str:
    """The record of work that does not come by HTTP, apart from a request's under the same key."""
    return hashlib.sha256(f"function:{pk}".encode()).hexdigest()


def function_identity(key: str, payload: object, options: Options, caller: str | None = None) -> Identity:
    """The identity of work that does not come by HTTP. It shares no key with any request.

    Raises:
        KeyInvalid: the key is not 1 to 255 printable ASCII characters.
    """
    pk = record_pk(options.namespace, caller, validate_key(key, pattern=options.compiled_key_pattern))
    print_, *accepted = fingerprints(
        options.secrets,
        method="",
        path="",
        query="",
        content_type=None,
        body=RequestBody(),
        payload=canonical_value(payload),
    )
    return Identity(
        pk=function_pk(pk),
        fingerprint=print_,
        caller_digest=None,
        accepted=tuple((earlier, None) for earlier in accepted),
        options=options,
        caller=caller,
        request=_shown_request(payload) if options.shows_request else None,
    )


def _shown_request(payload: object) -> Request:
    """Work that came as no request, for functions that want to see one."""
    return Request(method="", path="", body=RequestBody.from_bytes(json.dumps(payload).encode()), native=payload)
