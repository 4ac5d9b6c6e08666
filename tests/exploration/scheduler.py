"""One process of the product, run step by step: each of its threads is a greenlet that says what it waits for.

A process is a deterministic function of what it is given, so `Histories` keeps it as a tree: a step that was taken
before is looked up, and a process is run again from its beginning only where a new branch begins.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from greenlet import GreenletExit, getcurrent, greenlet  # type: ignore[import-untyped]

from idem_middleware.upkeep import Job, Upkeep
from tests.exploration.model import Call, Reply

__all__ = [
    "Arrive",
    "Fate",
    "Given",
    "Heard",
    "Histories",
    "Interrupt",
    "Moment",
    "Pause",
    "Process",
    "Shutdown",
    "Spinning",
    "Stall",
    "Wish",
    "Work",
]

_LIVE_PROCESSES = 256
_MOST_LOOKS = 1000  # at the clock, in one step; there are a dozen or two
_LEAST_PAUSE = 2.0**-10


class Interrupt(BaseException):
    """What a signal or a time-out of the server raises in the middle of anything."""


class Spinning(BaseException):
    """A thread looks at the clock again and again, and waits for nothing."""


class Shutdown(Interrupt):
    """The same for a whole event loop: nothing on it goes on."""


# --- what a thread can wait for ---


@dataclass(frozen=True, slots=True)
class Arrive:
    """A client's request has not come yet; or a thread was started and has not run."""

    client: int | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """The handler runs, for this attempt."""

    owner: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing to do until then, or until somebody in the same process wakes it."""

    until: float | None
    woken: bool = False


@dataclass(frozen=True, slots=True)
class Stall:
    """Stopped by the operating system just before it reads the clock."""


Wish = Arrive | Work | Pause | Stall | Call


# --- what it is given ---


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a call: `name` says how it ends for the caller, `reply` what the table said."""

    name: str
    reply: Reply | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """One step: the thread that goes on, what it gets, when, and before which reading of the clock it is stopped.

    Without a thread it is the upkeep's turn: everything that is due begins.
    """

    strand: int | None
    what: Fate | str
    time: float
    stall_at: int = 0


@dataclass(frozen=True, slots=True)
class Heard:
    """What a process told, and the number of the item that its client's calls were shown last, if any.

    `at_once` is False where time has passed since it was shown that.
    """

    what: Hashable
    item: int | None
    at_once: bool


@dataclass(frozen=True, slots=True)
class Moment:
    """A process between two steps, from outside: what its threads wait for, when its upkeep is due, what it told."""

    wishes: tuple[tuple[int, Wish], ...]
    due: float | None
    told: tuple[Heard, ...]
    reads: int


class _Strand:
    """A thread."""

    __slots__ = ("client", "event", "number", "run", "wish")

    def __init__(self, number: int, client: int | None, run: greenlet, wish: Wish) -> None:
        self.number = number
        self.client = client
        self.run = run
        self.wish = wish
        self.event: Any = None


class Process:
    """The threads of one process, at one time on one clock."""

    current: ClassVar[Process | None] = None

    def __init__(self) -> None:
        self.time = 0.0
        self.upkeep: Upkeep | None = None
        self.owner = ""
        self.dead = False
        self._hub = getcurrent()
        self._strands: dict[int, _Strand] = {}
        self._running: _Strand | None = None
        self._count = 0
        self._told: list[Heard] = []
        self._shown: dict[int | None, tuple[int | None, float]] = {}
        self._reads = 0
        self._stall_at = 0

    # --- for the threads ---

    def spawn(self, run: Callable[[], object], wish: Wish) -> int:
        """A thread that runs this once its wish is granted, for the same client as the thread that starts it."""
        number = self._count
        self._count += 1
        client = wish.client if isinstance(wish, Arrive) else None
        if client is None and self._running is not None:
            client = self._running.client
        body = greenlet(lambda given: None if given is None else run(), self._hub)
        self._strands[number] = _Strand(number, client, body, wish)
        return number

    def wait(self, wish: Wish, event: Any = None) -> Fate | str:
        """Let the scheduler decide how this goes on; call it from a thread of this process."""
        strand = self._running
        if self.dead or strand is None:
            raise GreenletExit
        strand.wish, strand.event = wish, event
        loop = asyncio._get_running_loop()
        if loop is None:
            return self._granted()
        # asyncio's notion of what runs belongs to the thread, not to the greenlet: others may run loops meanwhile.
        task = asyncio.current_task(loop)
        if task is not None:
            asyncio.tasks._leave_task(loop, task)
        asyncio._set_running_loop(None)
        try:
            return self._granted()
        finally:
            asyncio._set_running_loop(loop)
            if task is not None:
                asyncio.tasks._enter_task(loop, task)

    def _granted(self) -> Fate | str:
        given: Fate | str = self._hub.switch()
        return given

    def pause(self, event: Any, seconds: float | None) -> bool:
        """Wait for an event of this process, or until the time is over; says whether it was set."""
        if event.is_set():
            return True
        until = None if seconds is None else self.time + max(seconds, _LEAST_PAUSE)
        given = self.wait(Pause(until), event)
        if given == "interrupt":
            raise Interrupt
        if given == "shutdown":
            raise Shutdown
        return bool(event.is_set())

    def read_clock(self) -> float:
        """The time; a thread may be stopped just before it sees it."""
        self._reads += 1
        if self._reads > _MOST_LOOKS:
            raise Spinning
        if self._reads == self._stall_at and self._running is not None and not self.dead:
            self.wait(Stall())
        return self.time

    def tell(self, what: Hashable) -> None:
        """Note something for whoever watches."""
        client = None if self._running is None else self._running.client
        item, at = self._shown.get(client, (None, self.time))
        self._told.append(Heard(what, item, at == self.time))

    def show(self, reply: Reply) -> None:
        """Note what a call of the running thread's client brought to light."""
        if self._running is not None:
            self._shown[self._running.client] = (reply.item, self.time)

    # --- for the scheduler ---

    def step(self, given: Given) -> Moment:
        """Grant one wish, and run until every thread waits again."""
        self.time = given.time
        self._told, self._reads, self._stall_at = [], 0, given.stall_at
        if given.strand is None:
            assert self.upkeep is not None
            for job in self.upkeep._take_due():
                self._go(self._strands[self.spawn(partial(self._keep, job), Arrive())], "go")
        else:
            self._go(self._strands[given.strand], given.what)
        return self.moment()

    def _keep(self, job: Job) -> None:
        assert self.upkeep is not None
        self.upkeep._run(job)

    def _go(self, strand: _Strand, what: Fate | str) -> None:
        self._running, Process.current = strand, self
        try:
            strand.run.switch(what)
        finally:
            self._running = Process.current = None
        if strand.run.dead:
            del self._strands[strand.number]

    def moment(self) -> Moment:
        """What can be seen from outside."""
        wishes = []
        for number, strand in self._strands.items():
            wish = strand.wish
            if isinstance(wish, Pause) and strand.event is not None and strand.event.is_set():
                wish = Pause(wish.until, woken=True)
            wishes.append((number, wish))
        jobs = () if self.upkeep is None else self.upkeep._due
        due = min((at for at, _, job in jobs if not job.cancelled), default=None)
        return Moment(tuple(wishes), due, tuple(self._told), self._reads)

    def close(self) -> None:
        """Take all threads down, as quietly as a process dies."""
        self.dead = True
        for strand in list(self._strands.values()):
            if strand.run and not strand.run.dead:
                self._running = strand
                with suppress(BaseException):
                    strand.run.throw(GreenletExit)
        self._running = None
        self._strands.clear()


class Node:
    """A process after a certain sequence of steps."""

    __slots__ = ("children", "given", "live", "moment", "number", "parent", "root")

    def __init__(self, number: int, root: Hashable, parent: Node | None, given: Given | None) -> None:
        self.number = number
        self.root = root
        self.parent = parent
        self.given = given
        self.children: dict[Given, Node] = {}
        self.live: Process | None = None
        self.moment: Moment


class Histories:
    """All processes that were ever begun, as far as they were ever run."""

    def __init__(self, begin: Callable[[Any], Process]) -> None:
        self._begin = begin
        self._roots: dict[Hashable, Node] = {}
        self._nodes: list[Node] = []
        self._live: OrderedDict[int, Node] = OrderedDict()
        self.steps_run = 0

    def __getitem__(self, number: int) -> Node:
        return self._nodes[number]

    def __len__(self) -> int:
        return len(self._nodes)

    def root(self, key: Hashable) -> Node:
        """A process that has just been started."""
        node = self._roots.get(key)
        if node is None:
            node = self._roots[key] = self._new(key, None, None)
            process = self._begin(key)
            node.moment = process.moment()
            self._keep(node, process)
        return node

    def step(self, node: Node, given: Given) -> Node:
        """The process after one more step."""
        child = node.children.get(given)
        if child is None:
            process = self._process(node)
            child = node.children[given] = self._new(node.root, node, given)
            child.moment = process.step(given)
            self.steps_run += 1
            self._keep(child, process)
        return child

    def close(self) -> None:
        """Take everything down."""
        for node in self._live.values():
            if node.live is not None:
                node.live.close()
        self._live.clear()

    def _new(self, root: Hashable, parent: Node | None, given: Given | None) -> Node:
        node = Node(len(self._nodes), root, parent, given)
        self._nodes.append(node)
        return node

    def _keep(self, node: Node, process: Process) -> None:
        node.live = process
        self._live[node.number] = node
        if len(self._live) > _LIVE_PROCESSES:
            _, oldest = self._live.popitem(last=False)
            if oldest.live is not None:
                oldest.live.close()
                oldest.live = None

    def _process(self, node: Node) -> Process:
        if node.live is not None:
            process, node.live = node.live, None
            del self._live[node.number]
            return process
        steps: list[Given] = []
        first = node
        while first.parent is not None:
            assert first.given is not None
            steps.append(first.given)
            first = first.parent
        process = self._begin(node.root)
        for given in reversed(steps):
            process.step(given)
        self.steps_run += len(steps)
        return process
