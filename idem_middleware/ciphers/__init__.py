"""Ciphers for stored answers: `AesGcm` with keys of one's own, `KmsCipher` with data keys of AWS KMS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from idem_middleware.ciphers.base import Cipher, Unauthentic

if TYPE_CHECKING:
    from idem_middleware.ciphers.aesgcm import AesGcm
    from idem_middleware.ciphers.kms import KmsCipher

__all__ = ["AesGcm", "Cipher", "KmsCipher", "Unauthentic"]

_HOMES = {"AesGcm": "aesgcm", "KmsCipher": "kms"}


def __getattr__(name: str) -> object:
    """Import on first use: `cryptography` is needed by those alone who encrypt (PEP 562)."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - needed only here

    return getattr(import_module(f"{__name__}.{home}"), name)
