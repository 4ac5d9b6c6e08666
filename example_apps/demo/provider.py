"""A payment provider that can be slow, fail, and knows how many charges it really made.

    python -m example_apps.demo.provider --port 8001

It does NOT recognise retries, although it is sent an idempotency key with every order: what is charged once here is
charged once because our middleware sent the order once. `honours_keys` makes it a provider that does.

    POST /charges               {"amount": 1200, "currency": "eur"}, header X-Account
    GET  /charges               those of the account
    POST /charges/NUMBER/refund
    GET  /control               what it has done, and how it behaves
    PUT  /control               {"failing": true}, and the other fields of `Behaviour`, for what comes from now on
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

__all__ = ["Behaviour", "Provider", "ProviderServer"]

Answer = tuple[int, object]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How it treats the orders that come in."""

    delay_seconds: float = 0.0
    """It takes so long to begin with an order. Who hangs up meanwhile is not charged."""
    answer_delay_seconds: float = 0.0
    """It takes so long to say that it has charged. Who hangs up meanwhile is charged."""
    failing: bool = False
    honours_keys: bool = False
    """An order with an idempotency key that was used already gets the charge that there is."""


@dataclass(frozen=True, slots=True)
class Charge:
    """Money that was really taken."""

    id: int
    account: str
    amount: int
    currency: str
    refunded: bool = False


class Provider:
    """Its books."""

    def __init__(self) -> None:
        self.behaviour = Behaviour()
        self._lock = threading.Lock()
        self._charges: list[Charge] = []
        self._ids_by_key: dict[str, int] = {}
        self._waiting = 0

    def control(self) -> dict[str, object]:
        """What it has done, and how it behaves."""
        with self._lock:
            return {"charges": len(self._charges), "waiting": self._waiting, **asdict(self.behaviour)}

    def behave(self, changes: dict[str, Any]) -> None:
        """Behave otherwise from now on; orders that wait already don't notice."""
        self.behaviour = replace(self.behaviour, **changes)

    @contextmanager
    def queue(self) -> Iterator[None]:
        """An order waits to be begun with."""
        with self._lock:
            self._waiting += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= 1

    def charge(self, account: str, order: dict[str, Any], key: str | None, behaviour: Behaviour) -> Charge:
        """Take the money."""
        with self._lock:
            if behaviour.honours_keys and key in self._ids_by_key:
                return self._charges[self._ids_by_key[key] - 1]
            charge = Charge(len(self._charges) + 1, account, order["amount"], order["currency"])
            self._charges.append(charge)
            if key:
                self._ids_by_key.setdefault(key, charge.id)
            return charge

    def charges(self, account: str) -> list[Charge]:
        """The charges of one account."""
        with self._lock:
            return [charge for charge in self._charges if charge.account == account]

    def refund(self, account: str, number: int) -> Answer:
        """Give the money back, once."""
        with self._lock:
            charge = self._charges[number - 1] if 0 < number <= len(self._charges) else None
            if charge is None or charge.account != account:
                return 404, {"error": "there is no such charge"}
            if charge.refunded:
                return 409, {"error": "this charge is refunded already"}
            self._charges[number - 1] = refunded = replace(charge, refunded=True)
            return 200, asdict(refunded)


class ProviderServer(ThreadingHTTPServer):
    """A thread for each connection; `port` 0 chooses a free one."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int = 0) -> None:
        self.provider = Provider()
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave in one packet
    disable_nagle_algorithm: ClassVar[bool] = True
    connection: socket.socket

    @property
    def _provider(self) -> Provider:
        assert isinstance(self.server, ProviderServer)  # noqa: S101  # it makes no others
        return self.server.provider

    def do_GET(self) -> None:
        if self.path == "/control":
            self._send(200, self._provider.control())
        elif self.path == "/charges":
            self._send(200, [asdict(charge) for charge in self._provider.charges(self._account)])
        else:
            self._send(*_NOT_FOUND)

    def do_PUT(self) -> None:
        changes = self._body()
        if self.path == "/control" and changes.keys() <= {field.name for field in fields(Behaviour)}:
            self._provider.behave(changes)
            self._send(200, self._provider.control())
        else:
            self._send(*_NOT_FOUND)

    def do_POST(self) -> None:
        order = self._body()
        match self.path.split("/")[1:]:
            case ["charges"]:
                self._charge(order)
            case ["charges", number, "refund"] if number.isdecimal():
                self._send(*self._provider.refund(self._account, int(number)))
            case _:
                self._send(*_NOT_FOUND)

    def _charge(self, order: dict[str, Any]) -> None:
        behaviour = self._provider.behaviour
        with self._provider.queue():
            if self._hangs_up_within(behaviour.delay_seconds):
                self.close_connection = True
                return
        if behaviour.failing:
            self._send(503, {"error": "out of order"})
            return
        charge = self._provider.charge(self._account, order, self.headers.get("Idempotency-Key"), behaviour)
        if self._hangs_up_within(behaviour.answer_delay_seconds):
            self.close_connection = True
            return
        self._send(201, asdict(charge))

    def _hangs_up_within(self, seconds: float) -> bool:
        """Wait so long; true as soon as the other side closes its connection."""
        if not seconds or not select.select([self.connection], [], [], seconds)[0]:
            return False
        try:
            return not self.connection.recv(1, socket.MSG_PEEK)
        except ConnectionError:
            return True

    @property
    def _account(self) -> str:
        return self.headers.get("X-Account", "")

    def _body(self) -> dict[str, Any]:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        document = json.loads(body or b"{}")
        return document if isinstance(document, dict) else {}

    def _send(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """The control is asked many times a second; nobody wants to read that."""


_NOT_FOUND: Answer = (404, {"error": "there is nothing here"})


def main() -> None:
    """Serve until it is stopped."""
    parser = argparse.ArgumentParser(prog="python -m example_apps.demo.provider")
    parser.add_argument("--port", type=int, default=8001)
    with ProviderServer(parser.parse_args().port) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
