"""A schedule as somebody can read it, and the shortest one that shows the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.exploration.clients import START, Answered, Began, Ended, Generation, Told
from tests.exploration.model import Call, Standing
from tests.exploration.scheduler import Heard, Spinning
from tests.exploration.search import Broken, Explorer, Move, State
from tests.exploration.worlds import World

__all__ = ["shortest", "told"]

_QUIET = frozenset({"is still to come", "goes on with its work", "is held up"})
_MOST_RUNS = 400
_LONG, _SHOWN = 150, 40  # lines of a story, and how many of a long one's beginning and end are shown


def shortest(explorer: Explorer, broken: Broken) -> Broken:
    """Leave out of a schedule whatever is not needed to break the same promise: halves first, then single moves."""
    best = broken
    if len(best.moves) > _LONG:  # it goes on for ever, and its beginning says all
        return best
    runs = 0
    size = max(1, len(best.moves) // 2)
    while True:
        start, smaller = 0, False
        while start < len(best.moves) and runs < _MOST_RUNS:
            runs += 1
            shorter = _broken(explorer, best.moves[:start] + best.moves[start + size :])
            if shorter is not None and shorter.promise == broken.promise and len(shorter.moves) < len(best.moves):
                best, smaller = shorter, True
            else:
                start += size
        if runs >= _MOST_RUNS or (size == 1 and not smaller):
            return best
        if not smaller:
            size = max(1, size // 2)


def _broken(explorer: Explorer, moves: Sequence[Move]) -> Broken | None:
    try:
        explorer.follow(moves)
    except Broken as broken:
        return broken
    return None


def told(explorer: Explorer, broken: Broken) -> str:
    """The whole story of a broken promise."""
    lines = [f'world "{explorer.world.name}" breaks "{broken.promise}"', *_setting(explorer.world), ""]
    state = explorer.first()
    for move in broken.moves:
        choices = dict(explorer.moves(state))
        before = state
        explorer.last_told = ()
        try:
            state = choices[move]()
        except (Exception, Spinning):  # noqa: BLE001 - the last move is the one that breaks it
            lines.append(_line(explorer, move, before, None))
        else:
            if move.kind not in _QUIET:
                lines.append(_line(explorer, move, before, state))
                lines.extend(_heard(explorer.last_told))
    if len(lines) > _LONG:
        lines[_SHOWN:-_SHOWN] = [f"{'':10}  … and so on, {len(lines) - 2 * _SHOWN} lines …"]
    return "\n".join((*lines, f"  => {broken}"))


def _setting(world: World) -> Iterator[str]:
    for number, client in enumerate(world.clients):
        offset = world.offset(world.place(number))
        traits = [f"asks {client.asks!r} as {client.caller!r}", f"in process {world.place(number)}"]
        traits += [f"waits {client.patience:g} s"] if client.patience else []
        traits += ["asynchronous"] if client.asynchronous else []
        traits += [f"clock {offset:+g} s"] if offset else []
        yield f"  client {client.name}: {', '.join(traits)}"
    yield f"  margin {world.margin:g} s, {', '.join(f'{name}={value!r}' for name, value in world.settings.items())}"


def _line(explorer: Explorer, move: Move, before: State, after: State | None) -> str:
    at = f"{before.time - START:+8.3f}"
    if move.kind == "time":
        return f"{at}  time goes on" if after is None else f"{at}  time goes on to {after.time - START:+.3f}"
    if move.kind == "the sweeper":
        return f"{at}  the sweeper takes the record of {move.how}"
    who = _who(explorer, move, before)
    detail = f" (at look {move.how} at the clock)" if "stalls" in move.kind else ""
    call = _call(explorer, move, before)
    if call is None:
        return f"{at}  {who}: {move.kind}{detail}"
    effect = "" if after is None else f" -> {_record(explorer, after)}"
    return f"{at}  {who}: {move.kind}{detail} {call}{effect}"


def _who(explorer: Explorer, move: Move, state: State) -> str:
    clients = explorer.world.clients
    names = [client.name for number, client in enumerate(clients) if explorer.world.place(number) == move.place]
    members: list[str] = []
    if state.processes[move.place] >= 0:
        generation = explorer.processes[state.processes[move.place]].root
        assert isinstance(generation, Generation)
        members = [clients[number].name for number, _ in generation.tries]
    if 0 <= move.strand < len(members):
        return members[move.strand]
    return f"background of {'+'.join(names)}"


def _call(explorer: Explorer, move: Move, state: State) -> str | None:
    number = state.processes[move.place]
    if move.kind == "lands":
        return _request(state.late[int(move.how)][1])
    if number < 0:
        return None
    wish = dict(explorer.processes[number].moment.wishes).get(move.strand)
    return _request(wish) if isinstance(wish, Call) else None


def _request(call: Call) -> str:
    request = call.request
    if call.operation == "transact_write_items":
        (request,) = request["TransactItems"][0].values()
    if call.operation == "put_item":
        standing = Standing.of(request["Item"])
        return "" if standing is None else f"[{_shown(standing)}]"
    if "UpdateExpression" not in request:
        return ""
    values: dict[str, Any] = request["ExpressionAttributeValues"]
    item = {name[1:]: value for name, value in values.items()}
    standing = Standing.of(item)
    if standing is None or "old_version" not in item:
        return str(request.get("ConditionExpression", "without a condition"))
    old = f"{item['old_status']['S']} v{item['old_version']['N']} of {item['old_owner']['S']}"
    return f"[{old} -> {_shown(standing)}]"


def _shown(standing: Standing) -> str:
    return f"{standing.status} v{standing.version} of {standing.owner} until {standing.expires_at - START:+.3f}"


def _record(explorer: Explorer, state: State) -> str:
    records = explorer.table.records(state.content)
    return "; ".join(_shown(standing) for _, standing in records) or "nothing stands there"


def _heard(told_by_it: Sequence[Heard]) -> Iterator[str]:
    for heard in told_by_it:
        yield f"{'':10}  {_sentence(heard.what)}"


def _sentence(what: object) -> str:
    match what:
        case Began(owner):
            return f"the handler begins, attempt {owner}"
        case Ended(owner, how):
            return f"the handler of {owner} {how}"
        case Answered(owner=owner, kind="problem", text=text):
            return f"{owner} gets the problem {text}"
        case Answered(owner=owner, kind=kind, text=text):
            return f"{owner} gets {kind}: {text!r}"
        case Told(kind, reason):
            return f"event {kind}{f' ({reason})' if reason else ''}"
    return str(what)
