"""Answers under a cipher: what is sealed, what it is bound to, and how it is opened again. No I/O but the cipher's own.

With a cipher, all of an answer is encrypted: status, headers, body, and where its chunks are. Each sealed piece is
bound to the record's key, to the attempt that wrote it, to whom and what it was the answer for, and to what piece it
is. So nothing opens that was moved to another record or another attempt, given to another caller or request, swapped
with another chunk, or cut off.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from idem_middleware.ciphers.base import Cipher, Unauthentic
from idem_middleware.errors import StoreUnavailable
from idem_middleware.events import told
from idem_middleware.messages import HeaderPairs
from idem_middleware.options import Options
from idem_middleware.records import Chunks, KeptResponse, OmittedResponse, Record, SealedResponse

__all__ = [
    "Rejected",
    "open_chunks",
    "open_response",
    "opens_at_once",
    "prepare_to_seal",
    "reserved_bytes",
    "seal_chunks",
    "seal_response",
    "seals_at_once",
]

_KEPT, _IN_CHUNKS, _OMITTED = 1, 2, 3
_HEAD_BYTES = 32  # more than what `_written` needs beside headers and body
_PER_HEADER_BYTES = 4  # beyond what `header_bytes` counts

logger = logging.getLogger("idem_middleware")


@dataclass(frozen=True, slots=True)
class Rejected:
    """What lies there must not be given out; `reason` is a short word for the event.

    "authentication", "unknown-key", "malformed": the cipher's own; "plain": it is not sealed, and a cipher is set;
    "no-cipher": it is sealed, and none is; "damaged": missing or changed, where no cipher could tell which.
    """

    reason: str


def reserved_bytes(headers: HeaderPairs, options: Options) -> int:
    """How much less fits into a record because of the cipher."""
    if options.cipher is None:
        return 0
    return options.cipher.overhead_bytes + _HEAD_BYTES + _PER_HEADER_BYTES * len(headers)


def seal_response(cipher: Cipher, response: KeptResponse | OmittedResponse, claimed: Record) -> SealedResponse:
    """Seal for the attempt that `claimed` is a record of.

    Raises:
        StoreUnavailable: the cipher can't seal now.
    """
    return SealedResponse(cipher.seal(_written(response), _binding(claimed, b"answer")))


def seal_chunks(cipher: Cipher, chunks: Sequence[bytes], claimed: Record) -> list[bytes]:
    """Seal each piece of a body. Raises as `seal_response`."""
    return [cipher.seal(data, _binding(claimed, *_place(number, len(chunks)))) for number, data in enumerate(chunks)]


def open_response(record: Record, options: Options) -> KeptResponse | OmittedResponse | Rejected:
    """What the record says about the answer, if that is to be believed.

    Raises:
        StoreUnavailable: the cipher can't tell now.
    """
    response, cipher = record.response, options.cipher
    if cipher is None:
        return Rejected("no-cipher") if isinstance(response, SealedResponse) else response or Rejected("damaged")
    if response is None:
        return Rejected("damaged")
    if not isinstance(response, SealedResponse):
        return response if cipher.reads_plain else Rejected("plain")
    plain = _opened(cipher, response.data, _binding(record, b"answer"))
    return plain if isinstance(plain, Rejected) else _read(plain)


def open_chunks(chunks: Sequence[bytes | None], record: Record, options: Options) -> list[bytes | None] | Rejected:
    """The pieces of a body in the clear. Raises as `open_response`."""
    cipher = options.cipher
    if cipher is None or not isinstance(record.response, SealedResponse):
        return list(chunks)
    opened: list[bytes | None] = []
    for number, data in enumerate(chunks):
        if data is None:
            return Rejected("damaged")
        plain = _opened(cipher, data, _binding(record, *_place(number, len(chunks))))
        if isinstance(plain, Rejected):
            return plain
        opened.append(plain)
    return opened


def opens_at_once(record: Record, chunks: Sequence[bytes | None], options: Options) -> bool:
    """Whether opening asks no service, so that an event loop may do it."""
    cipher, response = options.cipher, record.response
    if cipher is None or not isinstance(response, SealedResponse):
        return True
    try:
        return all(cipher.is_ready(piece) for piece in (response.data, *chunks) if piece is not None)
    except Exception:  # noqa: BLE001 - opening it will say what is wrong
        return True


def seals_at_once(options: Options) -> bool:
    """Whether sealing asks no service."""
    try:
        return options.cipher is None or options.cipher.is_ready(None)
    except Exception:  # noqa: BLE001 - sealing will say what is wrong
        return True


def prepare_to_seal(options: Options) -> None:
    """Ask the service for what sealing needs, on a thread that may block. If it fails, so will sealing, at once."""
    try:
        if options.cipher is not None:
            options.cipher.prepare(None)
    except Exception as error:  # noqa: BLE001 - sealing says it
        logger.debug("the cipher could not be made ready: %s", told(error))


def _opened(cipher: Cipher, sealed: bytes, associated: bytes) -> bytes | Rejected:
    try:
        return cipher.open(sealed, associated)
    except Unauthentic as error:
        return Rejected(error.reason)
    except StoreUnavailable:
        raise
    except Exception as error:  # noqa: BLE001 - a cipher of the user's own; what it can't open is not given out
        logger.error("the cipher raised %s", told(error))  # noqa: TRY400 - its text may hold what it opened
        return Rejected("authentication")


def _binding(record: Record, *piece: bytes) -> bytes:
    """What a piece belongs to, each field with its length in front."""
    caller = (b"\0",) if record.caller_digest is None else (b"\1", record.caller_digest)
    fields = (record.pk.encode(), record.owner.encode(), b"%d" % record.attempt, record.fingerprint, *caller, *piece)
    return b"idem-middleware answer 1\0" + b"".join(len(field).to_bytes(4, "big") + field for field in fields)


def _place(number: int, count: int) -> tuple[bytes, bytes, bytes]:
    return b"chunk", b"%d" % number, b"%d" % count


# --- what is inside ---------------------------------------------------------------------------------------------------


def _written(response: KeptResponse | OmittedResponse) -> bytes:
    if isinstance(response, OmittedResponse):
        location = () if response.location is None else (response.location,)
        return bytes((_OMITTED,)) + _texts((response.reason, *location))
    texts = _texts((response.encoding, *(text for pair in response.headers for text in pair)))
    kind = _KEPT if response.chunks is None else _IN_CHUNKS
    head = bytes((kind,)) + response.status.to_bytes(2, "big") + texts
    if response.chunks is None:
        return head + (response.body or b"")
    chunks = response.chunks
    return head + chunks.count.to_bytes(4, "big") + chunks.size_bytes.to_bytes(8, "big") + chunks.sha256


def _texts(texts: Sequence[str]) -> bytes:
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    return len(encoded).to_bytes(4, "big") + b"".join(len(text).to_bytes(4, "big") + text for text in encoded)


def _read(plain: bytes) -> KeptResponse | OmittedResponse | Rejected:
    """Only who holds a key can have written it; a mistake there is no reason to give out anything wrong."""
    try:
        reader = _Reader(plain)
        kind = reader.take(1)[0]
        if kind == _OMITTED:
            reason, *location = reader.texts()
            return OmittedResponse(reason=reason, location=location[0] if location else None)
        status = int.from_bytes(reader.take(2), "big")
        encoding, *flat = reader.texts()
        headers = tuple(zip(flat[::2], flat[1::2], strict=True))
        if kind == _KEPT:
            return KeptResponse(status=status, headers=headers, encoding=encoding, body=reader.rest())
        if kind != _IN_CHUNKS:
            return Rejected("malformed")
        count, size_bytes = int.from_bytes(reader.take(4), "big"), int.from_bytes(reader.take(8), "big")
        chunks = Chunks(count=count, size_bytes=size_bytes, sha256=reader.rest())
        return KeptResponse(status=status, headers=headers, encoding=encoding, chunks=chunks)
    except ValueError:
        return Rejected("malformed")


class _Reader:
    """Takes apart what `_written` put together."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise ValueError("cut off")
        taken, self._at = self._data[self._at : end], end
        return taken

    def texts(self) -> list[str]:
        count = int.from_bytes(self.take(4), "big")
        # Ends where the data do, whatever the number says.
        return [self.take(int.from_bytes(self.take(4), "big")).decode("utf-8", "surrogatepass") for _ in range(count)]

    def rest(self) -> bytes:
        return self._data[self._at :]
