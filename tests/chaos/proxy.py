"""A proxy before DynamoDB Local that fails calls by chance: a process of its own, on the bytes of HTTP.

`python -m tests.chaos.proxy --upstream-port PORT --seed N`. It is calm until it gets SIGUSR1, and again after SIGUSR2.
When it is stopped it prints how often each fault struck, as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import socket
import struct
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from email.utils import formatdate

from tests.support.ports import LOOPBACK

FAULTS = (
    "reply lost",
    "request lost",
    "delayed",
    "hanging, applied",
    "hanging, not applied",
    "500, applied",
    "500",
    "503",
    "throttled",
    "malformed answer",
    "half an answer",
)
_APPLIED = frozenset(
    {"reply lost", "hanging, applied", "500, applied", "malformed answer", "half an answer", "delayed"}
)
_ANSWERS = {
    "500, applied": (500, "InternalServerError"),
    "500": (500, "InternalServerError"),
    "503": (503, "ServiceUnavailable"),
    "throttled": (400, "ProvisionedThroughputExceededException"),
}
# Longer than the product's own patience with one call.
_HANGING_SECONDS = 2.0
_DELAY_SECONDS = (0.05, 0.6)
# SO_LINGER with no time left: close() sends a reset.
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_MOST_HEAD_BYTES = 65536


class ChaosProxy:
    """Takes connections, and has one of its own to DynamoDB Local for each."""

    def __init__(self, upstream_port: int, seed: int, rate: float) -> None:
        self._upstream_port = upstream_port
        self._chance = random.Random(seed)  # noqa: S311  # chosen by chance, not secret
        self._rate = rate
        self.stormy = False
        self.calls = 0
        self.struck: Counter[str] = Counter()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass calls on until somebody leaves or a fault ends the connection."""
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            while True:
                request = await _message(reader)
                self.calls += 1
                fault = self._fault()
                if fault is not None and fault not in _APPLIED:
                    await self._answer_instead(fault, writer)
                    continue
                if fault == "delayed":
                    await asyncio.sleep(self._chance.uniform(*_DELAY_SECONDS))
                if upstream is None:
                    upstream = await asyncio.open_connection(LOOPBACK, self._upstream_port, limit=_MOST_HEAD_BYTES)
                upstream[1].write(request)
                answer = await _message(upstream[0])
                await self._answer(fault, answer, writer)
        except (OSError, EOFError, asyncio.LimitOverrunError):
            pass
        finally:
            _reset(writer)
            if upstream is not None:
                upstream[1].close()

    def _fault(self) -> str | None:
        if not self.stormy or self._chance.random() >= self._rate:
            return None
        fault = self._chance.choice(FAULTS)
        self.struck[fault] += 1
        return fault

    async def _answer(self, fault: str | None, answer: bytes, writer: asyncio.StreamWriter) -> None:
        if fault is None or fault == "delayed":
            writer.write(answer)
        elif fault == "malformed answer":
            head, _, body = answer.partition(b"\r\n\r\n")
            writer.write(head + b"\r\n\r\n" + b"<" * len(body))
        elif fault == "half an answer":
            writer.write(answer[: -len(answer.partition(b"\r\n\r\n")[2]) // 2 or None])
            await writer.drain()
            writer.close()
            raise ConnectionError
        else:
            await self._answer_instead(fault, writer)
            return
        await writer.drain()

    async def _answer_instead(self, fault: str, writer: asyncio.StreamWriter) -> None:
        if fault.startswith("hanging"):
            await asyncio.sleep(_HANGING_SECONDS)
        if fault not in _ANSWERS:
            raise ConnectionError
        status, code = _ANSWERS[fault]
        body = json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "by chance"}).encode()
        head = (
            f"HTTP/1.1 {status} {code}\r\nDate: {formatdate(usegmt=True)}\r\n"
            f"Content-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await writer.drain()


async def _message(reader: asyncio.StreamReader) -> bytes:
    """Read one request or answer as it comes: with a length, or in chunks, as DynamoDB Local sends larger items."""
    head = await reader.readuntil(b"\r\n\r\n")
    headers = {}
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip().lower()
    if headers.get(b"transfer-encoding") == b"chunked":
        return head + await _chunks(reader)
    length = int(headers.get(b"content-length", b"0"))
    return head + (await reader.readexactly(length) if length else b"")


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    pieces = []
    size = -1
    while size:
        line = await reader.readuntil(b"\r\n")
        size = int(line, 16)
        pieces += [line, await reader.readexactly(size + 2)]
    return b"".join(pieces)


def _reset(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket | None = writer.get_extra_info("socket")
    if connection is not None and not writer.is_closing():
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.close()


async def _run(parsed: argparse.Namespace) -> None:
    proxy = ChaosProxy(parsed.upstream_port, parsed.seed, parsed.rate)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    loop.add_signal_handler(signal.SIGUSR1, setattr, proxy, "stormy", True)  # noqa: FBT003  # setattr's own form
    loop.add_signal_handler(signal.SIGUSR2, setattr, proxy, "stormy", False)  # noqa: FBT003
    server = await asyncio.start_server(proxy.serve, LOOPBACK, 0, limit=_MOST_HEAD_BYTES, backlog=256)
    _print(f"ready {server.sockets[0].getsockname()[1]}")
    await stopped.wait()
    server.close()
    _print(json.dumps({"calls": proxy.calls, "struck": proxy.struck}))


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.proxy")
    parser.add_argument("--upstream-port", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.02, help="how many of the calls meet a fault")
    asyncio.run(_run(parser.parse_args(arguments)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
