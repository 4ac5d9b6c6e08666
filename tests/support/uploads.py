"""Large uploads to a running probe, and the most memory that its process takes for one of them."""

from __future__ import annotations

import hashlib
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from tests.support.ports import LOOPBACK

__all__ = ["MIB", "can_measure", "peak_bytes", "upload"]

MIB = 1024 * 1024
_TIMEOUT_SECONDS = 300
_PIECE = bytes(range(256)) * (MIB // 256)
_RESET_PEAK = "5"  # proc(5), clear_refs: the peak resident size begins anew

Kind = Literal["raw", "form"]


def can_measure() -> bool:
    """Whether this system tells a process's peak, and forgets it when it is told to."""
    try:
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
    except OSError:
        return False
    return "VmHWM" in Path("/proc/self/status").read_text()


def peak_bytes(port: int, path: str, kind: Kind, *, mebibytes: int, key: str) -> int:
    """Send one upload; how much more memory the process took at its peak than before, in bytes."""
    pid = json.loads(_answer(port, "GET", "/healthz", {}, b""))["pid"]
    Path(f"/proc/{pid}/clear_refs").write_text(_RESET_PEAK)
    before = _resident(pid, "VmRSS")
    upload(port, path, kind, mebibytes=mebibytes, key=key)
    return _resident(pid, "VmHWM") - before


def upload(port: int, path: str, kind: Kind, *, mebibytes: int, key: str) -> None:
    """Send so much, piece by piece, and make sure that the handler got all of it."""
    head, tail, content_type = b"", b"", "application/octet-stream"
    if kind == "form":
        head = b'--limit\r\nContent-Disposition: form-data; name="doc"; filename="a.bin"\r\n\r\n'
        tail, content_type = b"\r\n--limit--\r\n", "multipart/form-data; boundary=limit"
    headers = {
        "Content-Type": content_type,
        "Content-Length": str(len(head) + mebibytes * MIB + len(tail)),
        "Idempotency-Key": key,
        "X-Plan": json.dumps({"status": 201, "echo": True, "read": "form" if kind == "form" else "stream"}),
    }

    def body() -> Iterator[bytes]:
        yield head
        for _ in range(mebibytes):
            yield _PIECE
        yield tail

    seen = json.loads(_answer(port, "POST", path, headers, body()))
    digest = hashlib.sha256()
    for _ in range(mebibytes):
        digest.update(_PIECE)
    expected = digest.hexdigest()
    got = seen["files"]["doc"] if kind == "form" else seen["body_sha256"]
    if got != (["a.bin", mebibytes * MIB, expected] if kind == "form" else expected):
        raise AssertionError(f"the handler did not get what was sent: {seen}")


def _answer(port: int, method: str, path: str, headers: dict[str, str], body: Any) -> bytes:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request(method, path, body=body, headers=headers)
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    if response.status not in (200, 201):
        raise AssertionError(f"{response.status} {content[:300]!r}")
    return content


def _resident(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise AssertionError(f"no {field}")
