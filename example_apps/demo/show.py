"""The demo's two ways: play the story, or leave one app running to try things out."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from rich.console import Console

from example_apps.demo.clients import API_KEYS, Control
from example_apps.demo.errors import DemoError
from example_apps.demo.frameworks import FRAMEWORKS
from example_apps.demo.servers import LOOPBACK, Server, require_free
from example_apps.demo.story import Scene, play
from example_apps.demo.table import Board, console, show_notes, show_record
from idem_middleware import ConfigurationError, DynamoDBStore, StoreUnavailable, store_from_url

__all__ = ["serve", "tell"]

# Short, so that the story need not wait long for the lease of the server that is killed.
LEASE_SECONDS = 1

_NOTES = """\
Each server makes its client for DynamoDB with its first request.
At that moment the provider has not begun with A, and has charged B without having said so yet.
A request runs once, except that it runs again after a crash (unless on_abandoned="refuse"). Only the provider can \
know that B was charged. It gets the same derived key with every attempt, and in this step it honours that; in all \
others it is a provider that charges whatever it is sent."""


def tell(names: Sequence[str], store_url: str | None) -> int:
    """Play the story on each of these frameworks; 0 if everything came out as promised, else 1.

    Raises:
        DemoError: it can't be played.

    """
    began_at = time.perf_counter()
    screen = console()
    differences = []
    with ExitStack() as stack:
        store_url = stack.enter_context(_store(store_url, screen))
        for name in names:
            differences += _tell_one(screen, name, store_url)
    seconds = time.perf_counter() - began_at
    screen.print()
    for difference in differences:
        screen.print(f"BROKEN: {difference}", style="red", markup=False, soft_wrap=True)
    if differences:
        screen.print(f"Steps that came out otherwise than promised: {len(differences)} ({seconds:.1f} s in all).")
        return 1
    screen.print(f"Every step came out as promised ({seconds:.1f} s in all).")
    return 0


def _tell_one(screen: Console, name: str, store_url: str) -> list[str]:
    """The story on one framework; what differs from the promises, in sentences."""
    screen.print(f"starting a payment provider and two servers of payments_{name} ...")
    differences = []
    with ExitStack() as stack:
        provider = stack.enter_context(_provider())
        environment = _environment(store_url, provider)
        servers = (
            stack.enter_context(_app(name, environment, "the first server")),
            stack.enter_context(_app(name, environment, "the second server")),
        )
        control = Control(provider.url)
        stack.callback(control.close)
        scene = Scene(servers, control, store_url)
        stack.callback(scene.close)
        for server in servers:
            server.wait()
        with Board(screen, f"payments_{name}, two servers, lease {LEASE_SECONDS} s") as board:
            for step, play_it in play(scene):
                board.begin(step)
                played = play_it()
                board.end(played)
                if played.broken is not None:
                    differences.append(f"{name}: {step.title}: {played.broken}.")
        if scene.record:
            show_record(screen, scene.record)
    show_notes(screen, _NOTES.splitlines())
    return differences


def serve(name: str, store_url: str | None, port: int) -> int:
    """Leave one app running until Ctrl-C, and say how to try it.

    Raises:
        DemoError: it does not start, or ends by itself.

    """
    require_free(port)
    with ExitStack() as stack:
        store_url = stack.enter_context(_store(store_url, console()))
        provider = stack.enter_context(_provider())
        app = stack.enter_context(_app(name, _environment(store_url, provider), "the server", port=port))
        app.wait()
        print(_curl_lines(name, app.url, provider.url, store_url), flush=True)  # noqa: T201  # to be copied as it is
        while not app.ended:
            time.sleep(0.2)
    raise DemoError(f"payments_{name} has ended; see above what it wrote")


# --- the processes ----------------------------------------------------------------------------------------------------


@contextmanager
def _store(store_url: str | None, screen: Console) -> Iterator[str]:
    """The URL of a store with its table: the one given, or that of an embedded DynamoDB."""
    if store_url is not None:
        screen.print("looking for the table ...")
        _make_table(store_url)
        yield store_url
        return
    screen.print("starting an embedded DynamoDB ...")
    # Nothing of the user's AWS configuration is meant for it. Set for ourselves, and so for all children.
    for variable in [variable for variable in os.environ if variable.startswith("AWS_")]:
        del os.environ[variable]
    os.environ.update(
        AWS_ACCESS_KEY_ID="demo",
        AWS_SECRET_ACCESS_KEY="demo",  # noqa: S106  # opens nothing
        AWS_EC2_METADATA_DISABLED="true",
        AWS_CONFIG_FILE=os.devnull,
        AWS_SHARED_CREDENTIALS_FILE=os.devnull,
    )
    _no_proxy()
    with Server("the embedded DynamoDB", ["-m", "example_apps.demo.embedded", "--port", "{port}"]) as dynamodb:
        dynamodb.wait()
        store_url = f"dynamodb://idempotency_demo?region=us-east-1&endpoint={dynamodb.url}"
        _make_table(store_url)
        yield store_url


@contextmanager
def _provider() -> Iterator[Server]:
    with Server("the provider", ["-m", "example_apps.demo.provider", "--port", "{port}"]) as provider:
        provider.wait()
        yield provider


def _app(name: str, environment: Mapping[str, str], role: str, *, port: int | None = None) -> Server:
    return Server(
        f"{role} of payments_{name}",
        FRAMEWORKS[name].command,
        environment=environment,
        port=port,
        shows_output=port is not None,
    )


def _environment(store_url: str, provider: Server) -> dict[str, str]:
    _no_proxy()
    return {
        "IDEMPOTENCY_STORE": store_url,
        "PAYMENTS_PROVIDER_URL": provider.url,
        "PAYMENTS_LEASE_SECONDS": str(LEASE_SECONDS),
    }


def _no_proxy() -> None:
    """A proxy that the environment names is for the outside."""
    for variable in ("no_proxy", "NO_PROXY"):
        os.environ[variable] = ",".join(filter(None, [os.environ.get(variable), LOOPBACK]))


def _make_table(store_url: str) -> None:
    """Make the table if it is missing.

    Raises:
        DemoError: the URL or the table can't be used.

    """
    try:
        store = store_from_url(store_url)
        if not isinstance(store, DynamoDBStore):
            raise DemoError("the demo kills a server and reads the table, so it needs a dynamodb:// URL")
        store.create_table()
    except (ConfigurationError, StoreUnavailable) as error:
        raise DemoError(f"--store: {error}") from error


def _curl_lines(name: str, url: str, provider_url: str, store_url: str) -> str:
    anna = f"-H 'Authorization: Bearer {API_KEYS['anna']}'"
    return f"""
payments_{name} listens on {url}
  its store      {store_url}
  its provider   {provider_url}

Charge; then send the same again (Idempotent-Replayed: true), with another amount (422), or without the key (400):

  curl -i {url}/charges {anna} \\
    -H 'Idempotency-Key: order-1' -H 'Content-Type: application/json' -d '{{"amount": 1200, "currency": "eur"}}'

What was charged, and a refund:

  curl {url}/charges {anna}
  curl -i -X POST {url}/charges/1/refund {anna} -H 'Idempotency-Key: refund-1'

Make the provider slow, failing, or well again:

  curl -X PUT {provider_url}/control -d '{{"delay_seconds": 10}}'
  curl -X PUT {provider_url}/control -d '{{"failing": true}}'
  curl -X PUT {provider_url}/control -d '{{"delay_seconds": 0, "failing": false}}'

Ctrl-C ends it.
"""
