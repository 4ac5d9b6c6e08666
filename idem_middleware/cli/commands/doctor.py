"""`doctor`: a live table and a configuration against an operator's closing checklist."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console
from rich.text import Text

from idem_middleware.cli.applications import Configured, application
from idem_middleware.cli.diagnosis import Circumstances, Finding, Light, check_configuration, check_table_of, worst
from idem_middleware.cli.terminal import examples, json_option, say, show_json, show_table
from idem_middleware.options import Options
from idem_middleware.stores.base import Store
from idem_middleware.stores.dynamodb import DynamoDBStore
from idem_middleware.stores.urls import store_from_url

__all__ = ["doctor"]

_STYLES = {Light.GREEN: "green", Light.YELLOW: "yellow", Light.RED: "bold red", Light.GREY: "dim"}
_SIGNS = {Light.GREEN: "● green", Light.YELLOW: "▲ yellow", Light.RED: "■ red", Light.GREY: "○ grey"}
_SECONDS = click.FloatRange(min=0.0)


def _options(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"an option is NAME=VALUE, not {each!r}", ctx, param)
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


@click.command(
    epilog=examples(
        "doctor --app shop.main:app --retry-horizon 3600 --server-timeout 30 --balancer-timeout 60",
        "doctor --app shop.settings --strict --json",
        "doctor --store 'dynamodb://idempotency_keys?region=eu-central-1' --option lease_seconds=90",
    )
)
@click.option(
    "--app",
    "path",
    metavar="MODULE[:NAME]",
    help="The service: its application, an engine, or Django's settings module.",
)
@click.option(
    "--store",
    "url",
    envvar="IDEMPOTENCY_STORE",
    metavar="URL",
    help="The table, if it is not the application's. With --app the variable IDEMPOTENCY_STORE does not count.",
)
@click.option(
    "--option", "given", callback=_options, multiple=True, metavar="NAME=VALUE", help="An option of the service."
)
@click.option("--retry-horizon", type=_SECONDS, help="Seconds from its first try in which a client may retry.")
@click.option("--redrive", type=_SECONDS, default=0.0, help="Seconds more in which a queue may deliver again.")
@click.option("--server-timeout", type=_SECONDS, help="Seconds after which the server ends a request (or its worker).")
@click.option("--balancer-timeout", type=_SECONDS, help="Seconds after which the load balancer gives up.")
@click.option("--development", is_flag=True, help="Not production: a store in memory is a warning.")
@click.option(
    "--sample", type=click.IntRange(min=0), default=2000, show_default=True, help="The most items to read; 0: none."
)
@click.option("--strict", is_flag=True, help="Yellow fails, too.")
@json_option
def doctor(
    *,
    path: str | None,
    url: str | None,
    given: dict[str, Any],
    retry_horizon: float | None,
    redrive: float,
    server_timeout: float | None,
    balancer_timeout: float | None,
    development: bool,
    sample: int,
    strict: bool,
    as_json: bool,
) -> None:
    """Check a table and a configuration, and say how to mend what is wrong.

    Permissions are those of the credentials in use: run it with the service's own role. Nothing is written.

    Exit status: 0 if nothing is red (with --strict: nor yellow), 1 otherwise.
    """
    if path is not None and click.get_current_context().get_parameter_source("url") is ParameterSource.ENVIRONMENT:
        url = None  # set for other commands: what is asked about is the application, as it is
    configured = _configured(path, url, given)
    known = Circumstances(
        retry_horizon_seconds=retry_horizon,
        redrive_seconds=redrive,
        server_timeout_seconds=server_timeout,
        balancer_timeout_seconds=balancer_timeout,
        production=not development,
        default_caller=configured.default_caller,
    )
    findings = {"configuration": list(check_configuration(configured.options, configured.store, known))}
    errors = Console(stderr=True)
    with errors.status("looking") as status:
        for name, table, homes in _tables(configured.store):
            step: Callable[[str], object] = status.update
            findings[name] = list(check_table_of(table, homes=homes, sample_items=sample, on_step=step))
    light = worst(finding for part in findings.values() for finding in part)
    if as_json:
        told = {part: [asdict(finding) for finding in each] for part, each in findings.items()}
        show_json({"light": light.value, "findings": told})
    else:
        _show(findings, light)
    if light is Light.RED or (strict and light is Light.YELLOW):
        click.get_current_context().exit(1)


def _configured(path: str | None, url: str | None, given: dict[str, Any]) -> Configured:
    if path is None:
        return Configured(store_from_url(url or "dynamodb://"), Options.from_mapping(given))
    found = application(path)
    store: Store = found.store if url is None else store_from_url(url)
    return replace(found, store=store, options=found.options.merge(given))


def _tables(store: Store) -> Iterator[tuple[str, DynamoDBStore, tuple[str, ...] | None]]:
    """The table, or one for each region, with the regions in which keys have their homes."""
    if isinstance(store, DynamoDBStore):
        yield f"table {store.table}", store, None
    regional = getattr(store, "stores", {})
    for region, each in regional.items():
        yield f"table {each.table} in {region}", each, tuple(regional)


def _show(findings: dict[str, list[Finding]], light: Light) -> None:
    for part, each in findings.items():
        show_table(
            ("", "check", "found"),
            [(Text(_SIGNS[f.light], style=_STYLES[f.light]), f.check, f.found) for f in each],
            title=part,
        )
    todo = [finding for each in findings.values() for finding in each if finding.mend is not None]
    for each_light in (Light.RED, Light.YELLOW):
        for finding in (finding for finding in todo if finding.light is each_light):
            say(f"{finding.check}: {finding.mend}.", style=_STYLES[finding.light])
    unchecked = [finding for finding in todo if finding.light is Light.GREY]
    if unchecked:
        say("Not checked:", style="dim")
        for finding in unchecked:
            say(f"  {finding.check}: {finding.mend}.", style="dim")
    say(f"Altogether: {_SIGNS[light]}", style=_STYLES[light])
