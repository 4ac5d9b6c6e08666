"""The outputs in docs/command-line.md, made by running what stands there: `python -m tests.cli.documented` writes them.

A block of the kind `console` has one command, and then what it printed. They run one after the other on one table of
moto's, in which a few records lie, and against a small shop on loopback.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from click.testing import CliRunner
from moto import mock_aws

from idem_middleware import Engine, Options, Request, Response
from idem_middleware.body import RequestBody
from idem_middleware.cli.inspection import name_of
from idem_middleware.cli.root import root
from idem_middleware.records import Record, Status
from idem_middleware.stores import DynamoDBStore
from idem_middleware.wsgi import IdempotencyMiddleware
from tests.cli.shops import Shop, served, user_of

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "command-line.md"
TABLE = "idempotency_keys"
SHOWN_SHOP = "http://127.0.0.1:8000"
_REGION = "eu-central-1"
_WIDTH = 100
_MOST_LINES = 60

_BLOCK = re.compile(r"```console\n\$ (?P<command>(?:[^\n]*\\\n)*[^\n]*)\n(?P<output>.*?)```", re.DOTALL)


@contextmanager
def world() -> Iterator[Callable[[str], str]]:
    """Something to run the commands on; gives what runs one."""
    with ExitStack() as stack:
        stack.enter_context(mock_aws())
        shop = stack.enter_context(served(IdempotencyMiddleware(Shop(), store="memory://", caller=user_of)))
        filled: list[bool] = []

        def run(command: str) -> str:
            words = shlex.split(command.replace("\\\n", " ").replace(SHOWN_SHOP, shop))
            assert words[0] == "idem-middleware"
            if not filled and words[1] in ("doctor", "show", "list", "release", "sweep", "erase"):
                _fill()
                filled.append(True)
            answer = "y\n" if "release" in words or "erase" in words else None
            environment = {
                "COLUMNS": str(_WIDTH),
                "IDEMPOTENCY_STORE": f"dynamodb://{TABLE}?region={_REGION}",
                "NO_COLOR": "1",
            }
            ran = CliRunner().invoke(
                root, words[1:], input=answer, env=environment, catch_exceptions=False, prog_name=words[0]
            )
            return ran.output.replace(shop, SHOWN_SHOP)

        yield run


def _fill() -> None:
    """A request that is done, one whose process crashed, and one that fails."""
    store = DynamoDBStore(TABLE, region=_REGION)
    engine = Engine(store, Options(caller=lambda native: "acct_7"))
    answer = Response(201, (("content-type", "application/json"), ("location", "/orders/8")), b'{"id": 8}')
    headers = (("Idempotency-Key", "order-8"),)
    engine.run(
        Request(method="POST", path="/orders", headers=headers, body=RequestBody.from_bytes(b"{}")),
        lambda lease: answer,
    )
    began_at = float(int(time.time()) - 900)
    for key, status in (("order-9", Status.PENDING), ("order-10", Status.FAILED)):
        record = Record(
            pk=name_of(store, key, caller="acct_7", namespace=""),
            status=status,
            version=1,
            owner="0" * 32,
            attempt=1,
            fingerprint=bytes(33),
            caller_digest=None,
            created_at=began_at,
            expires_at=began_at + 60,
            bound_until=began_at + 86400,
        )
        store.create(record, store.clock.monotonic() + 10)


def filled(text: str) -> str:
    """The document with all outputs made anew."""
    with world() as run:

        def fill(block: re.Match[str]) -> str:
            command = block["command"]
            lines = [line.rstrip() for line in run(command).rstrip().splitlines()]
            if len(lines) > _MOST_LINES:
                lines = [*lines[:_MOST_LINES], "…"]
            return f"```console\n$ {command}\n" + "\n".join(lines) + "\n```"

        return _BLOCK.sub(fill, text)


def comparable(text: str) -> str:
    """Without what differs from run to run: instants, durations and sizes, and the space that they take."""
    text = re.sub(r"(\d+(\.\d+)? (d|h|min|s)\b ?)+", "0 ", text)
    text = re.sub(r"\d+( × \d+, \d+)* × \d+", "0 × 0", text)  # who of those at once waited, and who was refused
    return re.sub(r"[ ─━]+", " ", re.sub(r"\d+", "0", text))


if __name__ == "__main__":
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "testing")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "testing")
    DOCUMENT.write_text(filled(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"{DOCUMENT} is written\n")
