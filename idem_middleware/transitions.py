"""The records that an owner writes after its claim: each a pure step along the table in `records`."""

from __future__ import annotations

from dataclasses import replace

from idem_middleware.options import Options
from idem_middleware.problems import ProblemType
from idem_middleware.records import KeptResponse, OmittedResponse, Record, SealedResponse, Status

__all__ = ["checkpointed", "completed", "erased", "failed", "released", "renewed", "undone"]


def completed(
    old: Record, response: KeptResponse | OmittedResponse | SealedResponse, now: float, options: Options
) -> Record:
    """The work is done. The retention starts now, not at the claim."""
    expires_at = max(now, old.created_at) + options.retention_seconds  # a clock may have been set back meanwhile
    return Record(  # written out, since `replace` would take five times as long, and every request comes by here
        pk=old.pk,
        status=Status.COMPLETED,
        version=old.version + 1,
        owner=old.owner,
        attempt=old.attempt,
        fingerprint=old.fingerprint,
        caller_digest=old.caller_digest,
        created_at=old.created_at,
        expires_at=expires_at,
        bound_until=expires_at + options.tombstone_seconds,
        response=response,
        schema=old.schema,
        audited=old.audited,
    )


def erased(old: Record) -> Record:
    """Nothing is left of the answer; that the work is done stays known for as long as before."""
    omitted = OmittedResponse(reason=ProblemType.RESPONSE_NOT_STORED.slug)
    return replace(old, version=old.version + 1, response=omitted, checkpoint=None)


def failed(old: Record, now: float, options: Options, *, unwelcome: bool = False) -> Record:
    """The work may be tried again, at the earliest after `retry_after_failure_seconds`.

    `unwelcome`: the view turned the request's credentials away. What it asks for are other ones, so the key is bound
    to none, unless work was checkpointed that belongs to these.
    """
    pause_seconds = options.retry_after_failure_seconds
    return replace(
        old,
        status=Status.FAILED,
        version=old.version + 1,
        caller_digest=None if unwelcome and not old.has_written else old.caller_digest,
        created_at=_begun(old, now),
        # Without a pause the instant lies in the past of every clock, so that a slow one does not make one of skew.
        expires_at=max(now, old.created_at) + pause_seconds if pause_seconds else _begun(old, now),
        bound_until=max(old.bound_until, now + pause_seconds),
    )


def released(old: Record, now: float) -> Record:
    """Nothing was begun: the key is free for any request, as if it had never been used.

    Unless something else was written with it: the next attempt, of the same request, must hear of that.
    """
    begun_at = _begun(old, now)
    if old.has_written:
        return replace(
            old, status=Status.FAILED, version=old.version + 1, created_at=begun_at, expires_at=begun_at, response=None
        )
    return replace(
        old,
        status=Status.FAILED,
        version=old.version + 1,
        created_at=begun_at,
        expires_at=begun_at,
        bound_until=begun_at,
        response=None,
    )


def renewed(old: Record, now: float, options: Options, margin_seconds: float) -> Record:
    """The owner lives: its lease begins again, and the key stays bound while it holds."""
    expires_at = max(now + options.lease_seconds, old.created_at)
    return replace(
        old,
        version=old.version + 1,
        expires_at=expires_at,
        bound_until=max(old.bound_until, expires_at + margin_seconds),
    )


def checkpointed(old: Record, checkpoint: bytes, *, transaction: str | None = None) -> Record:
    """The next attempt, should there be one, shall know this. The lease is neither longer nor shorter for it."""
    return replace(
        old,
        version=old.version + 1,
        checkpoint=checkpoint,
        transaction=old.transaction if transaction is None else transaction,
    )


def undone(old: Record, now: float) -> Record:
    """This attempt never began: the next one has its number and need not wait. Of a first one nothing remains.

    But if something else was written with it, that was, and stays known.
    """
    if old.attempt <= 1 and not old.has_written:
        return released(old, now)
    begun_at = _begun(old, now)
    return replace(
        old,
        status=Status.FAILED,
        version=old.version + 1,
        attempt=old.attempt - 1,
        created_at=begun_at,
        expires_at=begun_at,
    )


def _begun(old: Record, now: float) -> float:
    """When the attempt began: not in the future, where a wrong clock may have put it before it was corrected."""
    return min(old.created_at, now)
