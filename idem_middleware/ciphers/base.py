"""What a cipher is: authenticated encryption, bound to what it is said to belong to."""

from __future__ import annotations

from typing import Protocol

from idem_middleware.errors import IdempotencyError

__all__ = ["Cipher", "Unauthentic"]


class Unauthentic(IdempotencyError):
    """What was to be opened is not what was sealed here: forged, moved, damaged, or sealed under a key unknown here.

    `reason` is a short word for events: "authentication", "unknown-key", "malformed".
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Cipher(Protocol):
    """Seals pieces of bytes, each bound to its associated data: nothing opens with other data than it was sealed with.

    All are safe under threads and forks.
    """

    @property
    def overhead_bytes(self) -> int:
        """By how much a sealed piece is longer than what is in it, at most."""
        ...

    @property
    def reads_plain(self) -> bool:
        """Whether answers that lie there unsealed are given out, too: for the time after encryption was switched on.

        As long as it is so, whoever can write to the table can forge answers.
        """
        ...

    def is_ready(self, sealed: bytes | None) -> bool:
        """Whether this can be opened (None: whether anything can be sealed) without asking a service first.

        What is not is left to a thread by callers on an event loop.
        """
        ...

    def prepare(self, sealed: bytes | None) -> None:
        """Ask the service, so that it is ready. May block.

        Raises:
            Unauthentic: this can't be opened here.
            StoreUnavailable: the service did not answer.
        """
        ...

    def seal(self, plain: bytes, associated: bytes) -> bytes:
        """Encrypt and authenticate.

        Raises:
            StoreUnavailable: as `prepare`.
        """
        ...

    def open(self, sealed: bytes, associated: bytes) -> bytes:
        """Give back what was sealed.

        Raises:
            Unauthentic: it was not sealed like this, with this associated data, under a key that is known here.
            StoreUnavailable: as `prepare`.
        """
        ...
