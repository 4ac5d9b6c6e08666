"""`show`, `list`, `release`: what stands under keys, and the way out of a claim that nobody finishes."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import wraps
from itertools import islice
from math import isfinite
from typing import Any

import click

from idem_middleware.blocking.lease import fetch
from idem_middleware.cli.inspection import MEANINGS, NotReleased, Phase, Seen, load, name_of, release, scan
from idem_middleware.cli.terminal import (
    at_home,
    examples,
    json_option,
    progress,
    refuse,
    say,
    show_json,
    show_table,
    store_option,
)
from idem_middleware.cli.terms import ago, duration, instant, size
from idem_middleware.keys import PLACE, KeyInvalid, caller_partition, short_digest
from idem_middleware.messages import Response
from idem_middleware.options import Options
from idem_middleware.records import KeptResponse, OmittedResponse, Status
from idem_middleware.stores.dynamodb import DynamoDBStore

__all__ = ["Asked", "find", "list_", "named", "release_", "show", "which_key"]

_DIGEST = re.compile(r"[0-9a-f]{6,64}")
_HTTP_TEXT = re.compile(r"text/|application/(.*\+)?(json|xml)|application/x-www-form-urlencoded")
_SCAN_UNITS = 200.0


@dataclass(frozen=True, slots=True)
class Asked:
    """The record that is meant: by its key, or by the digest of a log line."""

    key: str | None
    digest: str | None
    caller: str | None
    namespace: str
    function: bool


def which_key(command: Callable[..., None]) -> Callable[..., None]:
    """KEY, or a digest of it; `--caller`, `--namespace`, `--function`: given to the command as one `asked`."""

    @wraps(command)
    def gathered(
        *, key: str | None, digest: str | None, caller: str | None, namespace: str, function: bool, **rest: Any
    ) -> None:
        if (key is None) == (digest is None):
            raise click.UsageError("give a KEY, or --digest")
        command(asked=Asked(key, digest, caller, namespace, function), **rest)

    decorated: Callable[..., None] = gathered
    for decorate in (
        click.option("--function", is_flag=True, help="The work came by run_once, not by HTTP."),
        click.option("--namespace", default="", help="The option `namespace` of the service."),
        click.option(
            "--caller", help="Who sent it, as the service's `caller` names them. Django: 'django:auth.user:7'."
        ),
        click.option("--digest", help="Instead of KEY: the key_digest that logs show. Scans the table."),
        click.argument("key", required=False),
    ):
        decorated = decorate(decorated)
    return decorated


def named(store: DynamoDBStore, asked: Asked) -> str:
    """The name of the record that is asked for; ends the command where a digest finds none."""
    if asked.digest is not None:
        return _by_digest(store, asked.digest).record.pk
    try:
        return name_of(store, asked.key or "", caller=asked.caller, namespace=asked.namespace, function=asked.function)
    except KeyInvalid as error:
        raise click.BadParameter(error.reason, param_hint="KEY") from error


def find(store: DynamoDBStore, asked: Asked) -> tuple[DynamoDBStore, Seen]:
    """The record that is asked for, and the store of its home; ends the command where there is none."""
    name = named(store, asked)
    home = at_home(store, name)
    seen = load(home, name)
    if seen is None:
        hint = "" if asked.caller else ". If the service has a `caller`, the key lies under it: give --caller"
        refuse(f"nothing stands under this key in {store.table}{hint}")
    return home, seen


def _by_digest(store: DynamoDBStore, digest: str) -> Seen:
    if not _DIGEST.fullmatch(digest):
        raise click.BadParameter("a digest is 6 to 64 hexadecimal digits, as logs show it", param_hint="--digest")
    found = list(islice(_watched(store, _SCAN_UNITS, digest=digest), 2))
    if not found:
        refuse(f"no record's digest begins with {digest} in {store.table}")
    if len(found) > 1:
        refuse(f"more than one record's digest begins with {digest}: give more digits")
    return found[0]


# --- show -------------------------------------------------------------------------------------------------------------


@click.command(
    epilog=examples("show order-8 --caller acct_7", "show --digest 4f1d2a9c0b3e --json", "show order-8 --body")
)
@which_key
@store_option
@click.option("--body", "with_body", is_flag=True, help="The stored answer's body, too. It may be personal data.")
@json_option
def show(
    *,
    asked: Asked,
    store: DynamoDBStore,
    with_body: bool,
    as_json: bool,
) -> None:
    """What happened to a key: state, attempts, times, sizes. Never the body, unless it is asked for."""
    home, seen = find(store, asked)
    response = _answer(home, seen) if with_body else None
    if as_json:
        show_json(_as_json(seen) | ({"body": _body_json(response)} if with_body else {}))
        return
    show_table(("", short_digest(seen.record.pk)), list(_rows(seen, home.clock.now())))
    if with_body:
        _show_body(response)


def _rows(seen: Seen, now: float) -> Iterator[tuple[str, str]]:
    record = seen.record
    yield "state", f"{record.status}, {seen.phase}"
    yield "it means", MEANINGS[seen.phase]
    if seen.phase is Phase.UNREADABLE:
        yield "schema", str(record.schema)
        return
    yield "attempt", str(record.attempt)
    yield "last attempt began", _time(record.created_at, now)
    label = {
        Status.PENDING: "lease ends",
        Status.FAILED: "may run again",
        Status.COMPLETED: "answer kept until",
    }[record.status]
    yield label, _time(record.expires_at, now)
    yield "key is free", _time(record.bound_until, now)
    yield "TTL deletes after", _time(float(record.ttl), now)
    yield "version", str(record.version)
    units = max(1, -(-seen.size_bytes // 1024))
    yield "item", f"{size(seen.size_bytes)}: {units} write {'unit' if units == 1 else 'units'} for each retry"
    if record.checkpoint is not None:
        yield "checkpoint", f"{len(record.checkpoint)} bytes: the work of lease.transact is done"
    response = record.response
    if isinstance(response, KeptResponse):
        where = f"in {response.chunks.count} chunks" if response.chunks is not None else "inside the item"
        lines = len(response.headers)
        yield "answer", f"{response.status}, {lines} header {'line' if lines == 1 else 'lines'}"
        yield "its body", f"{size(seen.answer_bytes or 0)} ({response.encoding}), {where}"
    elif isinstance(response, OmittedResponse):
        yield "answer", f"not kept: {response.reason}" + (f", see {response.location}" if response.location else "")
    elif response is not None:
        yield "answer", "sealed by the service's cipher"


def _time(at: float, now: float) -> str:
    return f"{instant(at)} ({ago(at, now)})" if isfinite(at) else "never"


def _as_json(seen: Seen) -> dict[str, Any]:
    record = seen.record
    told: dict[str, Any] = {
        "pk": record.pk,
        "key_digest": short_digest(record.pk),
        "status": record.status.value,
        "phase": seen.phase.value,
        "meaning": MEANINGS[seen.phase],
        "schema": record.schema,
        "version": record.version,
        "attempt": record.attempt,
        "created_at": record.created_at,
        "expires_at": record.expires_at if isfinite(record.expires_at) else None,
        "bound_until": record.bound_until if isfinite(record.bound_until) else None,
        "item_bytes": seen.size_bytes,
        "checkpoint_bytes": None if record.checkpoint is None else len(record.checkpoint),
        "answer": None,
    }
    response = record.response
    if isinstance(response, KeptResponse):
        told["answer"] = {
            "status": response.status,
            "headers": [list(pair) for pair in response.headers],
            "encoding": response.encoding,
            "body_bytes": seen.answer_bytes,
            "chunks": None if response.chunks is None else response.chunks.count,
        }
    elif isinstance(response, OmittedResponse):
        told["answer"] = {"omitted": response.reason, "location": response.location}
    elif response is not None:
        told["answer"] = {"sealed": True}
    return told


def _answer(store: DynamoDBStore, seen: Seen) -> Response | None:
    """The answer as retries get it; None where there is none, or its chunks are missing or damaged."""
    if not isinstance(seen.record.response, KeptResponse):
        return None
    answer = fetch(store, seen.record, Options())
    return answer if isinstance(answer, Response) else None


def _body_json(response: Response | None) -> dict[str, str] | None:
    if response is None:
        return None
    try:
        return {"text": response.body.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(response.body).decode()}


def _show_body(response: Response | None) -> None:
    if response is None:
        say("There is no body to show: nothing is kept, or it is sealed, or its chunks are missing or damaged.")
        return
    for name, value in response.headers:
        say(f"{name}: {value}", style="dim")
    say()
    if _HTTP_TEXT.match(response.header("content-type") or ""):
        click.echo(response.body.decode("utf-8", "replace"))
    else:
        say(f"{len(response.body)} bytes that are no text: --json gives them in base64")


# --- list -------------------------------------------------------------------------------------------------------------

_DEFAULT_STATES = frozenset({Phase.ABANDONED, Phase.FAILED, Phase.UNKNOWN})
_STATUS_OF = {
    Phase.RUNNING: (Status.PENDING,),
    Phase.ABANDONED: (Status.PENDING,),
    Phase.FAILED: (Status.FAILED,),
    Phase.DONE: (Status.COMPLETED,),
    Phase.UNKNOWN: (Status.COMPLETED,),
    Phase.EXPIRED: (Status.COMPLETED,),
    Phase.FREE: tuple(Status),
    Phase.UNREADABLE: tuple(Status),
}


@click.command(
    name="list",
    epilog=examples("list --state abandoned --older-than 300", "list --caller acct_7 --state done", "list --json"),
)
@store_option
@click.option(
    "--state",
    "states",
    type=click.Choice([state.value for state in Phase]),
    multiple=True,
    help="May be given several times. If not given: abandoned, failed and unknown.",
)
@click.option("--older-than", type=click.FloatRange(min=0.0), default=0.0, help="Seconds since the last attempt began.")
@click.option("--caller", help="One caller's alone, by the index of the layout `caller`.")
@click.option("--namespace", default="", help="With --caller: the option `namespace` of the service.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="The most to show.")
@click.option(
    "--units", type=click.FloatRange(min=1.0), default=_SCAN_UNITS, show_default=True, help="Read units a second."
)
@json_option
def list_(
    *,
    store: DynamoDBStore,
    states: tuple[str, ...],
    older_than: float,
    caller: str | None,
    namespace: str,
    limit: int,
    units: float,
    as_json: bool,
) -> None:
    """Records that need a look: abandoned claims, failed ones, outcomes that nobody knows.

    It scans the table, at half a read unit for every 4 KB; with --caller it asks an index instead.
    """
    wanted = frozenset(map(Phase, states)) or _DEFAULT_STATES
    if caller is None:
        statuses = sorted({status for state in wanted for status in _STATUS_OF[state]})
        records = _watched(store, units, statuses=statuses)
    else:
        records = _of_caller(store, caller, namespace)
    matching = (
        seen for seen in records if seen.phase in wanted and store.clock.now() - seen.record.created_at >= older_than
    )
    found = list(islice(matching, limit + 1))
    more, found = len(found) > limit, found[:limit]
    if as_json:
        show_json({"records": [_as_json(seen) for seen in found], "more": more})
        return
    now = store.clock.now()
    if found:
        show_table(
            ("digest", "state", "attempt", "began", "age", "ends", "size"),
            [
                (
                    short_digest(seen.record.pk),
                    seen.phase.value,
                    str(seen.record.attempt),
                    instant(seen.record.created_at),
                    duration(now - seen.record.created_at),
                    ago(seen.record.expires_at, now) if isfinite(seen.record.expires_at) else "never",
                    size(seen.size_bytes),
                )
                for seen in found
            ],
            right=("attempt", "size"),
        )
    say(f"{len(found)} {'record' if len(found) == 1 else 'records'}{', and there are more' if more else ''}.")


def _watched(store: DynamoDBStore, units: float, **what: Any) -> Iterator[Seen]:
    with progress() as bars:
        about = store.describe(ttl=False).items if not bars.disable else None
        task = bars.add_task("looking through the table", total=about or None)
        yield from scan(
            store, units_per_second=units, sleep=time.sleep, on_page=lambda count: bars.advance(task, count), **what
        )


def _of_caller(store: DynamoDBStore, caller: str, namespace: str) -> Iterator[Seen]:
    home = at_home(store, f"{PLACE}{caller_partition(namespace, caller)}")
    for used in home.keys_of(caller, namespace=namespace, newest_first=True, limit=1_000_000):
        seen = load(home, used.pk)
        if seen is not None:
            yield seen


# --- release ----------------------------------------------------------------------------------------------------------


@click.command(
    name="release", epilog=examples("release order-8 --caller acct_7", "release --digest 4f1d2a9c0b3e --yes")
)
@which_key
@store_option
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
def release_(
    *,
    asked: Asked,
    store: DynamoDBStore,
    yes: bool,
    as_json: bool,
) -> None:
    """Let the next retry of an abandoned claim run.

    First find out what its attempt did: the next one does it again. Only an abandoned claim is released, by
    compare-and-swap from exactly what was shown; an owner that wakes up after all can write nothing any more.
    """
    home, seen = find(store, asked)
    if seen.phase is not Phase.ABANDONED:
        refuse(f"this key is {seen.phase}, and only an abandoned claim is released: {MEANINGS[seen.phase]}")
    if not yes:
        for name, value in _rows(seen, home.clock.now()):
            click.echo(f"  {name}: {value}", err=True)
        click.confirm("The next retry will run the work again. Release it?", abort=True, err=True)
    try:
        event = release(home, seen)
    except NotReleased as error:
        refuse(str(error))
    told = {name: value for name, value in asdict(event).items() if value not in (None, False, ())}
    if as_json:
        show_json({"released": True, "event": told})
    else:
        say(f"Released: event {' '.join(f'{name}={value}' for name, value in told.items())}")
