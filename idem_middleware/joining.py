"""What both drivers need where a claim is more than a record: items of the user's with it, or the end of another's."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace

from idem_middleware.decisions import Attempt, Create, Refuse, Step, Swap, Wait
from idem_middleware.errors import ConfigurationError, TransactionRefused
from idem_middleware.events import EventKind
from idem_middleware.messages import Response
from idem_middleware.outcomes import Refused, refusal
from idem_middleware.probing import Abandoned, Done, NotDone, Probed
from idem_middleware.problems import Problem, ProblemType
from idem_middleware.records import Record
from idem_middleware.runtime import Runtime
from idem_middleware.settling import plan_completion
from idem_middleware.stores.base import Store
from idem_middleware.transacting import require_transactions, token_of
from idem_middleware.transactions import Action, Transaction, actions_of

__all__ = ["Finding", "Joint", "abandoned", "after_probing", "claim_refused", "found_done", "meanwhile"]

_LOOK_AGAIN_SECONDS = 1.0


class Joint:
    """The actions that are carried out with the claim of one acquisition. The user is asked for them once."""

    def __init__(self, runtime: Runtime, attempt: Attempt) -> None:
        self._runtime = runtime
        self._attempt = attempt
        self._actions: tuple[Action, ...] | None = None
        self._number = 0

    def is_wanted(self, step: Create | Swap) -> bool:
        """Whether actions belong to this claim: not where an earlier attempt has carried them out."""
        return self._attempt.options.claim_items is not None and step.new.transaction is None and self._actions != ()

    @property
    def is_known(self) -> bool:
        """Whether the user was asked."""
        return self._actions is not None

    def ask(self) -> object:
        """Ask the user's function, on whatever it runs; what it raises comes out, and nothing is claimed."""
        require_transactions(self._runtime.store)
        claim_items = self._attempt.options.claim_items
        return () if claim_items is None or self._attempt.request is None else claim_items(self._attempt.request)

    def answered(self, items: object) -> None:
        """What it said.

        Raises:
            TransactionInvalid: not actions.
            ConfigurationError: a coroutine, where none can be waited for.
        """
        if inspect.iscoroutine(items):
            items.close()
            raise ConfigurationError(["claim_items is a coroutine function, which needs an engine on an event loop"])
        self._actions = actions_of(items or ())  # type: ignore[arg-type] # what is not iterable, is a bug of the user's

    def joined(self, step: Create | Swap) -> tuple[Create | Swap, Transaction | None]:
        """The step, and what is carried out with it."""
        if not self._actions:
            return step, None
        self._number += 1
        token = token_of(self._attempt.owner, -self._number)
        return replace(step, new=replace(step.new, transaction=token)), Transaction(self._actions, token)


def claim_refused(runtime: Runtime, attempt: Attempt, error: TransactionRefused) -> Refused:
    """A condition of `claim_items` did not hold: nothing was claimed, and this is what the client gets."""
    options = attempt.options
    refused = refusal(runtime, options, Problem(ProblemType.CLAIM_REFUSED), attempt)
    if options.on_claim_refused is None or attempt.request is None:
        return refused
    answer: object = options.on_claim_refused(attempt.request, error)
    if not isinstance(answer, Response):
        raise TypeError(f"on_claim_refused must give an idem_middleware.Response, not {type(answer).__name__}")
    return Refused(refused.problem, answer)


# --- probing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Finding:
    """Work that turned out to be done: its record, and the chunks that must lie there first."""

    swap: Swap
    chunks: Sequence[bytes]


def abandoned(attempt: Attempt, found: Record) -> Abandoned:
    """What the prober is told."""
    return Abandoned(
        request=attempt.request,
        attempt=found.attempt,
        claimed_at=found.created_at,
        lease_ended_at=found.expires_at,
        checkpoint=found.checkpoint,
        _pk=found.pk,
    )


def after_probing(runtime: Runtime, attempt: Attempt, found: Record, answer: Probed) -> Attempt:
    """The same attempt, which now knows what the prober said."""
    runtime.tell(
        EventKind.PROBED,
        attempt,
        attempt_number=found.attempt,
        reason={Done: "done", NotDone: "not-done"}.get(type(answer), "unknown"),
    )
    return replace(attempt, probed=(found.owner, found.version, isinstance(answer, NotDone)))


def found_done(store: Store, attempt: Attempt, found: Record, response: Response) -> Finding:
    """The record that says so, in this attempt's name. Whoever else has written meanwhile, has won."""
    mine = replace(found, owner=attempt.owner)
    plan = plan_completion(response, attempt.options, inline_bytes=store.inline_bytes, claimed=mine)
    return Finding(Swap(found, plan.make(mine, store.clock.now())), plan.chunks)


def meanwhile(attempt: Attempt, found: Record) -> Step:
    """Somebody in this process asks about the same key: wait for what comes of it, or come again."""
    if attempt.patience_seconds > 0:
        return Wait(found, min(attempt.patience_seconds, _LOOK_AGAIN_SECONDS))
    return Refuse(Problem(ProblemType.IN_PROGRESS, retry_after_seconds=1))
