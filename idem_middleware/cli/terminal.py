"""What every command has in common: how it shows things, how it fails, and the options that many of them take."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from idem_middleware.errors import ConfigurationError, IdempotencyError, StoreUnavailable
from idem_middleware.stores.dynamodb import DynamoDBStore
from idem_middleware.stores.urls import store_from_url

__all__ = [
    "Failure",
    "NoAnswer",
    "WrongUsage",
    "at_home",
    "console",
    "examples",
    "json_option",
    "progress",
    "refuse",
    "say",
    "show_json",
    "show_table",
    "store_option",
    "suggestion",
    "telling",
]

F = TypeVar("F", bound=Callable[..., Any])

_GUESSES = 0.5


class Failure(click.ClickException):
    """Not as it should be, or not done. A command ends with a sentence, never with a traceback."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        click.echo(f"idem-middleware: {self.message}", err=True, file=file)


class WrongUsage(Failure):
    """Options, arguments or the configuration are wrong."""

    exit_code = 2


class NoAnswer(Failure):
    """The table gave no answer, or can't be used like this."""

    exit_code = 3


def refuse(sentence: str) -> NoReturn:
    """End the command: this was not done, and why."""
    raise Failure(sentence)


@contextmanager
def telling() -> Iterator[None]:
    """Turn our errors into sentences."""
    try:
        yield
    except ConfigurationError as error:
        raise WrongUsage("; ".join(error.problems)) from error
    except StoreUnavailable as error:
        raise NoAnswer(str(error)) from error
    except IdempotencyError as error:
        raise Failure(str(error)) from error


# --- showing ----------------------------------------------------------------------------------------------------------


def console() -> Console:
    """Standard output, as wide as it is; made when it is needed, since tests exchange it."""
    return Console(file=sys.stdout, highlight=False)


def say(text: str = "", *, style: str | None = None) -> None:
    """One line or several, wrapped at words; brackets mean themselves."""
    console().print(Text(text, style=style or ""))


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, title: str | None = None, right: Sequence[str] = ()
) -> None:
    """A table; the columns named in `right` are aligned to the right."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    console().print(table)


def show_json(value: object) -> None:
    """For machines: one document on standard output."""
    click.echo(json.dumps(value, indent=2, default=str))


def progress() -> Progress:
    """A bar on standard error for what takes long; nothing at all where that is no terminal."""
    errors = Console(stderr=True)
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=errors,
        disable=not errors.is_terminal,
        transient=True,
    )


def suggestion(name: str, known: Iterable[str]) -> str:
    """'; did you mean …?' for a name that is close to a known one."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=_GUESSES)
    return f"; did you mean {close[0]}?" if close else ""


# --- options that many commands take ----------------------------------------------------------------------------------


def examples(*lines: str) -> str:
    """The end of a command's help."""
    return "\b\nExample:\n" + "\n".join(f"  idem-middleware {line}" for line in lines)


def json_option(command: F) -> F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")(command)


_REGIONAL = "idem_middleware.regional_store"


def _open_store(ctx: click.Context, parameter: click.Parameter, url: str) -> DynamoDBStore:
    """The table; of a global one whose keys have homes, that of its first region."""
    try:
        store: Any = store_from_url(url)
    except ConfigurationError as error:
        raise click.BadParameter("; ".join(error.problems), ctx, parameter) from error
    if hasattr(store, "home_of"):
        ctx.meta[_REGIONAL] = store
        store = next(iter(store.stores.values()))
    if not isinstance(store, DynamoDBStore):
        raise click.BadParameter("a memory:// store is inside its own process: nobody else can look into it")
    return store


def at_home(store: DynamoDBStore, name: str) -> DynamoDBStore:
    """The store in which the record of this name is written: where keys have homes, another region's perhaps."""
    regional = click.get_current_context().meta.get(_REGIONAL)
    home: DynamoDBStore = store if regional is None else regional.home_of(name)
    return home


def store_option(command: F) -> F:
    """`--store`, as the parameter `store`."""
    return click.option(
        "--store",
        envvar="IDEMPOTENCY_STORE",
        default="dynamodb://",
        show_default=True,
        show_envvar=True,
        callback=_open_store,
        metavar="URL",
        help="The table, as the service's configuration names it: dynamodb://TABLE?region=REGION. "
        "Credentials are found as boto3 finds them.",
    )(command)
