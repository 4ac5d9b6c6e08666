"""Ciphers: what is sealed opens with what it was sealed with, and with nothing else."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idem_middleware import ConfigurationError, ciphers
from idem_middleware.ciphers import AesGcm, Unauthentic

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
PLAIN, BOUND = b"an answer", b"a record"


def refused(cipher: AesGcm, sealed: bytes, associated: bytes = BOUND) -> str:
    """Why it does not open."""
    with pytest.raises(Unauthentic) as caught:
        cipher.open(sealed, associated)
    return caught.value.reason


@given(st.binary(max_size=5000), st.binary(max_size=100))
def test_what_is_sealed_opens(plain: bytes, associated: bytes) -> None:
    """Whatever it is, and whatever it is bound to; and it is not longer than said."""
    cipher = AesGcm({"a": KEY})
    sealed = cipher.seal(plain, associated)
    assert cipher.open(sealed, associated) == plain
    assert len(sealed) == len(plain) + cipher.overhead_bytes


def test_nothing_of_it_shows() -> None:
    """Not even that two are alike."""
    cipher = AesGcm({"a": KEY})
    one, two = cipher.seal(PLAIN, BOUND), cipher.seal(PLAIN, BOUND)
    assert one != two
    assert PLAIN not in one


def test_no_octet_of_it_can_be_changed_or_left_out() -> None:
    """The key's id and the salt count like the rest."""
    cipher = AesGcm({"a": KEY, "b": OTHER_KEY}, current="a")
    sealed = cipher.seal(PLAIN, BOUND)
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        assert refused(cipher, bytes(changed))
        assert refused(cipher, sealed[:place])
        assert refused(cipher, sealed[:place] + sealed[place + 1 :])
    assert refused(cipher, sealed + b"\0") == "authentication"


def test_it_opens_with_what_it_was_bound_to_alone() -> None:
    """So nothing can be moved."""
    cipher = AesGcm({"a": KEY})
    sealed = cipher.seal(PLAIN, BOUND)
    for other in (b"", BOUND + b"\0", BOUND[:-1], b"another record"):
        assert refused(cipher, sealed, other) == "authentication"


def test_another_key_of_the_same_name_opens_nothing() -> None:
    """It is the key that counts."""
    assert refused(AesGcm({"a": OTHER_KEY}), AesGcm({"a": KEY}).seal(PLAIN, BOUND)) == "authentication"


def test_a_key_is_rotated_in_three_steps() -> None:
    """The new one is known everywhere before it seals anywhere; the old one goes when nothing is under it any more."""
    before = AesGcm({"2025": KEY})
    added = AesGcm({"2025": KEY, "2026": OTHER_KEY}, current="2025")
    switched = AesGcm({"2025": KEY, "2026": OTHER_KEY}, current="2026")
    after = AesGcm({"2026": OTHER_KEY})
    for writer, readers in ((before, (before, added, switched)), (switched, (added, switched, after))):
        sealed = writer.seal(PLAIN, BOUND)
        assert [reader.open(sealed, BOUND) for reader in readers] == [PLAIN] * 3
    assert refused(after, before.seal(PLAIN, BOUND)) == "unknown-key"


@pytest.mark.parametrize("sealed", [b"", b"\1", b"\1\1", b"\2\1a" + b"x" * 60, b"\1\1a", b"\1\1a" + b"x" * 43])
def test_what_is_none_of_its_own_is_malformed(sealed: bytes) -> None:
    """Or of a key that nobody has; never another error."""
    assert refused(AesGcm({"a": KEY}), sealed) in {"malformed", "unknown-key"}


@given(st.binary(max_size=200))
def test_anything_is_refused_in_one_way(sealed: bytes) -> None:
    """Whatever somebody writes into the table."""
    assert refused(AesGcm({"a": KEY}), sealed)


@pytest.mark.parametrize(
    ("keys", "more", "complaint"),
    [
        ({}, {}, "current"),
        ({"a": KEY, "b": KEY}, {}, "current"),
        ({"a": KEY}, {"current": "b"}, "'b'"),
        ({"a": b"short"}, {}, "'a' must be 32 bytes"),
        ({"a": "not Base64!"}, {}, "'a' must be 32 bytes"),
        ({"a": base64.b64encode(b"short").decode()}, {}, "'a' must be 32 bytes"),
        ({"a": None}, {}, "'a' must be 32 bytes"),
        ({"": KEY}, {}, "id"),
        ({"a" * 65: KEY}, {}, "id"),
        ({"\xe9": KEY}, {}, "id"),
        ({1: KEY}, {}, "id"),
    ],
)
def test_keys_that_can_not_be_right_are_refused_at_start(
    keys: dict[Any, Any], more: dict[str, Any], complaint: str
) -> None:
    """By a sentence that does not hold them."""
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        AesGcm(keys, **more)
    assert not any(str(key) in str(caught.value) for key in keys.values() if key is not None)


def test_a_key_may_come_as_text() -> None:
    """As it comes out of an environment variable or a secret store."""
    text = AesGcm.generate_key()
    sealed = AesGcm({"a": text}).seal(PLAIN, BOUND)
    assert AesGcm({"a": base64.b64decode(text)}).open(sealed, BOUND) == PLAIN
    assert AesGcm.generate_key() != text


def test_a_cipher_does_not_show_its_keys() -> None:
    """Where it is logged or printed with all other options."""
    assert repr(AesGcm({"a": KEY, "b": OTHER_KEY}, current="a")) == "AesGcm(keys: a, b; current: a)"


def test_the_package_names_what_it_has() -> None:
    """And nothing else."""
    assert ciphers.KmsCipher.__name__ == "KmsCipher"
    with pytest.raises(AttributeError, match="Rot13"):
        _ = ciphers.Rot13
