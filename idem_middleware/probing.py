"""What a user's prober is told of an abandoned claim, and what it may answer."""

from __future__ import annotations

from dataclasses import dataclass, field

from idem_middleware.keys import derived_key, short_digest
from idem_middleware.messages import Request, Response

__all__ = ["NOT_DONE", "UNKNOWN", "Abandoned", "Done", "NotDone", "Probed", "Unknown"]


@dataclass(frozen=True, slots=True)
class Done:
    """The work was done; this is its answer, which is kept and given to the client as a replay."""

    response: Response


@dataclass(frozen=True, slots=True)
class NotDone:
    """The work was not done, and what is left of the earlier attempt will not do it: it may run."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """That can't be said now: `on_abandoned` decides."""


NOT_DONE = NotDone()
UNKNOWN = Unknown()

Probed = Done | NotDone | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """A claim whose lease is over and that nobody settled: its worker crashed, froze, or could not reach the store.

    `request` is the retry that came now; it has the fingerprint of the first. `attempt` is the number of the attempt
    that was abandoned, `claimed_at` and `lease_ended_at` are unix seconds, `checkpoint` is what it left.
    """

    request: Request | None
    attempt: int
    claimed_at: float
    lease_ended_at: float
    checkpoint: bytes | None
    _pk: str = field(repr=False)

    @property
    def key_digest(self) -> str:
        """The short digest that logs and events show of the key."""
        return short_digest(self._pk)

    def derive_key(self, label: str) -> str:
        """The key that the attempt's lease derived for this label."""
        return derived_key(self._pk, label)
