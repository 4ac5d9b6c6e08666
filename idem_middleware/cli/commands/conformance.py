"""`conformance`: the draft's sequences against a running server."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path

import click
from rich.text import Text

from idem_middleware.cli.conformance import SEQUENCES, Outcome, Target, Verdict, run
from idem_middleware.cli.terminal import examples, json_option, progress, say, show_json, show_table

__all__ = ["conformance"]

_STYLES = {Verdict.HOLDS: "green", Verdict.DIFFERS: "yellow", Verdict.BROKEN: "bold red", Verdict.UNKNOWN: "dim"}


def _header(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> dict[str, str] | None:
    headers = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"a header is NAME=VALUE, not {each!r}", ctx, param)
        headers[name] = value
    return headers or None


def _body(text: str | None) -> bytes | None:
    if text is None:
        return None
    if text.startswith("@"):
        try:
            return Path(text[1:]).read_bytes()
        except OSError as error:
            raise click.UsageError(f"{text[1:]} can't be read: {error.strerror}") from error
    return text.encode()


def _other(body: bytes) -> bytes:
    """Another body, as good as the first one as far as that can be made up."""
    try:
        members = json.loads(body)
    except ValueError:
        return body + b" "
    if not isinstance(members, dict):
        return json.dumps([members]).encode()
    for name, value in members.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return json.dumps({**members, name: value + 1}).encode()
    for name, value in members.items():
        if isinstance(value, str):
            return json.dumps({**members, name: value + "x"}).encode()
    return json.dumps({**members, "other": True}).encode()


@click.command(
    epilog=examples(
        "conformance https://staging.example.com/orders --body '{\"amount\": 1}' --header 'Authorization=Bearer t'",
        "conformance http://127.0.0.1:8000/orders --yes --only 'other payload*' --json",
    )
)
@click.argument("url")
@click.option("--method", default="POST", show_default=True)
@click.option("--body", help='The request\'s body, or @FILE.  [default: {"amount": 1}]')
@click.option("--other-body", help="Another good body, or @FILE; made from the first one if not given.")
@click.option("--content-type", default="application/json", show_default=True)
@click.option("--header", "headers", callback=_header, multiple=True, metavar="NAME=VALUE", help="Sent each time.")
@click.option("--key-header", default="Idempotency-Key", show_default=True)
@click.option("--replay-header", default="Idempotent-Replayed", show_default=True, help="What marks a replay.")
@click.option("--slow-header", callback=_header, multiple=True, metavar="NAME=VALUE", help="Makes it take a second.")
@click.option("--failing-header", callback=_header, multiple=True, metavar="NAME=VALUE", help="Makes it answer 5xx.")
@click.option("--other-caller", callback=_header, multiple=True, metavar="NAME=VALUE", help="Another's credentials.")
@click.option("--runs-url", help='Answers how often the handler ran: a number, or {"runs": NUMBER}.')
@click.option("--only", multiple=True, help="Sequences by name or pattern; may be given several times.")
@click.option("--timeout", type=click.FloatRange(min=0.1), default=30.0, show_default=True, help="Seconds.")
@click.option("--strict", is_flag=True, help="Fail also where the server differs from a recommendation.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
def conformance(
    *,
    url: str,
    method: str,
    body: str | None,
    other_body: str | None,
    content_type: str,
    headers: Mapping[str, str] | None,
    key_header: str,
    replay_header: str,
    slow_header: Mapping[str, str] | None,
    failing_header: Mapping[str, str] | None,
    other_caller: Mapping[str, str] | None,
    runs_url: str | None,
    only: Sequence[str],
    timeout: float,
    strict: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Send the sequences of the IETF's draft to a running server, and report which hold.

    Whatever it is written in. It really carries requests out, about 60 of them: a tool for staging.

    Exit status: 0 if nothing is broken (with --strict: nor differs), 1 otherwise.
    """
    content = _body(body) or Target(url=url).body
    target = Target(
        url=url,
        method=method.upper(),
        body=content,
        other_body=_body(other_body) or _other(content),
        content_type=content_type,
        headers=headers or {},
        key_header=key_header,
        replay_header=replay_header,
        slow=slow_header,
        failing=failing_header,
        other_caller=other_caller,
        runs_url=runs_url,
        timeout_seconds=timeout,
    )
    known = [sequence.name for sequence in SEQUENCES]
    wanted = {name for name in known if not only or any(fnmatchcase(name, pattern) for pattern in only)}
    if not wanted:
        raise click.UsageError(f"--only matches none of: {', '.join(known)}")
    if not yes:
        click.confirm(f"This sends real {target.method} requests to {url}. Go on?", abort=True, err=True)
    outcomes = _run(target, wanted)
    if as_json:
        show_json({"url": url, "outcomes": [asdict(outcome) for outcome in outcomes]})
    else:
        _show(outcomes)
    failing = {Verdict.BROKEN, Verdict.DIFFERS} if strict else {Verdict.BROKEN}
    if any(outcome.verdict in failing for outcome in outcomes):
        click.get_current_context().exit(1)


def _run(target: Target, wanted: set[str]) -> list[Outcome]:
    outcomes = []
    with progress() as bars:
        task = bars.add_task("sending", total=len(wanted))
        for outcome in run(target, wanted.__contains__):
            outcomes.append(outcome)
            bars.update(task, advance=1, description=outcome.name)
    return outcomes


def _show(outcomes: Sequence[Outcome]) -> None:
    show_table(
        ("", "sequence", "draft", "seen"),
        [
            (
                Text(outcome.verdict, style=_STYLES[outcome.verdict]),
                outcome.name,
                outcome.section,
                outcome.seen,
            )
            for outcome in outcomes
        ],
    )
    for outcome in outcomes:
        if outcome.verdict in (Verdict.BROKEN, Verdict.DIFFERS):
            say(f"{outcome.name}: {outcome.says}.", style=_STYLES[outcome.verdict])
    counted = Counter(outcome.verdict for outcome in outcomes)
    say(", ".join(f"{counted[verdict]} {verdict}" for verdict in Verdict if counted[verdict]) + ".")
