"""All that can happen next, in any state of a world; and the ways to go through it: all of it, or at random."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import NamedTuple

from tests.exploration.clients import LEDGER, PK, START, Answered, Began, Ended, Generation, Told, begin
from tests.exploration.invariants import (
    NO_DEAD_END,
    Crashed,
    Event,
    History,
    Seen,
    Swept,
    Violation,
    Wrote,
    abandoned,
    check,
    remember,
)
from tests.exploration.model import EMPTY, Call, Reply, Table
from tests.exploration.scheduler import Arrive, Fate, Given, Heard, Histories, Moment, Node, Pause, Spinning, Work
from tests.exploration.worlds import World

__all__ = ["Explorer", "Move", "Report", "State"]

_TICK = 2.0**-10
_ENDLESS = 400  # steps; a schedule that ends has a hundred or so
_LATER = 3.0  # where nothing else tells when to look again
_GO, _APPLIED = "go", "applied"
_UPKEEP = -1  # stands where a thread's number would


class Move(NamedTuple):
    """One choice of the scheduler."""

    kind: str
    place: int = -1
    strand: int = 0
    how: str = ""


Choice = tuple[Move, Callable[[], "State"]]
"""A move, and how to make it."""


class Budget(NamedTuple):
    """What may still go wrong."""

    crashes: int
    faults: int
    failures: int
    cuts: int
    delays: int
    stalls: int
    sweeps: int


class Slow(NamedTuple):
    """An answer of the table that has not come yet."""

    place: int
    strand: int
    fate: Fate


class State(NamedTuple):
    """Everything that the future depends on.

    `processes` are numbers of nodes (-1: nothing left to do, or dead); `held_up` are threads that will not go on before
    time does, and of these `delayed` are those that a budget counts, which may stay behind for long; `late` are writes
    whose callers gave up on them, and that may still be applied.
    """

    time: float
    content: int
    late: tuple[tuple[int, Call], ...]
    processes: tuple[int, ...]
    slow: tuple[Slow, ...]
    held_up: frozenset[tuple[int, int]]
    delayed: frozenset[tuple[int, int]]
    budget: Budget
    history: int
    answers: tuple[int, ...]  # of each client: 0 none yet, 1 a final one, 2 it gave up


@dataclass(slots=True)
class Report:
    """What was explored."""

    states: int = 0
    steps: int = 0
    schedules: int = 0
    processes: int = 0
    deepest: int = 0


class Explorer:
    """One world, and everything that was ever found out about it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.table = Table()
        self.processes = Histories(lambda generation: begin(world, self.table, generation))
        self._histories: list[History] = []
        self._history_numbers: dict[History, int] = {}
        self._judged: dict[tuple[int, Event], int] = {}
        self._rescued: set[tuple[int, int, float, int]] = set()
        self._end = START + world.horizon
        self.last_told: tuple[Heard, ...] = ()

    def close(self) -> None:
        """Take all processes down."""
        self.processes.close()

    # --- states ---

    def first(self) -> State:
        """Nothing has happened yet."""
        world = self.world
        members: dict[int, list[tuple[int, int]]] = {}
        for client in range(len(world.clients)):
            members.setdefault(world.place(client), []).append((client, 1))
        processes = tuple(
            self.processes.root(Generation(place, tuple(members[place]))).number for place in range(world.places)
        )
        return State(
            time=START,
            content=EMPTY,
            late=(),
            processes=processes,
            slow=(),
            held_up=frozenset(),
            delayed=frozenset(),
            budget=Budget(
                world.crashes,
                world.faults,
                world.failures,
                world.cuts,
                world.delays,
                world.stalls,
                world.sweeps,
            ),
            history=self._number(History()),
            answers=(0,) * len(world.clients),
        )

    def moves(self, state: State) -> Iterator[Choice]:
        """Everything that can happen next.

        What a process does without the table concerns nobody else until time goes on. So it is done at once and in
        one order, or held up until time has gone on; only calls and time itself come in every order.
        """
        local = self._first_local(state)
        if local is not None:
            yield from self._local_moves(state, *local)
            return
        calls = set()
        for place, node in self._living(state):
            for strand, wish in node.moment.wishes:
                if isinstance(wish, Call) and not self._is_slow(state, place, strand):
                    calls.add((place, strand))
                    yield from self._call_moves(state, place, node, strand, wish)
                elif isinstance(wish, Pause):
                    yield from self._interrupts(state, place, node, strand)
        for number, (place, call) in enumerate(state.late):
            late = state.late[:number] + state.late[number + 1 :]
            yield Move("lands", place, 0, str(number)), partial(self._land, state._replace(late=late), place, call)
        yield from self._sweep_moves(state)
        left = state.budget.delays - len(calls - state.delayed)
        if calls and (state.time >= self._end or left < 0):
            return
        later = self._next_instant(state)
        if later is None:
            return
        if later > self._end > state.time and (calls or self._anything_on_hand(state)):
            later = self._end
        yield (
            Move("time"),
            partial(
                state._replace,
                time=later,
                held_up=frozenset(),
                delayed=state.delayed | calls,
                budget=state.budget._replace(delays=left),
            ),
        )

    def _sweep_moves(self, state: State) -> Iterator[Choice]:
        """The sweeper takes what it may: whole seconds, by the true time."""
        if state.budget.sweeps <= 0:
            return
        fewer_left = state._replace(budget=state.budget._replace(sweeps=state.budget.sweeps - 1))
        for pk, standing in self.table.records(state.content):
            if standing.ttl <= state.time:
                swept = fewer_left._replace(content=self.table.without(state.content, pk))
                yield Move("the sweeper", how=standing.owner), partial(self._told, swept, Swept(standing.owner))

    def _living(self, state: State) -> Iterator[tuple[int, Node]]:
        for place, number in enumerate(state.processes):
            if number >= 0:
                yield place, self.processes[number]

    def _interrupts(self, state: State, place: int, node: Node, strand: int) -> Iterator[Choice]:
        """What can come upon a client's thread while it waits."""
        if state.budget.cuts <= 0 or not _is_client(node, strand):
            return
        for name, what in (("is interrupted", "interrupt"), ("is interrupted, its loop too", "shutdown")):
            if what == "interrupt" or self._on_a_loop(node):
                cut = Given(strand, what, state.time)
                yield Move(name, place, strand), partial(self._step, _cut(state), place, node, cut)

    def _on_a_loop(self, node: Node) -> bool:
        assert isinstance(node.root, Generation)
        return any(self.world.clients[number].asynchronous for number, _ in node.root.tries)

    def _anything_on_hand(self, state: State) -> bool:
        """Whether anything but an arrival is held up; only new clients come long after everything."""
        wishes = {(place, strand): wish for place, node in self._living(state) for strand, wish in node.moment.wishes}
        return bool(state.slow) or not all(isinstance(wishes.get(held), Arrive) for held in state.held_up)

    @staticmethod
    def _is_slow(state: State, place: int, strand: int) -> bool:
        return any(slow.place == place and slow.strand == strand for slow in state.slow)

    # --- what a process does by itself ---

    def _first_local(self, state: State) -> tuple[int, Node, int, object] | None:
        for place, node in self._living(state):
            for strand, wish in node.moment.wishes:
                if (place, strand) in state.held_up:
                    continue
                if isinstance(wish, Call):
                    slow = next((slow for slow in state.slow if slow[:2] == (place, strand)), None)
                    if slow is not None:
                        return place, node, strand, slow
                elif self._ready(state, place, wish):
                    return place, node, strand, wish
            due = node.moment.due
            if due is not None and due <= state.time and (place, _UPKEEP) not in state.held_up:
                return place, node, _UPKEEP, None
        return None

    def _ready(self, state: State, place: int, wish: object) -> bool:
        if isinstance(wish, Pause):
            return wish.woken or (wish.until is not None and wish.until <= state.time)
        return True

    def _local_moves(self, state: State, place: int, node: Node, strand: int, wish: object) -> Iterator[Choice]:
        match wish:
            case Slow():
                spared = state._replace(slow=tuple(slow for slow in state.slow if slow is not wish))
                yield from self._resume(spared, place, node, strand, wish.fate, "gets its answer")
                may_wait = self._may_delay(state, place, strand)
            case Arrive(client=int(client)):
                if not self._comes_later(state, client):
                    yield from self._resume(state, place, node, strand, _GO, "arrives")
                if state.time < self._end:
                    yield Move("is still to come", place, strand), partial(self._held_up, state, place, strand)
                return
            case Work():
                yield from self._work_moves(state, place, node, strand)
                return
            case None:
                yield (
                    Move("upkeep", place, strand),
                    partial(self._step, state, place, node, Given(None, _GO, state.time)),
                )
                may_wait = self._may_delay(state, place, strand)
            case _:
                yield from self._resume(state, place, node, strand, _GO, "goes on")
                may_wait = isinstance(wish, Pause) and not wish.woken and self._may_delay(state, place, strand)
        if may_wait:
            yield Move("is held up", place, strand), partial(self._delay, state, place, strand)

    def _work_moves(self, state: State, place: int, node: Node, strand: int) -> Iterator[Choice]:
        budget = state.budget
        yield from self._resume(state, place, node, strand, "answers", "handler answers")
        if budget.failures > 0:
            fewer = state._replace(budget=budget._replace(failures=budget.failures - 1))
            for how in self.world.failure_kinds:
                yield from self._resume(fewer, place, node, strand, how, f"handler {how}")
        if budget.cuts > 0:
            yield from self._resume(_cut(state), place, node, strand, "cut", "handler is cut")
        if state.time < self._end:
            yield Move("goes on with its work", place, strand), partial(self._held_up, state, place, strand)

    def _comes_later(self, state: State, client: int) -> bool:
        """Of clients that are alike, the first one comes first."""
        for earlier in range(client):
            node_number = state.processes[self.world.place(earlier)]
            if node_number >= 0 and self.world.alike(earlier, client):
                node = self.processes[node_number]
                if node.parent is None and node.root == Generation(self.world.place(earlier), ((earlier, 1),)):
                    return True
        return False

    def _may_delay(self, state: State, place: int, strand: int) -> bool:
        return state.time < self._end and (state.budget.delays > 0 or (place, strand) in state.delayed)

    def _delay(self, state: State, place: int, strand: int) -> State:
        """Leave a thread behind; that costs once, however long it is."""
        if (place, strand) not in state.delayed:
            state = state._replace(
                delayed=state.delayed | {(place, strand)},
                budget=state.budget._replace(delays=state.budget.delays - 1),
            )
        return self._held_up(state, place, strand)

    @staticmethod
    def _held_up(state: State, place: int, strand: int) -> State:
        return state._replace(held_up=state.held_up | {(place, strand)})

    def _resume(
        self, state: State, place: int, node: Node, strand: int, what: Fate | str, name: str
    ) -> Iterator[Choice]:
        """Let a thread go on; where it may stall, also up to each of its looks at the clock."""
        given = Given(strand, what, state.time)
        yield Move(name, place, strand), partial(self._step, state, place, node, given)
        if state.budget.stalls <= 0 or state.time >= self._end:
            return
        reads = self.processes.step(node, given).moment.reads
        fewer = state._replace(budget=state.budget._replace(stalls=state.budget.stalls - 1))
        for number in range(1, reads + 1):
            stalled = replace(given, stall_at=number)
            yield (
                Move(f"{name}, stalls", place, strand, str(number)),
                partial(self._step_and_hold_up, fewer, place, node, stalled),
            )

    def _step_and_hold_up(self, state: State, place: int, node: Node, given: Given) -> State:
        assert given.strand is not None
        return self._held_up(self._step(state, place, node, given), place, given.strand)

    # --- calls ---

    def _call_moves(self, state: State, place: int, node: Node, strand: int, call: Call) -> Iterator[Choice]:
        name, writes = call.operation, call.operation != "get_item"
        yield Move(name, place, strand), partial(self._called, state, place, node, strand, call, 0)
        yield from self._slow_moves(state, place, node, strand, call)
        if state.budget.faults > 0:
            for kind in self.world.fault_kinds:
                if writes or kind in ("refused", "throttled"):
                    faulty = partial(self._faulty, state, place, node, strand, call, kind)
                    yield Move(f"{name}, {kind}", place, strand), faulty
        yield from self._cut_moves(state, place, node, strand, call)
        if state.budget.crashes > 0:
            yield Move(f"crash before {name}", place, strand), partial(self._crash, state, place)
            if writes:
                crashed = lambda: self._crash(self._land(state, place, call), place)  # noqa: E731
                yield Move(f"crash after {name}", place, strand), crashed

    def _slow_moves(self, state: State, place: int, node: Node, strand: int, call: Call) -> Iterator[Choice]:
        name, budget = call.operation, state.budget
        if self._may_delay(state, place, strand):
            slowly = partial(self._called_slowly, state, place, strand, call)
            yield Move(f"{name}, the answer is slow", place, strand), slowly
        if budget.stalls > 0 and state.time < self._end:
            fewer = state._replace(budget=budget._replace(stalls=budget.stalls - 1))
            fate = Fate(_APPLIED, self.table.apply(state.content, call)[1])
            for number in range(1, self.processes.step(node, Given(strand, fate, state.time)).moment.reads + 1):
                stalled = partial(self._called, fewer, place, node, strand, call, number)
                yield Move(f"{name}, stalls", place, strand, str(number)), stalled

    def _cut_moves(self, state: State, place: int, node: Node, strand: int, call: Call) -> Iterator[Choice]:
        if state.budget.cuts <= 0 or not _is_client(node, strand):
            return
        cut = Given(strand, Fate("cut"), state.time)
        yield (
            Move(f"interrupted before {call.operation}", place, strand),
            partial(self._step, _cut(state), place, node, cut),
        )
        if call.operation != "get_item":
            applied = lambda: self._step(_cut(self._land(state, place, call)), place, node, cut)  # noqa: E731
            yield Move(f"interrupted after {call.operation}", place, strand), applied

    def _called(self, state: State, place: int, node: Node, strand: int, call: Call, stall_at: int) -> State:
        state, reply = self._apply(state, place, call)
        given = Given(strand, Fate(_APPLIED, reply), state.time, stall_at)
        return self._step_and_hold_up(state, place, node, given) if stall_at else self._step(state, place, node, given)

    def _called_slowly(self, state: State, place: int, strand: int, call: Call) -> State:
        state, reply = self._apply(state, place, call)
        slow = (*state.slow, Slow(place, strand, Fate(_APPLIED, reply)))
        return self._delay(state._replace(slow=slow), place, strand)

    def _faulty(self, state: State, place: int, node: Node, strand: int, call: Call, kind: str) -> State:
        if kind in ("lost", "again"):
            state = self._land(state, place, call)
        if kind == "late":
            state = state._replace(late=(*state.late, (place, call)))
        history = self._number(replace(self._histories[state.history], faults=1))
        state = state._replace(budget=state.budget._replace(faults=state.budget.faults - 1), history=history)
        # Whether it was applied is not known to the caller, so that is not in what it is given.
        given = kind if kind in ("again", "throttled") else "lost"
        return self._step(state, place, node, Given(strand, Fate(given), state.time))

    def _land(self, state: State, place: int, call: Call) -> State:
        return self._apply(state, place, call)[0]

    def _apply(self, state: State, place: int, call: Call) -> tuple[State, Reply]:
        """What the table makes of a call."""
        content, reply = self.table.apply(state.content, call)
        if content == state.content:
            return state, reply
        old, new = self.table.standing(state.content, call.pk), self.table.standing(content, call.pk)
        if new is None:
            return state._replace(content=content), reply
        entries = self.table.entries(content, LEDGER)
        return self._told(state._replace(content=content), Wrote(state.time, place, old, new, entries)), reply

    def _crash(self, state: State, place: int) -> State:
        """The process is gone, and with it what it had on its way; its clients come again, if they still may."""
        node = self.processes[state.processes[place]]
        owners = tuple(
            owner
            for owner, _ in self._histories[state.history].deeds
            if self.world.place(self._client_of(owner)) == place
        ) + tuple(call.owner for at, call in state.late if at == place)
        state = self._told(state, Crashed(owners))
        answers = list(state.answers)
        tries: list[tuple[int, int]] = []
        for client, answer in enumerate(state.answers):
            if self.world.place(client) == place and not answer:
                tried = self._tried(node, client)
                if tried < self.world.tries:
                    tries.append((client, tried + 1))
                else:
                    answers[client] = 2
        number = self.processes.root(Generation(place, tuple(tries))).number if tries else -1
        processes = list(state.processes)
        processes[place] = number
        return state._replace(
            processes=tuple(processes),
            answers=tuple(answers),
            slow=tuple(slow for slow in state.slow if slow.place != place),
            held_up=frozenset(held for held in state.held_up if held[0] != place),
            delayed=frozenset(held for held in state.delayed if held[0] != place),
            budget=state.budget._replace(crashes=state.budget.crashes - 1),
        )

    def _tried(self, node: Node, client: int) -> int:
        """How often a client of this process has sent its request."""
        assert isinstance(node.root, Generation)
        tries = dict(node.root.tries)[client]
        at: Node | None = node
        while at is not None:
            tries += sum(isinstance(heard.what, Answered) and heard.what.client == client for heard in at.moment.told)
            at = at.parent
        return tries

    def _client_of(self, owner: str) -> int:
        name = owner.rstrip("0123456789")
        return next(number for number, client in enumerate(self.world.clients) if client.name == name)

    # --- steps and what they tell ---

    def _step(self, state: State, place: int, node: Node, given: Given) -> State:
        following = self.processes.step(node, given)
        self.last_told = following.moment.told
        strand = _UPKEEP if given.strand is None else given.strand
        if (place, strand) in state.delayed:
            state = state._replace(delayed=state.delayed - {(place, strand)})
        processes = list(state.processes)
        moment = following.moment
        processes[place] = following.number if _alive(moment) else -1
        state = state._replace(processes=tuple(processes))
        if not moment.told:
            return state
        for heard in moment.told:
            what = heard.what
            if isinstance(what, Told):
                continue
            assert isinstance(what, (Began, Ended, Answered))
            shown = self.table.standing_in(state.content, PK, heard.item)
            state = self._told(state, Seen(state.time, place, what, shown, heard.at_once))
            if isinstance(what, Answered):
                answers = list(state.answers)
                answers[what.client] = 1 if what.final else 2 if what.over else 0
                state = state._replace(answers=tuple(answers))
        return state

    def _told(self, state: State, event: Event) -> State:
        following = self._judged.get((state.history, event))
        if following is None:
            history = self._histories[state.history]
            check(self.world, history, event)
            following = self._judged[state.history, event] = self._number(remember(self.world, history, event))
        return state._replace(history=following)

    def _number(self, history: History) -> int:
        number = self._history_numbers.get(history)
        if number is None:
            number = self._history_numbers[history] = len(self._histories)
            self._histories.append(history)
        return number

    # --- time ---

    def _next_instant(self, state: State) -> float | None:
        """The next one at which anything can be otherwise; None if nobody is there to see it."""
        marks: list[float] = []
        offsets = set()
        for place, node in self._living(state):
            moment = node.moment
            if moment.wishes:
                offsets.add(self.world.offset(place))
            if moment.due is not None:
                marks.append(moment.due)
            marks.extend(wish.until for _, wish in moment.wishes if isinstance(wish, Pause) and wish.until is not None)
        if state.held_up or offsets:
            for _, standing in self.table.records(state.content):
                ends = {standing.expires_at, standing.bound_until}
                if state.budget.sweeps > 0:
                    marks.append(float(standing.ttl))
                if standing.status == "PENDING":
                    ends.add(standing.expires_at + self.world.margin)
                marks.extend(end - offset for end in ends for offset in offsets)
        later = [at for at in (ceil(mark / _TICK) * _TICK for mark in marks) if at > state.time]
        if later:
            return min(later)
        return state.time + _LATER if state.held_up or state.slow else None

    # --- the ways through ---

    def exhaust(self, *, most_states: int | None = None) -> Report:
        """Go through every state once, depth first. Time only goes on, so no schedule comes back to where it was.

        Raises:
            Broken: a promise is.

        """
        report = Report()
        schedules: dict[int, int] = {}  # how many lead on from a state, by the state's hash
        path: list[Move] = []
        visit = _Visit(self.first(), None, self.moves(self.first()))
        stack = [visit]
        with self._blaming(path):
            while stack:
                visit = stack[-1]
                choice = next(visit.choices, None)
                if choice is not None:
                    path.append(choice[0])
                    report.steps += 1
                    if len(path) > _ENDLESS:
                        raise Violation(NO_DEAD_END, "it goes on for ever")
                    following = choice[1]()
                    key = hash(following)
                    known = schedules.get(key)
                    visit.ends = False
                    if known is None:
                        stack.append(_Visit(following, key, self.moves(following)))
                        report.deepest = max(report.deepest, len(path))
                    else:
                        path.pop()
                        visit.schedules += known
                    continue
                stack.pop()
                if visit.ends:
                    self.end(visit.state)
                    visit.schedules = 1
                report.states += 1
                if visit.key is None:
                    break
                schedules[visit.key] = visit.schedules
                stack[-1].schedules += visit.schedules
                path.pop()
                if most_states is not None and report.states >= most_states:
                    raise TooManyError(report)
            report.schedules = visit.schedules
        report.processes = len(self.processes)
        return report

    def wander(self, chance: random.Random) -> int:
        """Go through one schedule at random; gives the number of steps.

        Raises:
            Broken: a promise is.

        """
        path: list[Move] = []
        with self._blaming(path):
            state = self.first()
            while choices := list(self.moves(state)):
                if len(path) > _ENDLESS:
                    raise Violation(NO_DEAD_END, "it goes on for ever")
                move, make = chance.choice(choices)
                path.append(move)
                state = make()
            self.end(state)
        return len(path)

    def follow(self, moves: Sequence[Move]) -> list[tuple[Move, State, State]]:
        """Make these moves, leaving out those that are not possible, and then go straight on to the end.

        Raises:
            Broken: a promise is.

        """
        path: list[Move] = []
        passed: list[tuple[Move, State, State]] = []
        wanted = list(moves)
        with self._blaming(path):
            state = self.first()
            while choices := dict(self.moves(state)):
                if len(path) > _ENDLESS:
                    raise Violation(NO_DEAD_END, "it goes on for ever")
                move = next((move for move in wanted if move in choices), None)
                if move is None:
                    wanted.clear()
                    move = next(iter(choices))
                else:
                    del wanted[: wanted.index(move) + 1]
                path.append(move)
                before, state = state, choices[move]()
                passed.append((move, before, state))
            self.end(state)
        return passed

    @contextmanager
    def _blaming(self, path: list[Move]) -> Iterator[None]:
        try:
            yield
        except Violation as violation:
            raise Broken(self.world, tuple(path), violation.promise, str(violation)) from violation
        except Spinning as spinning:
            raise Broken(self.world, tuple(path), NO_DEAD_END, "a thread spins, and waits for nothing") from spinning
        except (TooManyError, Broken):
            raise
        except Exception as error:
            raise Broken(self.world, tuple(path), "no surprises", f"{type(error).__name__}: {error}") from error

    # --- the end ---

    def end(self, state: State) -> None:
        """Nothing more can happen: everybody must have an answer, or get it by asking again, after lease time.

        Raises:
            Violation: somebody never does.

        """
        history = self._histories[state.history]
        for _, standing in self.table.records(state.content):
            for complaint in abandoned(self.world, history, standing):
                raise Violation(NO_DEAD_END, complaint)
        for client, answer in enumerate(state.answers):
            if answer == 0:
                raise Violation(NO_DEAD_END, f"{self.world.clients[client].name} waits for ever")
            if answer == 2:
                self._rescue(state, client)

    def _rescue(self, state: State, client: int) -> None:
        key = (state.content, state.history, state.time, client)
        if key in self._rescued:
            return
        place = self.world.place(client)
        root = self.processes.root(Generation(place, ((client, self.world.tries + 1),), rescue=True))
        processes = tuple(root.number if at == place else -1 for at in range(self.world.places))
        answers = tuple(0 if number == client else 1 for number in range(len(self.world.clients)))
        state = state._replace(processes=processes, answers=answers, budget=Budget(0, 0, 0, 0, 0, 0, 0))
        limit = state.time + self.world.patience_of_all
        while state.answers[client] != 1:
            choice = next(self.moves(state), None)
            if choice is None or state.time > limit:
                raise Violation(NO_DEAD_END, f"{self.world.clients[client].name} gets no answer, however long it asks")
            state = choice[1]()
        self._rescued.add(key)


@dataclass(slots=True)
class _Visit:
    """A state on the way, with the choices that are left, and how many schedules the others have led to."""

    state: State
    key: int | None
    choices: Iterator[Choice]
    schedules: int = 0
    ends: bool = True


class TooManyError(Exception):
    """The world is larger than was asked for."""

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__(f"more than {report.states} states")


class Broken(AssertionError):
    """A schedule that breaks a promise."""

    def __init__(self, world: World, moves: tuple[Move, ...], promise: str, complaint: str) -> None:
        self.world = world
        self.moves = moves
        self.promise = promise
        super().__init__(complaint)


def _cut(state: State) -> State:
    return state._replace(budget=state.budget._replace(cuts=state.budget.cuts - 1))


def _is_client(node: Node, strand: int) -> bool:
    """Whether this is the thread of a client: its number is among the first; the others are the product's own."""
    return isinstance(node.root, Generation) and strand < len(node.root.tries)


def _alive(moment: Moment) -> bool:
    return bool(moment.wishes) or moment.due is not None
