"""What clients saw, what ran, and what happened to the processes: plain records, one JSON object a line.

All instants are seconds of the machine's monotonic clock, which all of its processes share.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Outcome = Literal["answered", "lost", "left"]


@dataclass(frozen=True, slots=True)
class Policy:
    """What the product was told, as far as the promises depend on it."""

    name: str
    on_abandoned: Literal["retry", "refuse"]
    on_error: Literal["retry", "refuse"]
    lease_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One HTTP request and what became of it for its client.

    `answer_of` names the try whose handler made the answer: handlers put it into a header. `digest` is how the
    product's events call the key. A client that got no whole answer has lost it, or has left.
    """

    id: str
    name: str
    key: str
    caller: str | None
    credentials: str | None
    body: str
    digest: str
    fails: bool = False
    streams: bool = False
    delay: float = 0.0
    quiet: bool = False
    machine: int = 0
    sent_at: float
    ended_at: float
    outcome: Outcome
    status: int | None = None
    problem: str | None = None
    replayed: bool = False
    answer_of: str | None = None
    answer: str | None = None

    @property
    def subject(self) -> tuple[str | None, str]:
        """Whose key: all tries with the same one are the same piece of work, or must be refused."""
        return self.caller, self.key

    @property
    def request(self) -> tuple[str, str, str | None]:
        """What is asked for under the key."""
        return self.name, self.body, self.credentials

    @property
    def succeeded(self) -> bool:
        """Whether the client has a whole answer that says that the work is done."""
        return self.outcome == "answered" and self.status is not None and 200 <= self.status < 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A handler began; `arrived_at` is when its request came to the application, before any claim."""

    id: str
    name: str
    pid: int
    arrived_at: float
    at: float
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The application was done with a request; without a status it raised."""

    id: str
    pid: int
    at: float
    status: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An event of the product's own, or an error in its log."""

    pid: int
    at: float
    event: str
    digest: str | None = None
    reason: str | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """A worker process is no more, whoever ended it."""

    pid: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Up:
    """A worker process has its application."""

    pid: int
    at: float
    machine: int


Line = Run | End | Told | Gone | Up
_KINDS: Mapping[str, type[Line]] = {"run": Run, "end": End, "told": Told, "gone": Gone, "up": Up}
_NAMES = {kind: name for name, kind in _KINDS.items()}


@dataclass(frozen=True, slots=True)
class History:
    """Everything that a checker may look at. `logged` is the probe's own log: how often each name ran.

    `clocks` says how far the clock of each machine's processes was ahead, where it was wrong.
    """

    policy: Policy
    tries: tuple[Try, ...] = ()
    runs: tuple[Run, ...] = ()
    ends: tuple[End, ...] = ()
    told: tuple[Told, ...] = ()
    gone: tuple[Gone, ...] = ()
    logged: Mapping[str, int] = field(default_factory=dict)
    ups: tuple[Up, ...] = ()
    clocks: Mapping[int, float] = field(default_factory=dict)


def dumped(line: Line) -> bytes:
    """Write one line of the trail."""
    return json.dumps({"kind": _NAMES[type(line)], **asdict(line)}).encode() + b"\n"


def loaded(text: bytes) -> Line:
    """Read one line of the trail."""
    members: dict[str, Any] = json.loads(text)
    return _KINDS[members.pop("kind")](**members)


def read_trail(path: Path) -> list[Line]:
    """Read what the processes left; a line that its process could not finish is none."""
    return [loaded(text) for text in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []


def write_tries(path: Path, tries: Iterable[Try]) -> None:
    """Write what clients saw."""
    with path.open("w") as file:
        file.writelines(json.dumps(asdict(one)) + "\n" for one in tries)


def history_of(
    policy: Policy,
    tries: Iterable[Try],
    lines: Iterable[Line],
    logged: Mapping[str, int],
    clocks: Mapping[int, float] | None = None,
) -> History:
    """Put the histories together, each in the order of time."""
    every = sorted(lines, key=lambda line: line.at)
    return History(
        policy,
        tuple(sorted(tries, key=lambda one: one.sent_at)),
        tuple(line for line in every if isinstance(line, Run)),
        tuple(line for line in every if isinstance(line, End)),
        tuple(line for line in every if isinstance(line, Told)),
        tuple(line for line in every if isinstance(line, Gone)),
        logged,
        tuple(line for line in every if isinstance(line, Up)),
        clocks or {},
    )
