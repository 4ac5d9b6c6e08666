"""A DynamoDB that does nothing: every call is answered at once (or after a fixed time), whatever it asks for.

    python -m benchmarks.stub [--port N] [--delay-ms N] [--found FILE]

It says `listening on PORT`, then serves until it is ended. With --found, a PutItem with a condition fails, and brings
the item (in DynamoDB's JSON) of that file: what a replay meets. It costs a fraction of any client's time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from email.utils import formatdate
from pathlib import Path
from typing import cast
from zlib import crc32

_NOTHING = b"{}"


def _answer(status: str, content: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nServer: Server\r\nDate: {formatdate(usegmt=True)}\r\n"
        "Content-Type: application/x-amz-json-1.0\r\n"
        f"Content-Length: {len(content)}\r\nConnection: keep-alive\r\n"
        f"x-amzn-RequestId: {'0' * 52}\r\nx-amz-crc32: {crc32(content)}\r\n\r\n"
    )
    return head.encode() + content


class _Answers:
    """The answers that there are, made once a second for the sake of their date."""

    def __init__(self, found: bytes | None) -> None:
        self._found = found
        self.renew()

    def renew(self) -> None:
        """Make them, and again in a second."""
        self.done = _answer("200 OK", _NOTHING)
        self.failed = None if self._found is None else _answer("400 Bad Request", self._found)
        asyncio.get_running_loop().call_later(1.0 - time.time() % 1.0, self.renew)


class _Connection(asyncio.Protocol):
    """Reads requests by their length, and writes the answers that were made before."""

    def __init__(self, delay_seconds: float, answers: _Answers) -> None:
        self._delay_seconds = delay_seconds
        self._answers = answers
        self._waiting = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        waiting = self._waiting + data if self._waiting else data
        while (end := waiting.find(b"\r\n\r\n")) >= 0:
            head = waiting[:end].lower()
            length = int(head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])
            if len(waiting) < end + 4 + length:
                break
            body, waiting = waiting[end + 4 : end + 4 + length], waiting[end + 4 + length :]
            failed = self._answers.failed
            answer = self._answers.done if failed is None or b"attribute_not_exists" not in body else failed
            if self._delay_seconds:
                asyncio.get_running_loop().call_later(self._delay_seconds, self._transport.write, answer)
            else:
                self._transport.write(answer)
        self._waiting = waiting


async def serve(port: int, delay_seconds: float, found: bytes | None) -> None:
    """Serve until cancelled."""
    loop = asyncio.get_running_loop()
    answers = _Answers(found)
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
    arguments = parser.parse_args()
    found = None if arguments.found is None else failure_of(arguments.found.read_bytes())
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(arguments.port, arguments.delay_ms / 1000, found))


if __name__ == "__main__":
    main()
