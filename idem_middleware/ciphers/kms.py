"""AES-256-GCM under data keys that AWS KMS makes and opens: no key of one's own anywhere.

A sealed piece:

    1 byte   format, 2
    2 bytes  length n of the encrypted data key
    n bytes  the data key, encrypted by KMS
    28 bytes salt and nonce, as in `aesgcm`
    rest     ciphertext and tag

A data key seals for some minutes and is kept for opening, so that KMS is asked a few times an hour and process, not
with every request. https://docs.aws.amazon.com/kms/latest/developerguide/concepts.html#enveloping
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import inf
from typing import Any

from idem_middleware.ciphers.aesgcm import open_under, seal_under
from idem_middleware.ciphers.base import Unauthentic
from idem_middleware.errors import ConfigurationError, StoreUnavailable

__all__ = ["KmsCipher"]

_FORMAT = 2
_HEAD_BYTES = 3
_MOST_ENCRYPTED_BYTES = 1024  # KMS's are 150 to 250 bytes
_OVERHEAD_BYTES = _HEAD_BYTES + 256 + 28 + 16
_DATA_KEY_SECONDS = 300.0
_STALE_SECONDS = 3600.0
_RETRY_SECONDS = 5.0
_MOST_DATA_KEYS = 1000
# Errors that say what this data key is, not that KMS is away: no later try would end differently.
_NOT_OURS = frozenset(
    {"InvalidCiphertextException", "IncorrectKeyException", "InvalidKeyUsageException", "NotFoundException"}
)


@dataclass(frozen=True, slots=True, repr=False)
class _DataKey:
    plain: bytes
    encrypted: bytes
    made_at: float


class KmsCipher:
    """Seals under data keys of the KMS key `key_id` (an id, an ARN or an alias), and opens what it has sealed.

    `context` is KMS's encryption context: what a policy and CloudTrail may tell this use of the key by. A data key
    seals for `data_key_seconds`, and up to an hour longer while KMS gives no other; up to `max_data_keys` are kept for
    opening. The service needs kms:GenerateDataKey and kms:Decrypt on that key. `client` is a KMS client of boto3's;
    without one it is made on first use, with a `session` if one is given.

    Raises:
        ConfigurationError: settings that can't be right, all of them at once.
    """

    overhead_bytes = _OVERHEAD_BYTES

    def __init__(
        self,
        key_id: str,
        *,
        context: Mapping[str, str] | None = None,
        client: Any = None,
        session: Any = None,
        region: str | None = None,
        data_key_seconds: float = _DATA_KEY_SECONDS,
        max_data_keys: int = _MOST_DATA_KEYS,
        reads_plain: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        problems = [
            problem
            for problem, wrong in (
                ("key_id must name a KMS key", not _is_text(key_id)),
                ("data_key_seconds must be above 0", not data_key_seconds > 0),
                ("max_data_keys must be 1 or more", max_data_keys < 1),
                ("session and region have no effect on a client that is given", client and (session or region)),
            )
            if wrong
        ]
        if problems:
            raise ConfigurationError(problems)
        self._key_id = key_id
        self._context = {"purpose": "idem-middleware"} if context is None else dict(context)
        self._client = client
        self._is_users = client is not None
        self._session = session
        self._region = region
        self._data_key_seconds = data_key_seconds
        self._max_data_keys = max_data_keys
        self._monotonic = monotonic
        self.reads_plain = reads_plain
        self._lock = threading.Lock()
        self._asking: dict[None, threading.Lock] = {}
        self._current: _DataKey | None = None
        self._ask_again_at = -inf
        self._opened: OrderedDict[bytes, bytes] = OrderedDict()
        _instances.add(self)

    def __repr__(self) -> str:
        return f"KmsCipher({self._key_id!r})"

    def is_ready(self, sealed: bytes | None) -> bool:
        """As `Cipher.is_ready`."""
        if sealed is None:
            return self._usable() is not None
        return self._known(_encrypted_key(sealed)) is not None

    def prepare(self, sealed: bytes | None) -> None:
        """As `Cipher.prepare`."""
        if sealed is None:
            self._sealing_key()
        else:
            self._opening_key(_encrypted_key(sealed))

    def seal(self, plain: bytes, associated: bytes) -> bytes:
        """As `Cipher.seal`."""
        key = self._sealing_key()
        head = bytes((_FORMAT,)) + len(key.encrypted).to_bytes(2, "big") + key.encrypted
        return head + seal_under(key.plain, plain, head + associated)

    def open(self, sealed: bytes, associated: bytes) -> bytes:
        """As `Cipher.open`."""
        encrypted = _encrypted_key(sealed)
        end = _HEAD_BYTES + len(encrypted)
        return open_under(self._opening_key(encrypted), sealed[end:], sealed[:end] + associated)

    def after_fork(self) -> None:
        """Forget the parent's connections, and the locks that its threads may hold."""
        self._lock, self._asking = threading.Lock(), {}
        if not self._is_users:
            self._client = None

    # --- data keys ---

    def _one_at_a_time(self) -> threading.Lock:
        """One question to KMS at a time; who waits finds the answer there.

        Made when it is first held: a preloading gunicorn forks before gevent patches the child, and with a lock made at
        the fork, which is held during I/O, one green thread that waits would stop them all.
        """
        return self._asking.get(None) or self._asking.setdefault(None, threading.Lock())

    def _usable(self) -> _DataKey | None:
        """The data key to seal with; None where KMS has to be asked for another first."""
        key, now = self._current, self._monotonic()
        if key is None:
            return None
        age = now - key.made_at
        is_fresh = age < self._data_key_seconds
        is_stale_but_all_there_is = now < self._ask_again_at and age < self._data_key_seconds + _STALE_SECONDS
        return key if is_fresh or is_stale_but_all_there_is else None

    def _sealing_key(self) -> _DataKey:
        key = self._usable()
        if key is not None:
            return key
        with self._one_at_a_time():
            key = self._usable()
            if key is not None:
                return key
            if self._monotonic() < self._ask_again_at:  # it has just said no, to others who wait here or before them
                raise StoreUnavailable("KMS did not give a data key a moment ago", code="KMS")
            try:
                answer = self._ask("generate_data_key", KeyId=self._key_id, KeySpec="AES_256")
                key = _DataKey(answer["Plaintext"], answer["CiphertextBlob"], self._monotonic())
            except StoreUnavailable:
                self._ask_again_at = self._monotonic() + _RETRY_SECONDS
                key = self._usable()  # better than an answer that can't be kept
                if key is None:
                    raise
                return key
            self._remember(key.encrypted, key.plain)
            self._current = key
            return key

    def _known(self, encrypted: bytes) -> bytes | None:
        with self._lock:
            return self._opened.get(sha256(encrypted).digest())

    def _remember(self, encrypted: bytes, plain: bytes) -> None:
        with self._lock:
            self._opened[sha256(encrypted).digest()] = plain
            while len(self._opened) > self._max_data_keys:
                self._opened.popitem(last=False)

    def _opening_key(self, encrypted: bytes) -> bytes:
        plain = self._known(encrypted)
        if plain is not None:
            return plain
        with self._one_at_a_time():
            plain = self._known(encrypted)
            if plain is None:
                # With the key named, a data key that was encrypted under somebody else's KMS key is refused.
                answer = self._ask("decrypt", KeyId=self._key_id, CiphertextBlob=encrypted)
                plain = bytes(answer["Plaintext"])
                self._remember(encrypted, plain)
            return plain

    def _ask(self, operation: str, **parameters: Any) -> Mapping[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - only who uses it

        try:
            method = getattr(self._made_client(), operation)
            answer: Mapping[str, Any] = method(EncryptionContext=self._context, **parameters)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if operation == "decrypt" and code in _NOT_OURS:
                raise Unauthentic("unknown-key") from error
            raise StoreUnavailable(f"KMS refused {operation}", code=f"KMS.{code}") from error
        except BotoCoreError as error:
            raise StoreUnavailable(f"KMS did not answer {operation}", code=type(error).__name__) from error
        return answer

    def _made_client(self) -> Any:
        if self._client is None:
            import boto3  # noqa: PLC0415 - with the first call, not with the first import
            from botocore.config import Config  # noqa: PLC0415

            # A request waits for it, as for the store.
            config = Config(
                connect_timeout=1.0, read_timeout=1.4, retries={"mode": "standard", "total_max_attempts": 2}
            )
            session = self._session or boto3.Session()
            self._client = session.client("kms", region_name=self._region, config=config)
        return self._client


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _encrypted_key(sealed: bytes) -> bytes:
    """The encrypted data key of a piece.

    Raises:
        Unauthentic: it has none.
    """
    length = int.from_bytes(sealed[1:_HEAD_BYTES], "big")
    end = _HEAD_BYTES + length
    if len(sealed) < end or sealed[0] != _FORMAT or not 0 < length <= _MOST_ENCRYPTED_BYTES:
        raise Unauthentic("malformed")
    return sealed[_HEAD_BYTES:end]


_instances: weakref.WeakSet[KmsCipher] = weakref.WeakSet()


def _after_fork() -> None:  # pragma: no cover - runs in children, where nothing is measured
    for cipher in list(_instances):
        cipher.after_fork()


if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows has none
    os.register_at_fork(after_in_child=_after_fork)
