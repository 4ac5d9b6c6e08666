"""A DynamoDB that costs next to nothing: every call is answered at once, or after a fixed time.

    python -m benchmarks.stub [--port N] [--delay-ms N] [--found FILE | --remember]

It says `listening on PORT`, then serves until it is ended. Without more it answers that it is done, whatever it was
asked, in a fraction of any client's time. With --found, a PutItem with a condition fails, and brings the item (in
DynamoDB's JSON) of that file: what a replay meets. With --remember it keeps what is written and looks at conditions,
and `GET /counts` gives how many calls there were and what capacity Amazon would bill for them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import cast
from zlib import crc32

from benchmarks.dynamodb.tables import Tables

_NOTHING = b"{}"


def _answer(status: str, content: bytes, date: str) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nServer: Server\r\nDate: {date}\r\n"
        "Content-Type: application/x-amz-json-1.0\r\n"
        f"Content-Length: {len(content)}\r\nConnection: keep-alive\r\n"
        f"x-amzn-RequestId: {'0' * 52}\r\nx-amz-crc32: {crc32(content)}\r\n\r\n"
    )
    return head.encode() + content


class _Prepared:
    """The answers that there are, made once a second for the sake of their date."""

    def __init__(self, found: bytes | None) -> None:
        self._found = found
        self._renew()

    def _renew(self) -> None:
        date = formatdate(usegmt=True)
        self._done = _answer("200 OK", _NOTHING, date)
        self._failed = None if self._found is None else _answer("400 Bad Request", self._found, date)
        asyncio.get_running_loop().call_later(1.0 - time.time() % 1.0, self._renew)

    def __call__(self, head: bytes, body: bytes) -> bytes:
        return self._done if self._failed is None or b"attribute_not_exists" not in body else self._failed


class _Remembered:
    """Answers from tables that keep what is written."""

    def __init__(self) -> None:
        self._tables = Tables()

    def __call__(self, head: bytes, body: bytes) -> bytes:
        date = formatdate(usegmt=True)
        if head.startswith(b"get /counts "):
            return _answer("200 OK", self._tables.counts(), date)
        operation = head.partition(b"\r\nx-amz-target:")[2].partition(b"\r\n")[0].rpartition(b".")[2].decode()
        return _answer(*self._tables.answer(operation, body), date)


Answers = Callable[[bytes, bytes], bytes]
"""What is answered to a head (in lower case) and a body."""


class _Connection(asyncio.Protocol):
    """Reads requests by their length, and writes answers."""

    def __init__(self, delay_seconds: float, answers: Answers) -> None:
        self._delay_seconds = delay_seconds
        self._answers = answers
        self._waiting = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        waiting = self._waiting + data if self._waiting else data
        while (end := waiting.find(b"\r\n\r\n")) >= 0:
            head = waiting[:end].lower()
            length = int(head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0] or b"0")
            if len(waiting) < end + 4 + length:
                break
            body, waiting = waiting[end + 4 : end + 4 + length], waiting[end + 4 + length :]
            answer = self._answers(head, body)
            if self._delay_seconds:
                asyncio.get_running_loop().call_later(self._delay_seconds, self._transport.write, answer)
            else:
                self._transport.write(answer)
        self._waiting = waiting


async def serve(port: int, delay_seconds: float, found: bytes | None, *, remember: bool) -> None:
    """Serve until cancelled."""
    loop = asyncio.get_running_loop()
    answers: Answers = _Remembered() if remember else _Prepared(found)
    server = await loop.create_server(lambda: _Connection(delay_seconds, answers), "127.0.0.1", port, backlog=512)
    print(f"listening on {server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def failure_of(item: bytes) -> bytes:
    """The answer to a write that met this item."""
    return (
        b'{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException",'
        b'"message":"The conditional request failed","Item":' + item + b"}"
    )


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--delay-ms", type=float, default=0.0)
    parser.add_argument("--found", type=Path)
    parser.add_argument("--remember", action="store_true")
    arguments = parser.parse_args()
    found = None if arguments.found is None else failure_of(arguments.found.read_bytes())
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(arguments.port, arguments.delay_ms / 1000, found, remember=arguments.remember))


if __name__ == "__main__":
    main()
