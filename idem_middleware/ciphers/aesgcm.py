"""AES-256-GCM under a ring of keys.

A sealed piece:

    1 byte   format, 1
    1 byte   length n of the key's id
    n bytes  the key's id, ASCII
    16 bytes salt
    12 bytes nonce
    rest     ciphertext and tag

Every piece is encrypted under a key of its own, derived from the ring's key and the salt by HMAC-SHA256. With random
96-bit nonces alone one key would do for 2**32 pieces (NIST SP 800-38D §8.3), which is seven weeks at 1,000 a second;
with 224 random bits a piece there is no number that a service could reach.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
from collections.abc import Mapping

from idem_middleware.ciphers.base import Unauthentic
from idem_middleware.errors import ConfigurationError

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
except ImportError as error:  # pragma: no cover - the tests' environments have it
    raise ImportError("ciphers need cryptography: pip install idem-middleware[crypto]") from error

__all__ = ["AesGcm", "open_under", "seal_under"]

_FORMAT = 1
_KEY_BYTES = 32
_SALT_BYTES, _NONCE_BYTES, _TAG_BYTES = 16, 12, 16
_RANDOM_BYTES = _SALT_BYTES + _NONCE_BYTES
_LONGEST_ID = 64
_ID = re.compile(r"[!-~]{1,64}")


def seal_under(key: bytes, plain: bytes, associated: bytes) -> bytes:
    """Salt, nonce, ciphertext and tag."""
    random = os.urandom(_RANDOM_BYTES)
    return random + _derived(key, random).encrypt(random[_SALT_BYTES:], plain, associated)


def open_under(key: bytes, sealed: bytes, associated: bytes) -> bytes:
    """What `seal_under` sealed.

    Raises:
        Unauthentic: it was sealed under another key, with other associated data, or has been changed.
    """
    if len(sealed) < _RANDOM_BYTES + _TAG_BYTES:
        raise Unauthentic("malformed")
    random = sealed[:_RANDOM_BYTES]
    try:
        return _derived(key, random).decrypt(random[_SALT_BYTES:], sealed[_RANDOM_BYTES:], associated)
    except InvalidTag:
        raise Unauthentic("authentication") from None


def _derived(key: bytes, random: bytes) -> AESGCM:
    return AESGCM(hmac.digest(key, b"idem-middleware piece 1\0" + random[:_SALT_BYTES], "sha256"))


class AesGcm:
    """Seals under one key of a ring, and opens under any of it.

    `keys` are the ring: an id, which is stored in the clear, and 32 random bytes, or their Base64, as `generate_key`
    gives them. `current` is the id of the key that seals. To rotate: add the new key to the ring everywhere, then make
    it the current one everywhere, and take the old one out when the last answer under it has expired.

    Raises:
        ConfigurationError: keys or ids that can't be right, all of them at once.
    """

    def __init__(
        self, keys: Mapping[str, bytes | str], *, current: str | None = None, reads_plain: bool = False
    ) -> None:
        problems: list[str] = []
        self._keys: dict[bytes, bytes] = {}
        for name, key in keys.items():
            if not _is_id(name):
                problems.append(f"a cipher key's id must be 1 to {_LONGEST_ID} printable ASCII characters")
                continue
            octets = _octets(key)
            if octets is None:
                problems.append(f"the cipher key {name!r} must be 32 bytes, or the Base64 of 32 bytes")
            else:
                self._keys[name.encode()] = octets
        if current is None and len(keys) == 1:
            [current] = keys
        if current is None:
            problems.append("current must name the cipher key that seals, where there is not exactly one")
        elif current not in keys:
            problems.append(f"current must be the id of one of the cipher keys, not {current!r}")
        if problems:
            raise ConfigurationError(problems)
        self._current = str(current).encode()
        self.reads_plain = reads_plain
        self.overhead_bytes = 2 + len(self._current) + _RANDOM_BYTES + _TAG_BYTES

    def __repr__(self) -> str:
        ids = ", ".join(name.decode() for name in self._keys)
        return f"AesGcm(keys: {ids}; current: {self._current.decode()})"

    @staticmethod
    def generate_key() -> str:
        """A new random key, in Base64, for a secret store."""
        return base64.b64encode(os.urandom(_KEY_BYTES)).decode()

    def is_ready(self, sealed: bytes | None) -> bool:
        """As `Cipher.is_ready`: always, there is no service to ask."""
        return True

    def prepare(self, sealed: bytes | None) -> None:
        """As `Cipher.prepare`."""

    def seal(self, plain: bytes, associated: bytes) -> bytes:
        """As `Cipher.seal`."""
        head = bytes((_FORMAT, len(self._current))) + self._current
        return head + seal_under(self._keys[self._current], plain, head + associated)

    def open(self, sealed: bytes, associated: bytes) -> bytes:
        """As `Cipher.open`."""
        if len(sealed) < 2 or sealed[0] != _FORMAT:  # noqa: PLR2004 - the two bytes before the id
            raise Unauthentic("malformed")
        end = 2 + sealed[1]
        key = self._keys.get(sealed[2:end])
        if key is None:
            raise Unauthentic("unknown-key")
        return open_under(key, sealed[end:], sealed[:end] + associated)


def _is_id(name: object) -> bool:
    return isinstance(name, str) and _ID.fullmatch(name) is not None


def _octets(key: object) -> bytes | None:
    if isinstance(key, str):
        try:
            key = base64.b64decode(key, validate=True)
        except (binascii.Error, ValueError):
            return None
    return bytes(key) if isinstance(key, (bytes, bytearray)) and len(key) == _KEY_BYTES else None
