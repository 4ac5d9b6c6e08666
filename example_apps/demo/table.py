"""The story on a screen: a table that grows while it is played, or lines where there is no terminal."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from rich import box
from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from example_apps.demo.record import Item, meaning
from example_apps.demo.story import STEPS, Played, Step

__all__ = ["Board", "console", "show_notes", "show_record"]

# What is written to a file or a pipe has no width of its own.
_WIDTH = 130
_LONGEST_VALUE = 48


def console() -> Console:
    """Standard output; wide where it is no terminal."""
    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=_WIDTH)


class Board:
    """The steps of one app."""

    def __init__(self, console: Console, title: str) -> None:
        self._console = console
        self._title = title
        self._played: list[Played] = []
        self._current: Step | None = None
        self._live = Live(console=console, get_renderable=self._table) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._current = None
        if self._live is not None:
            self._live.stop()
        elif error is None:
            self._console.print()
            self._console.print(self._table())

    def begin(self, step: Step) -> None:
        """A step is being played."""
        self._current = step
        if self._live is None:
            self._line(f"{len(self._played) + 1:2}/{len(STEPS)}  {step.title} ... ", end="")

    def end(self, played: Played) -> None:
        """It is over."""
        self._current = None
        self._played.append(played)
        if self._live is None:
            self._line(f"{'ok' if played.broken is None else 'BROKEN'} ({played.seconds:.2f} s)", end="\n")

    def _line(self, text: str, *, end: str) -> None:
        self._console.print(Text(text), end=end, soft_wrap=True)
        self._console.file.flush()

    def _table(self) -> Table:
        table = Table(title=self._title, title_justify="left", box=box.ROUNDED, header_style="bold")
        table.add_column("", justify="right")
        table.add_column("what happens", ratio=5)
        table.add_column("promised", ratio=4)
        table.add_column("answered", ratio=4)
        table.add_column("real\ncharges", justify="right", no_wrap=True)
        table.add_column("time", justify="right", no_wrap=True)
        table.add_column("", no_wrap=True)
        for number, played in enumerate(self._played, 1):
            step = played.step
            verdict = Text("ok", "green") if played.broken is None else Text("BROKEN", "bold red")
            charges = f"{played.charges_in_all} ({played.charges:+d})"
            texts = (str(number), step.title, step.promise, played.answered, charges, f"{played.seconds:.2f} s")
            table.add_row(*map(Text, texts), verdict)
        if self._current is not None:
            texts = (str(len(self._played) + 1), self._current.title, self._current.promise, "", "", "")
            table.add_row(*map(Text, texts), Spinner("line"))
        return table


def show_record(console: Console, item: Item) -> None:
    """All attributes of an item, as DynamoDB has them."""
    table = Table(title="A's record", title_justify="left", box=box.ROUNDED, header_style="bold")
    for column in ("attribute", "type", "value", "meaning"):
        table.add_column(column)
    order: Sequence[str] = sorted(item, key=_rank)
    for name in order:
        [(kind, value)] = item[name].items()
        table.add_row(name, kind, Text(_shown(kind, value)), meaning(name))
    console.print(table)


def show_notes(console: Console, notes: Sequence[str]) -> None:
    """Numbered as the table refers to them."""
    grid = Table.grid(padding=(0, 1))
    for number, note in enumerate(notes, 1):
        grid.add_row(Text(f"({number})"), Text(note))
    console.print(grid)


def _rank(attribute: str) -> tuple[bool, str]:
    return (attribute != "pk", attribute)


def _shown(kind: str, value: Any) -> str:
    """A value in one or a few short lines."""
    match kind:
        case "B":
            return _shortened(f"{value.hex()}")
        case "M":
            return "\n".join(f"{name}: {_inner(member)}" for name, member in value.items())
        case _:
            return _shortened(str(value))


def _inner(member: dict[str, Any]) -> str:
    [(kind, value)] = member.items()
    match kind:
        case "B":
            return _shortened(value.decode("ascii", "backslashreplace"))
        case "L":
            return _shortened(", ".join(_inner(part) for part in value))
        case _:
            return _shortened(str(value))


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 4] + " ..."
