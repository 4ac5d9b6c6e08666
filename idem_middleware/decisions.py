"""What to do about the record that stands under a key: one pure function, no clock, no I/O.

Every record that is ever seen goes through `decide`: the one that stood in the way of a create or a swap, the one a
waiter polled, the one a cache held. So no path can replay what another would have refused.
"""

from __future__ import annotations

from dataclasses import field, replace
from math import ceil
from typing import assert_never

from idem_middleware.messages import Request
from idem_middleware.options import Options
from idem_middleware.problems import Problem, ProblemType
from idem_middleware.records import SCHEMA_VERSION, KeptResponse, OmittedResponse, Record, SealedResponse, Status
from idem_middleware.values import immutable

__all__ = [
    "Adopt",
    "Attempt",
    "Create",
    "Execute",
    "Probe",
    "Refuse",
    "Replay",
    "Step",
    "Swap",
    "Wait",
    "decide",
    "is_late",
]

_RETRY_AFTER_SECONDS = (1, 5)  # a client should neither spin nor miss the end of a lease by much


@immutable()
class Create:
    """Nothing stands there: write this."""

    new: Record


@immutable()
class Swap:
    """What stands there is over: put this in its place."""

    old: Record
    new: Record


@immutable()
class Execute:
    """What was tried to write stands there: go on as if the write had succeeded."""

    record: Record


@immutable()
class Adopt:
    """This is still our claim, at a version whose reply was lost: repeat the swap from here."""

    record: Record


@immutable()
class Wait:
    """Somebody runs it: look again within `seconds`, the sooner of our patience and the end of the lease."""

    record: Record
    seconds: float


@immutable()
class Replay:
    """It is done: give its answer again."""

    record: Record
    response: KeptResponse | SealedResponse


@immutable()
class Refuse:
    """It is neither run nor replayed."""

    problem: Problem


@immutable()
class Probe:
    """This claim was abandoned, and the user may know what became of it: ask."""

    record: Record


Step = Create | Swap | Execute | Adopt | Wait | Probe | Replay | Refuse


@immutable(kw_only=True)
class Attempt:
    """One try to do one piece of work: who, what, and how much longer it is ready to wait.

    `tried` is the record that was written last, with an unknown or a negative outcome. `accepted` are fingerprints and
    callers' digests of the same request under secrets that were written with before: as good as its own.
    """

    pk: str
    owner: str
    fingerprint: bytes
    caller_digest: bytes | None
    options: Options
    patience_seconds: float = 0.0
    margin_seconds: float = 0.0
    tried: Record | None = None
    request: Request | None = field(default=None, repr=False, compare=False)
    probed: tuple[str, int, bool] | None = None
    """Owner and version of the abandoned claim that the prober was asked about, and whether it said "not done"."""
    accepted: tuple[tuple[bytes, bytes | None], ...] = ()

    def after(self, tried: Record) -> Attempt:
        """The same attempt, which now tried to write this."""
        return replace(self, tried=tried)

    def claim(self, old: Record | None, now: float, *, attempt: int = 1, anew: bool = True) -> Record:
        """A fresh lease. `old` is what it takes the place of; unless the key is bound `anew`, its checkpoint stays.

        What this attempt has tried before, and somebody may have seen, counts as older even where it is gone: no two
        claims of one owner have one version.
        """
        before = self.tried if old is None else old
        expires_at = now + self.options.lease_seconds
        return Record(
            pk=self.pk,
            status=Status.PENDING,
            version=1 if before is None else before.version + 1,
            owner=self.owner,
            attempt=attempt,
            fingerprint=self.fingerprint,
            caller_digest=self.caller_digest,
            created_at=now,
            expires_at=expires_at,
            # A lease may outlast a short retention; the key is not free while it does.
            bound_until=max(now + self.options.retention_seconds, expires_at + self.margin_seconds),
            checkpoint=None if old is None or anew else old.checkpoint,
            transaction=None if old is None or anew else old.transaction,
        )


def decide(  # noqa: C901, PLR0911, PLR0912 - the questions, one after the other
    attempt: Attempt, found: Record | None, now: float
) -> Step:
    """Say what to do next about the record found under this key; `now` is unix seconds by the store's clock."""
    if found is None:
        return Create(attempt.claim(None, now))
    if found.owner == attempt.owner and attempt.tried is not None:
        if _is_same_write(found, attempt.tried):
            return Execute(found)  # our own write, sent twice, met itself
        if found.status is Status.PENDING:
            return Adopt(found)
    if now >= found.bound_until:
        return Swap(found, attempt.claim(found, now))
    if found.schema != SCHEMA_VERSION:
        # Written by a newer version, or damaged. What it means is unknown, so nothing may run on its account.
        return _refuse(ProblemType.RECORD_UNREADABLE)
    # Before any look at the state: an answer, or a hint at one, is only for the same request of the same caller.
    if not _is_same_caller(found, attempt):
        return _refuse(ProblemType.CREDENTIALS_CHANGED)
    if not _is_same_request(found, attempt):
        return _refuse(ProblemType.KEY_REUSED)
    match found.status:
        case Status.COMPLETED:
            return _completed(attempt, found, now)
        case Status.FAILED:
            if now < found.expires_at:
                return _refuse(ProblemType.RETRY_LATER, wait_seconds=found.expires_at - now)
            return _next_attempt(attempt, found, now)
        case Status.PENDING:
            return _pending(attempt, found, now)
        case _:
            assert_never(found.status)


def is_late(attempt: Attempt, found: Record | None) -> bool:
    """Whether this is a retry of what was done, at a time when its answer is no longer kept.

    `found` is what a claim takes the place of, or what it is refused for.
    """
    return found is not None and found.status is Status.COMPLETED and _is_same_request(found, attempt)


def _is_same_write(found: Record, tried: Record) -> bool:
    """Whether this is what was tried, and not an earlier try of the same version whose reply was lost."""
    if (found.version, found.status) != (tried.version, tried.status):
        return False
    # Of two renewals only the one that stands there counts; two completions say the same.
    return found.status is not Status.PENDING or (found.expires_at, found.checkpoint, found.transaction) == (
        tried.expires_at,
        tried.checkpoint,
        tried.transaction,
    )


def _is_same_caller(found: Record, attempt: Attempt) -> bool:
    if found.caller_digest == attempt.caller_digest or any(found.caller_digest == d for _, d in attempt.accepted):
        return True
    # The view turned the first credentials away: other ones are what it asked for, and there is no answer to leak.
    return found.status is Status.FAILED and found.caller_digest is None and not found.has_written


def _is_same_request(found: Record, attempt: Attempt) -> bool:
    return found.fingerprint == attempt.fingerprint or any(found.fingerprint == f for f, _ in attempt.accepted)


def _completed(attempt: Attempt, found: Record, now: float) -> Step:
    if now >= found.expires_at:
        if attempt.options.on_expired == "refuse":
            return _refuse(ProblemType.KEY_EXPIRED)
        return Swap(found, attempt.claim(found, now))
    match found.response:
        case KeptResponse() | SealedResponse():
            return Replay(found, found.response)
        case OmittedResponse(reason=reason, location=location):
            cipher = attempt.options.cipher
            believed = location if cipher is None or cipher.reads_plain else None  # we seal one, where we can
            return Refuse(Problem(ProblemType.recorded(reason), location=believed))
        case None:
            return _refuse(ProblemType.RESPONSE_NOT_STORED)
        case _:
            assert_never(found.response)


def _pending(attempt: Attempt, found: Record, now: float) -> Step:
    lease_end = found.expires_at + attempt.margin_seconds
    if now < lease_end:
        if attempt.patience_seconds > 0:
            return Wait(found, min(attempt.patience_seconds, lease_end - now))
        return _refuse(ProblemType.IN_PROGRESS, wait_seconds=lease_end - now)
    if attempt.options.prober is not None:
        owner, version, not_done = attempt.probed or ("", 0, False)
        if (owner, version) != (found.owner, found.version):
            return Probe(found)
        if not_done:
            return _next_attempt(attempt, found, now)
    if attempt.options.on_abandoned == "refuse":
        return _refuse(ProblemType.OUTCOME_UNKNOWN)
    return _next_attempt(attempt, found, now)


def _next_attempt(attempt: Attempt, found: Record, now: float) -> Swap:
    return Swap(found, attempt.claim(found, now, attempt=found.attempt + 1, anew=False))


def _refuse(kind: ProblemType, *, wait_seconds: float | None = None) -> Refuse:
    if wait_seconds is None:
        return Refuse(Problem(kind))
    least, most = _RETRY_AFTER_SECONDS
    return Refuse(Problem(kind, retry_after_seconds=min(most, max(least, ceil(wait_seconds)))))
