"""How an answer lies in the store: inside the record if it is small, compressed, else in chunks beside it."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import replace

from idem_middleware.messages import HeaderPairs, Response
from idem_middleware.options import Options
from idem_middleware.records import Chunks, KeptResponse, Record, SealedResponse

__all__ = [
    "CHUNK_BYTES",
    "MAX_BODY_BYTES",
    "MAX_HEADER_BYTES",
    "MAX_HEADER_LINES",
    "header_bytes",
    "most_bytes",
    "pack",
    "record_bytes",
    "unpack",
]

# DynamoDB takes 400 KB an item, names included (Developer Guide, "Service quotas"); the rest is for our own attributes.
CHUNK_BYTES = 350 * 1024
# More header text than any common server lets out; beyond it the answer is not kept rather than not written.
MAX_HEADER_BYTES = 64 * 1024
MAX_HEADER_LINES = 1000
# A few megabytes that somebody planted in the table can be made to inflate to a thousand times as much.
MAX_BODY_BYTES = 32 * 1024 * 1024
# zlib gains nothing on a body this short, and an item below 1 KB costs one unit anyway.
_COMPRESS_FROM_BYTES = 512
_RECORD_BYTES = 1024  # a record without its answer: measured 0.9 KB on CPython 3.11
_LEVEL = 1  # 27 % of 1 MB JSON at 6 ms; level 6 takes three times as long for 22 %


def header_bytes(headers: HeaderPairs) -> int:
    """How large these header lines are in a record, as DynamoDB counts text."""
    size = 4 * len(headers)
    for name, value in headers:
        size += len(name.encode()) + len(value.encode())
    return size


def record_bytes(record: Record) -> int:
    """What a record with its answer is taken to need in memory."""
    response = record.response
    if isinstance(response, KeptResponse):
        return _RECORD_BYTES + header_bytes(response.headers) + len(response.body or b"")
    if isinstance(response, SealedResponse):
        return _RECORD_BYTES + len(response.data)
    return _RECORD_BYTES


def pack(response: Response, headers: HeaderPairs, *, inline_bytes: int | None) -> tuple[KeptResponse, list[bytes]]:
    """The stored form of an answer, and the chunks that must be written before it.

    `inline_bytes` is how large headers and body together may be inside the record; None: any size, uncompressed.
    """
    body, encoding = response.body, "identity"
    if inline_bytes is None:
        return KeptResponse(status=response.status, headers=headers, body=body), []
    if len(body) >= _COMPRESS_FROM_BYTES:
        smaller = zlib.compress(body, _LEVEL)
        if len(smaller) < len(body):
            body, encoding = smaller, "deflate"
    kept = KeptResponse(status=response.status, headers=headers, encoding=encoding, body=body)
    if header_bytes(headers) + len(body) <= inline_bytes:
        return kept, []
    chunks = [body[start : start + CHUNK_BYTES] for start in range(0, len(body), CHUNK_BYTES)]
    if not chunks:  # only the headers are large
        return kept, []
    where = Chunks(count=len(chunks), size_bytes=len(body), sha256=hashlib.sha256(body).digest())
    return replace(kept, body=None, chunks=where), chunks


def most_bytes(options: Options) -> int:
    """How large a stored answer may be; whoever wrote it may have allowed more than we do."""
    return max(options.max_response_bytes, MAX_BODY_BYTES)


def unpack(
    kept: KeptResponse, chunks: Sequence[bytes | None] = (), *, max_bytes: int = MAX_BODY_BYTES
) -> Response | None:
    """The answer again, byte for byte; None if anything is missing, damaged, or larger than `max_bytes`."""
    body = kept.body
    if kept.chunks is not None:
        parts = [part for part in chunks if part is not None]
        body = b"".join(parts)
        if len(parts) != kept.chunks.count or len(body) != kept.chunks.size_bytes:
            return None
        if hashlib.sha256(body).digest() != kept.chunks.sha256:
            return None
    if body is None:
        return None
    if kept.encoding == "deflate":
        body = _inflated(body, max_bytes)
    elif kept.encoding != "identity":
        return None
    return None if body is None else Response(kept.status, kept.headers, body)


def _inflated(data: bytes, max_bytes: int) -> bytes | None:
    """Bounded, so that a planted record can't fill the memory."""
    stream = zlib.decompressobj()
    try:
        body = stream.decompress(data, max_bytes + 1)
    except zlib.error:
        return None
    if not stream.eof or stream.unused_data or len(body) > max_bytes:
        return None
    return body
