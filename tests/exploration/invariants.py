"""What must hold in every world, each promise once, by name.

A promise looks at one event and at what happened before it, and says what is wrong, if anything is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from tests.exploration.clients import LONGEST_POLL, Answered, Began, Ended
from tests.exploration.model import Standing
from tests.exploration.worlds import Client, World

__all__ = [
    "PROMISES",
    "Crashed",
    "Event",
    "History",
    "Seen",
    "Swept",
    "Violation",
    "Wrote",
    "abandoned",
    "check",
    "remember",
]

PENDING, COMPLETED, FAILED = "PENDING", "COMPLETED", "FAILED"

_LONGEST_LEFT_OVER = 3600.0  # seconds for which a record may lie there that means nothing any more
_LANDING = 6.0  # seconds for which a write that was given up is expected to arrive
_TICK = 2.0**-9  # the scheduler's time goes on by a little
_RESOLUTION = 1.0  # of the time that the store's answers tell

T = TypeVar("T")


class Violation(AssertionError):
    """A promise is broken."""

    def __init__(self, promise: str, complaint: str) -> None:
        self.promise = promise
        super().__init__(f"{promise}: {complaint}")


# --- what happens ---


@dataclass(frozen=True, slots=True)
class Wrote:
    """A write was applied, at this true time, that a thread of this process had asked for.

    `entries` is how many items the application's own table has with it.
    """

    time: float
    place: int
    old: Standing | None
    new: Standing
    entries: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """A process told something, at this true time; this record was the last that it had been shown, if any.

    `at_once` is False where time has passed since it was.
    """

    time: float
    place: int
    what: Began | Ended | Answered
    shown: Standing | None
    at_once: bool


@dataclass(frozen=True, slots=True)
class Crashed:
    """A process died, and with it these attempts."""

    owners: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Swept:
    """DynamoDB's sweeper took the record that this attempt had written last."""

    owner: str


Event = Wrote | Seen | Crashed | Swept


@dataclass(frozen=True, slots=True)
class History:
    """What has happened, as far as it matters to the promises.

    `leases` says until when each attempt may believe that the key is its own; `deeds` how far it got: "claimed",
    "runs", "answered", "failed", "cut".
    """

    runs: int = 0
    failures: int = 0
    sent_elsewhere: int = 0
    crashes: int = 0
    lost_leases: int = 0
    faults: int = 0
    entries_before: int = 0
    late_claims: frozenset[str] = frozenset()
    leases: tuple[tuple[str, float], ...] = ()
    deeds: tuple[tuple[str, str], ...] = ()
    dead: frozenset[str] = frozenset()
    superseded: frozenset[str] = frozenset()
    recorded: tuple[tuple[str, float], ...] = ()
    ended: tuple[tuple[str, float], ...] = ()

    def deed(self, owner: str) -> str | None:
        """How far this attempt got."""
        return next((deed for name, deed in self.deeds if name == owner), None)

    def lease(self, owner: str) -> float | None:
        """Until when its lease holds."""
        return next((until for name, until in self.leases if name == owner), None)


def remember(world: World, history: History, event: Event) -> History:
    """The history with this event in it."""
    match event:
        case Wrote():
            return _remember_write(world, history, event)
        case Seen(what=Began(owner)):
            return replace(history, runs=history.runs + 1, deeds=_with(history.deeds, owner, "runs"))
        case Seen(what=Ended(owner, how)):
            failed, moved = how in ("fails", "raises", "moved"), how == "moved"
            # A handler that raises because its transaction failed has ended before: with the answer that was in that.
            before = any(name == owner for name, _ in history.ended)
            deed = how if how in ("cut", "moved") else "failed" if failed else "answered"
            return replace(
                history,
                failures=history.failures + (failed and not moved),
                sent_elsewhere=history.sent_elsewhere + moved,
                deeds=_with(history.deeds, owner, deed),
                ended=history.ended if before else _with(history.ended, owner, event.time),
            )
        case Swept(owner):
            return replace(history, superseded=history.superseded | {owner})
        case Crashed(owners):
            return replace(history, crashes=history.crashes + 1, dead=history.dead | set(owners))
        case _:
            return history


def _remember_write(world: World, history: History, event: Wrote) -> History:
    old, new = event.old, event.new
    if new.status != PENDING:
        history = replace(history, leases=_without(history.leases, new.owner), ended=_without(history.ended, new.owner))
        if new.status == COMPLETED and new.answer is not None:
            return replace(history, recorded=(*history.recorded, (new.answer, new.expires_at)))
        return history
    history = replace(history, leases=_with(history.leases, new.owner, new.expires_at))
    if old is not None and old.owner == new.owner:
        return history
    history = replace(history, deeds=_with(history.deeds, new.owner, "claimed"))
    if event.time + world.offset(event.place) - new.created_at >= _LANDING:
        history = replace(history, late_claims=history.late_claims | {new.owner})
    if old is None:
        return _bound_anew(history, event)
    if old.status == PENDING and old.owner not in history.dead:
        history = replace(history, lost_leases=history.lost_leases + 1)
    if old.status == PENDING:
        history = replace(history, superseded=history.superseded | {old.owner})
    return _bound_anew(history, event) if _binds_anew(world, event) else history


def _binds_anew(world: World, event: Wrote) -> bool:
    """Whether the key was bound for long enough, and is somebody else's now; at first, or after the sweeper, too."""
    old = event.old
    if old is None:
        return True
    over = event.time + _ahead(world, event.place, shown=True) >= old.bound_until > old.created_at
    return over and old.owner != event.new.owner


def _bound_anew(history: History, event: Wrote) -> History:
    return replace(
        history, runs=0, failures=0, sent_elsewhere=0, crashes=0, lost_leases=0, entries_before=event.entries
    )


# --- the promises ---


def one_owner(world: World, history: History, event: Event) -> Iterator[str]:
    """No two attempts both hold a live lease, and who lost it can write nothing any more."""
    if not isinstance(event, Wrote):
        return
    old, new = event.old, event.new
    mine = old is not None and old.owner == new.owner
    if new.status != PENDING and not mine:
        yield f"{new.owner} wrote {new.status} over what {old.owner if old else 'nobody'} holds"
    if mine and old is not None and old.status != PENDING:
        yield f"{new.owner} wrote again after its attempt had ended as {old.status}"
    if new.status == PENDING and not mine:
        yield from _free_to_claim(world, event)
    if new.status != PENDING or not _trusted(world):
        return
    for owner, until in history.leases:
        if owner == new.owner or owner in history.dead or history.deed(owner) in ("failed", "moved", "cut", None):
            continue
        if _now(world, owner, event.time) < until and _now(world, new.owner, event.time) < new.expires_at:
            yield f"{owner} and {new.owner} both hold a live lease"


def _free_to_claim(world: World, event: Wrote) -> Iterator[str]:
    old, new = event.old, event.new
    if old is None:
        return
    latest = event.time + _ahead(world, event.place, shown=True)
    if latest >= old.bound_until:
        return
    if old.status == COMPLETED and world.settings.get("on_expired") == "refuse":
        yield f"{new.owner} took over an expired key, which is refused for {old.bound_until - latest:g} s more"
    respected = old.expires_at + (world.margin if old.status == PENDING and _trusted(world) else 0.0)
    if latest < respected:
        yield f"{new.owner} took over what {old.owner} holds as {old.status} for {respected - latest:g} s more"
    if _asks(world, old.owner) != _asks(world, new.owner):
        yield f"{new.owner} took over a key that is bound to another request"


def kept_leases(world: World, history: History, event: Event) -> Iterator[str]:
    """Nobody loses its lease whom nothing has held up, before `max_execution_seconds` are over."""
    if not isinstance(event, Wrote) or event.old is None or world.delays or world.stalls or history.faults:
        return
    old, new = event.old, event.new
    working = old.status == PENDING and history.deed(old.owner) == "runs" and old.owner not in history.dead
    if working and new.owner != old.owner and event.time < old.created_at + world.settings["max_execution_seconds"]:
        yield f"{old.owner} has lost its lease to {new.owner}, and nothing had held it up"


def one_answer(world: World, history: History, event: Event) -> Iterator[str]:
    """After COMPLETED, until its retention ends, nothing runs, and every replay is the recorded answer."""
    match event:
        case Wrote(time, place, Standing(status="COMPLETED") as old, new):
            if time + _ahead(world, place, shown=True) < old.expires_at:
                yield f"{new.owner} wrote over the answer that {old.owner} had recorded"
        case Seen(what=Began(owner)):
            yield from _runs_by_right(world, history, event, owner)
        case Seen(what=Answered(kind="replay") as answer):
            yield from _is_recorded(world, history, event, answer)
        case Seen(what=Answered(kind="own", final=True) as answer, shown=Standing(status="COMPLETED") as shown):
            same = _asks(world, shown.owner) == _asks(world, answer.owner) and shown.owner != answer.owner
            if same and shown.answer != answer.text and event.time + _ahead(world, event.place) < shown.expires_at:
                yield f"{answer.owner} shows its own answer although that of {shown.owner} is recorded"
    match event:
        case Seen(what=Answered(owner=owner, kind="own", text=text, final=True)) if f" by {owner}" not in text:
            yield f"{owner} got {text!r} as if it were its own"


def _runs_by_right(world: World, history: History, event: Seen, owner: str) -> Iterator[str]:
    deed, until = history.deed(owner), history.lease(owner)
    if deed != "claimed":
        yield f"{owner} runs without a claim of its own ({deed or 'none'})"
    if until is None:
        yield f"{owner} begins to run after its claim was given back"
    elif event.at_once and _trusted(world) and event.time + _behind(world, event.place) >= until:
        yield f"{owner} begins to run after its lease has ended"


def _is_recorded(world: World, history: History, event: Seen, answer: Answered) -> Iterator[str]:
    client = world.clients[answer.client]
    until = max((end for text, end in history.recorded if text == answer.text), default=None)
    if until is None:
        yield f"{answer.owner} got a replay that was never recorded: {answer.text!r}"
    elif event.at_once and event.time + _behind(world, event.place) >= until:
        yield f"{answer.owner} got a replay after the retention's end"
    if not answer.text.startswith(f"{client.asks} of {client.caller} "):
        yield f"{answer.owner} got an answer to somebody else's request: {answer.text!r}"


def recorded_before_visible(world: World, history: History, event: Event) -> Iterator[str]:
    """Who shows its own answer has recorded it, or has lost its lease, or met a store that failed."""
    match event:
        case Seen(what=Answered(owner=owner, kind="own", text=text, final=True)):
            recorded = any(answer == text for answer, _ in history.recorded)
            if not recorded and not history.faults and owner not in history.superseded:
                yield f"{owner} shows an answer that is not recorded"


def bounded_runs(world: World, history: History, event: Event) -> Iterator[str]:
    """The handler runs no oftener than the options allow."""
    match event:
        case Seen(what=Began(owner)):
            runs, bound = history.runs + 1, 1 + history.sent_elsewhere
            if world.settings.get("on_error") != "refuse":
                bound += history.failures
            if world.settings.get("on_abandoned") != "refuse":
                bound += history.crashes + history.lost_leases
            if runs > bound:
                yield f"{owner} begins run {runs}, where {bound} are allowed"


def versions_grow(world: World, history: History, event: Event) -> Iterator[str]:
    """Every write is one version more, every claim one attempt more, and nobody gives back what it does not hold."""
    if not isinstance(event, Wrote):
        return
    old, new = event.old, event.new
    expected = 1 if old is None else old.version + 1
    # Where a record was swept that an attempt has seen, its claim is later than that: what others still hold for this
    # owner's first version must not fit the second. Whether it does is seen by "one owner".
    follows_another = old is None and bool(history.deeds) and new.version > 1
    if new.version != expected and not follows_another:
        yield f"{new.owner} wrote version {new.version} instead of {expected}"
    if new.attempt not in _next_attempts(world, history, event):
        yield f"{new.owner} wrote attempt {new.attempt} over attempt {old.attempt if old else 0}"
    deed = history.deed(new.owner)
    if (
        new.status == FAILED
        and deed == "claimed"
        and old is not None
        and old.attempt > 1
        and new.bound_until < old.bound_until
    ):
        yield f"{new.owner} frees the key, which an earlier attempt has bound"
    if new.status == FAILED and deed == "failed" and old is not None and new.bound_until < old.bound_until:
        yield f"{new.owner} frees the key, although its handler has failed"
    if new.status == FAILED and deed not in ("claimed", "failed", "moved"):
        yield f"{new.owner} gave the key back although its handler {deed or 'has claimed nothing'}"
    # A transaction may be applied and its caller hear nothing of it: so it raises.
    kept = deed == "answered" or (deed == "failed" and (world.settings.get("on_error") == "store" or world.transacts))
    if new.status == COMPLETED and not kept and new.answer != "outcome-unknown":
        yield f"{new.owner} recorded an answer although its handler {deed or 'never ran'}"


def transacted_once(world: World, history: History, event: Event) -> Iterator[str]:
    """What is written together with a claim is written once, and whoever comes next can see that it was."""
    if not isinstance(event, Wrote) or not world.transacts:
        return
    new = event.new
    entries = 0 if _binds_anew(world, event) else event.entries - history.entries_before
    if entries > 1:
        yield f"{new.owner} has done again what was done before"
    if entries and not new.has_checkpoint and new.status != COMPLETED:
        yield f"{new.owner} wrote {new.status} without a word of what was done"
    if world.transacts == "completion" and new.status == COMPLETED and not entries:
        yield f"{new.owner} completed without doing what belongs to it"


def _next_attempts(world: World, history: History, event: Wrote) -> tuple[int, ...]:
    """The numbers that this write may bear; two, where the clock is not known well enough to say."""
    old, new = event.old, event.new
    if old is None:
        return (1,)
    if old.owner == new.owner:
        never_began = new.status == FAILED and history.deed(new.owner) == "claimed"
        return (old.attempt - 1,) if never_began and old.attempt > 1 else (old.attempt,)  # it gives its number back
    latest = event.time + _ahead(world, event.place, shown=True)
    free_at = old.expires_at if old.status == COMPLETED else old.bound_until
    if latest < free_at:
        return (old.attempt + 1,)
    return (1, old.attempt + 1)


def honest_leases(world: World, history: History, event: Event) -> Iterator[str]:
    """No record holds its key for longer than the options say, and no answer for less."""
    match event:
        case Seen(what=Began(owner)):
            latest = event.time + _ahead(world, event.place, shown=True) + world.settings["lease_seconds"]
            until = history.lease(owner) or 0.0
            if until > latest:
                yield f"{owner} begins to run with a lease that is {until - latest:g} s too long"
        case Wrote():
            yield from _honest(world, history, event)


def _honest(world: World, history: History, event: Wrote) -> Iterator[str]:
    old, new, latest = event.old, event.new, event.time + _ahead(world, event.place)
    yield from _honest_to_the_sweeper(world, new)
    if old is not None and new.status == PENDING and (old.owner, old.created_at) == (new.owner, new.created_at):
        yield from _renewed_by_right(world, history, old, new)
    seconds = {
        PENDING: world.settings["lease_seconds"],
        FAILED: world.settings.get("retry_after_failure_seconds", 0.0),
        COMPLETED: world.settings.get("retention_seconds", 86400.0),
    }[new.status]
    if new.expires_at > latest + seconds:
        yield f"{new.owner} wrote {new.status} for {new.expires_at - latest:g} s instead of {seconds:g}"
    if new.bound_until < new.expires_at and new.status != FAILED:
        yield f"{new.owner} frees the key before its {new.status} ends"
    ended = next((at for owner, at in history.ended if owner == new.owner), None)
    if new.status == COMPLETED and ended is not None:
        least = ended + _behind(world, event.place) + seconds
        if new.expires_at < least:
            yield f"{new.owner} keeps its answer for {least - new.expires_at:g} s too short"
    if new.status == FAILED and seconds and ended is not None and history.deed(new.owner) == "failed":
        least = ended + _behind(world, event.place) + seconds
        if new.expires_at < least:
            yield f"{new.owner} lets others try again {least - new.expires_at:g} s too early"


def _honest_to_the_sweeper(world: World, new: Standing) -> Iterator[str]:
    if new.ttl <= new.bound_until:
        yield f"the sweeper may take the record of {new.owner} while its key is bound"
    if new.ttl > new.bound_until + _LONGEST_LEFT_OVER:
        yield f"the sweeper leaves the record of {new.owner} for {new.ttl - new.bound_until:g} s"
    if new.status == COMPLETED and new.bound_until < new.expires_at + world.settings.get("tombstone_seconds", 0.0):
        yield f"{new.owner} frees the key before its tombstone ends"


def _renewed_by_right(world: World, history: History, old: Standing, new: Standing) -> Iterator[str]:
    """By the clock that it was made by."""
    made_at = new.expires_at - world.settings["lease_seconds"]
    if made_at >= old.expires_at and not world.stalls:
        yield f"{new.owner} revives a lease that has been over for {made_at - old.expires_at:g} s"
    longest = world.settings["max_execution_seconds"]
    if made_at >= old.created_at + longest and not (world.delays or world.stalls or history.faults):
        yield f"{new.owner} renews its lease after {made_at - old.created_at:g} s of work"


def true_refusals(world: World, history: History, event: Event) -> Iterator[str]:
    """A refusal says what is: nobody hears of another's request, and nobody is sent away for good without a reason."""
    if not isinstance(event, Seen) or not isinstance(event.what, Answered):
        return
    owner, kind, text, shown = event.what.owner, event.what.kind, event.what.text, event.shown
    own = _client(world, owner)
    others = [client for client in world.clients if (client.asks, client.caller) != (own.asks, own.caller)]
    if kind == "problem" and text in _REUSED and not others:
        yield f"{owner} was told {text}, and nobody else used its key"
    if kind == "problem" and text == "store-unavailable" and not history.faults:
        yield f"{owner} was told {text}, and no call has failed"
    if kind == "problem" and text not in _POSSIBLE:
        yield f"{owner} was told {text}"
    if text == "in-progress" and event.what.waited < own.patience and owner.endswith("1"):
        yield f"{owner} was told {text} after {event.what.waited:g} s, and is ready to wait for {own.patience:g} s"
    if text == "in-progress" and own.patience and not (world.delays or world.stalls or history.faults):
        for answer, until in history.recorded:
            at = until - world.settings.get("retention_seconds", 86400.0)
            if answer.startswith(f"{own.asks} of {own.caller} ") and at + LONGEST_POLL < event.time < until:
                yield f"{owner} waited, and was told {text} {event.time - at:g} s after the answer was recorded"
    yield from _prompt(world, history, event, event.what)
    if shown is not None and event.at_once and shown.owner != owner:
        yield from _true_of(world, event, event.what, shown)


def _prompt(world: World, history: History, event: Seen, answer: Answered) -> Iterator[str]:
    """Who waits is told as soon as somebody of its own process has an answer, and not kept for longer than it wants."""
    own = world.clients[answer.client]
    if not own.patience or world.delays or world.stalls or world.cuts or history.faults:
        return
    if answer.text == "in-progress" and answer.waited > own.patience + LONGEST_POLL:
        yield f"{answer.owner} was kept waiting for {answer.waited:g} s instead of {own.patience:g}"
    for text, until in history.recorded:
        at = until - world.settings.get("retention_seconds", 86400.0)
        here = world.place(world.clients.index(_client(world, text.split()[-1]))) == event.place
        soon = at + _TICK + (0.0 if here else LONGEST_POLL)
        if text.startswith(f"{own.asks} of {own.caller} ") and event.time - answer.waited < at and soon < event.time:
            yield f"{answer.owner} was told {event.time - at:g} s after the answer was recorded"


def _true_of(world: World, event: Seen, answer: Answered, shown: Standing) -> Iterator[str]:
    """Whether an answer fits the record that it was given for, which is another's."""
    owner, text = answer.owner, answer.text
    problem = text if answer.kind == "problem" else ""
    earliest, latest = event.time + _behind(world, event.place), event.time + _ahead(world, event.place)
    foreign = _asks(world, shown.owner) != _asks(world, owner)
    if latest < shown.bound_until and foreign and problem not in _REUSED and answer.kind != "own":
        yield f"{owner} was told {text!r} about the request of {shown.owner}"
    if problem not in ("", "store-unavailable") and earliest >= shown.bound_until:
        yield f"{owner} was told {problem} although the key is free"
    if problem in ("in-progress", "retry-later") and shown.status == COMPLETED:
        yield f"{owner} was told {problem} although {shown.owner} has completed"
    if problem == "in-progress" and earliest >= shown.expires_at + world.margin:
        yield f"{owner} was told {problem} although the lease of {shown.owner} is over"
    if problem == "outcome-unknown" and shown.status == PENDING:
        if latest < shown.expires_at + world.margin:
            yield f"{owner} was told {problem} although {shown.owner} may still run"
        if world.settings.get("on_abandoned") != "refuse":
            yield f"{owner} was told {problem} where abandoned attempts are run again"


_REUSED = frozenset({"key-reused", "credentials-changed"})


def abandoned(world: World, history: History, standing: Standing) -> Iterator[str]:
    """At the very end: no claim is left of an attempt whose process lives and whose work has ended, or never began."""
    deed = history.deed(standing.owner)
    over = ["failed", "moved"]
    # Who is interrupted within a transaction, and its loop with it, can't know what became of it: the claim lapses.
    if not (world.cuts and world.transacts == "completion"):
        over.append("answered")
    # Undoing it may be given up, with good reason: where it landed after its undoing, or where a second call failed,
    # the last one of undoing it before its lease was over, and nobody is kept out by a lease that is over.
    twice = history.faults and world.faults > 1 and world.settings.get("on_abandoned") != "refuse"
    if not (world.delays or world.stalls or standing.owner in history.late_claims or twice):
        over.append("claimed")
    if standing.status == PENDING and standing.owner not in history.dead and deed in over:
        yield f"the claim of {standing.owner} is left although its process lives and its handler {_DEEDS[deed]}"


_DEEDS = {
    "answered": "has answered",
    "failed": "has failed",
    "moved": "has sent it elsewhere",
    "claimed": "never began",
}

_POSSIBLE = frozenset(
    {
        "credentials-changed",
        "in-progress",
        "key-expired",
        "key-reused",
        "outcome-unknown",
        "retry-later",
        "store-unavailable",
    }
)

Promise = Callable[[World, History, Event], Iterator[str]]

PROMISES: dict[str, Promise] = {
    "one owner": one_owner,
    "kept leases": kept_leases,
    "one answer": one_answer,
    "recorded before visible": recorded_before_visible,
    "bounded runs": bounded_runs,
    "versions only grow": versions_grow,
    "transacted once": transacted_once,
    "honest leases": honest_leases,
    "true refusals": true_refusals,
}
"""With `NO_DEAD_END`, which is a promise about all that can follow and so is the search's, these are all."""

NO_DEAD_END = "no dead end"


def check(world: World, history: History, event: Event) -> None:
    """Hold an event against all promises.

    Raises:
        Violation: it breaks one.

    """
    for name, promise in PROMISES.items():
        for complaint in promise(world, history, event):
            raise Violation(name, complaint)


# --- clocks and names ---


def _trusted(world: World) -> bool:
    """Whether all clocks are within the margin of one another, if need be by the store's help."""
    offsets = [world.offset(place) for place in range(world.places)]
    return world.dated or max(offsets) - min(offsets) <= world.margin


def _ahead(world: World, place: int, *, shown: bool = False) -> float:
    """How far this process's clock may be ahead of the true time; `shown` says that it has seen the store's."""
    offset = world.offset(place)
    if not world.dated:
        return offset
    return _RESOLUTION if shown else max(offset, _RESOLUTION)


def _behind(world: World, place: int) -> float:
    """How far this process's clock is ahead of the true time, at least, once it has seen the store's."""
    return -_RESOLUTION if world.dated else world.offset(place)


def _now(world: World, owner: str, time: float) -> float:
    client = world.clients.index(_client(world, owner))
    return time + _behind(world, world.place(client))


def _client(world: World, owner: str) -> Client:
    return next(client for client in world.clients if client.name == owner.rstrip("0123456789"))


def _asks(world: World, owner: str) -> tuple[str, str]:
    client = _client(world, owner)
    return client.asks, client.caller


def _with(entries: tuple[tuple[str, T], ...], name: str, value: T) -> tuple[tuple[str, T], ...]:
    return (*_without(entries, name), (name, value))


def _without(entries: tuple[tuple[str, T], ...], name: str) -> tuple[tuple[str, T], ...]:
    return tuple(entry for entry in entries if entry[0] != name)
