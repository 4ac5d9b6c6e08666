"""Data keys of AWS KMS, against moto's: how often it is asked, and what happens when it is away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from moto import mock_aws

from idem_middleware import ConfigurationError, StoreUnavailable
from idem_middleware.ciphers import KmsCipher, Unauthentic
from idem_middleware.testing import ManualClock
from tests.support.overtaken import Overtaken

PLAIN, BOUND = b"an answer", b"a record"


class Kms:
    """A client of moto's KMS that counts its calls and can be away."""

    def __init__(self) -> None:
        self.real = boto3.client("kms", region_name="eu-central-1")
        self.key_id = self.real.create_key()["KeyMetadata"]["KeyId"]
        self.calls: Counter[str] = Counter()
        self.error: Exception | None = None

    def __getattr__(self, operation: str) -> Any:
        def call(**parameters: Any) -> Any:
            self.calls[operation] += 1
            if self.error is not None:
                raise self.error
            return getattr(self.real, operation)(**parameters)

        return call

    def says(self, code: str) -> None:
        """Every call ends with this error."""
        self.error = ClientError({"Error": {"Code": code, "Message": ""}}, "any")


@pytest.fixture
def kms(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kms]:
    """KMS with one key."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    with mock_aws():
        yield Kms()


@pytest.fixture
def clock() -> ManualClock:
    """Moved by hand."""
    return ManualClock()


def cipher_of(kms: Kms, clock: ManualClock, **more: Any) -> KmsCipher:
    """A process's cipher."""
    return KmsCipher(kms.key_id, client=kms, monotonic=clock.monotonic, **more)


def test_one_process_opens_what_another_sealed(kms: Kms, clock: ManualClock) -> None:
    """The encrypted data key travels with the answer."""
    sealed = cipher_of(kms, clock).seal(PLAIN, BOUND)
    reader = cipher_of(kms, clock)
    assert reader.open(sealed, BOUND) == PLAIN
    assert len(sealed) <= len(PLAIN) + reader.overhead_bytes
    assert PLAIN not in sealed


def test_kms_is_asked_for_a_data_key_every_five_minutes(kms: Kms, clock: ManualClock) -> None:
    """And once for each that another process made; not with every answer."""
    writer, reader = cipher_of(kms, clock), cipher_of(kms, clock)
    for _ in range(3):
        sealed = [writer.seal(PLAIN, BOUND) for _ in range(4)]
        assert [reader.open(one, BOUND) for one in sealed] == [PLAIN] * 4
        assert [writer.open(one, BOUND) for one in sealed] == [PLAIN] * 4
        clock.advance(301)
    assert kms.calls == {"generate_data_key": 3, "decrypt": 3}


def test_it_says_when_it_has_to_ask(kms: Kms, clock: ManualClock) -> None:
    """So that an event loop leaves that to a thread."""
    writer, reader = cipher_of(kms, clock), cipher_of(kms, clock)
    assert not writer.is_ready(None)
    writer.prepare(None)
    assert writer.is_ready(None)
    sealed = writer.seal(PLAIN, BOUND)
    assert writer.is_ready(sealed)
    assert not reader.is_ready(sealed)
    reader.prepare(sealed)
    assert reader.is_ready(sealed)
    clock.advance(301)
    assert not writer.is_ready(None)


def test_while_kms_is_away_the_last_data_key_serves_on(kms: Kms, clock: ManualClock) -> None:
    """For an hour, and KMS is asked every five seconds, not by everybody."""
    cipher = cipher_of(kms, clock)
    cipher.seal(PLAIN, BOUND)
    clock.advance(301)
    kms.error = EndpointConnectionError(endpoint_url="x")
    for _ in range(10):
        assert cipher.open(cipher.seal(PLAIN, BOUND), BOUND) == PLAIN
    assert kms.calls["generate_data_key"] == 2
    assert cipher.is_ready(None)
    clock.advance(6)
    assert not cipher.is_ready(None)
    cipher.seal(PLAIN, BOUND)
    assert kms.calls["generate_data_key"] == 3
    clock.advance(3601)
    with pytest.raises(StoreUnavailable):
        cipher.seal(PLAIN, BOUND)


def test_without_any_data_key_nothing_is_sealed(kms: Kms, clock: ManualClock) -> None:
    """The second who asks is told at once, and KMS is asked again a little later."""
    cipher = cipher_of(kms, clock)
    kms.says("ThrottlingException")
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            cipher.seal(PLAIN, BOUND)
    assert kms.calls["generate_data_key"] == 1
    kms.error = None
    clock.advance(5)
    assert cipher.open(cipher.seal(PLAIN, BOUND), BOUND) == PLAIN


@pytest.mark.parametrize("code", ["InvalidCiphertextException", "IncorrectKeyException", "NotFoundException"])
def test_a_data_key_that_is_none_of_ours_is_refused(kms: Kms, clock: ManualClock, code: str) -> None:
    """For good: no later try would end differently."""
    sealed = cipher_of(kms, clock).seal(PLAIN, BOUND)
    kms.says(code)
    with pytest.raises(Unauthentic) as caught:
        cipher_of(kms, clock).open(sealed, BOUND)
    assert caught.value.reason == "unknown-key"


@pytest.mark.parametrize("code", ["AccessDeniedException", "KMSInternalException", "ThrottlingException"])
def test_what_kms_can_not_say_now_is_no_verdict(kms: Kms, clock: ManualClock, code: str) -> None:
    """A retry may end differently."""
    sealed = cipher_of(kms, clock).seal(PLAIN, BOUND)
    kms.says(code)
    with pytest.raises(StoreUnavailable) as caught:
        cipher_of(kms, clock).open(sealed, BOUND)
    assert caught.value.code == f"KMS.{code}"


def test_another_context_opens_nothing(kms: Kms, clock: ManualClock) -> None:
    """What one service sealed is not for another that shares the KMS key."""
    sealed = cipher_of(kms, clock, context={"service": "payments"}).seal(PLAIN, BOUND)
    with pytest.raises(Unauthentic):
        cipher_of(kms, clock, context={"service": "orders"}).open(sealed, BOUND)


def test_no_octet_can_be_changed(kms: Kms, clock: ManualClock) -> None:
    """The encrypted data key's octets count, too: of one that names another key KMS says that we may not use it."""
    cipher = cipher_of(kms, clock)
    sealed = cipher.seal(PLAIN, BOUND)
    for place in (0, 1, 2, 3, 50, len(sealed) - 40, len(sealed) - 1):
        changed = bytearray(sealed)
        changed[place] ^= 1
        with pytest.raises((Unauthentic, StoreUnavailable)):
            cipher.open(bytes(changed), BOUND)
    for wrong in (b"", b"\2", b"\2\0\0", b"\1" + sealed[1:], sealed[:100]):
        with pytest.raises(Unauthentic):
            cipher.open(wrong, BOUND)


def test_only_so_many_data_keys_are_kept(kms: Kms, clock: ManualClock) -> None:
    """The oldest goes first."""
    cipher = cipher_of(kms, clock, max_data_keys=1)
    first = cipher.seal(PLAIN, BOUND)
    clock.advance(301)
    cipher.seal(PLAIN, BOUND)
    assert not cipher.is_ready(first)
    assert cipher.open(first, BOUND) == PLAIN


def test_a_client_is_made_where_none_is_given(kms: Kms) -> None:
    """In the session's region, or the one that is named; anew in a forked child."""
    cipher = KmsCipher(kms.key_id, region="eu-central-1")
    assert cipher.open(cipher.seal(PLAIN, BOUND), BOUND) == PLAIN
    first = cipher._client
    cipher.after_fork()
    assert cipher._client is None
    assert cipher._made_client() is not first


def test_a_client_that_is_given_stays(kms: Kms, clock: ManualClock) -> None:
    """Only its owner could make another."""
    cipher = cipher_of(kms, clock)
    cipher.after_fork()
    assert cipher._client is kms


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"key_id": ""}, "key_id"),
        ({"key_id": None}, "key_id"),
        ({"data_key_seconds": 0}, "data_key_seconds"),
        ({"max_data_keys": 0}, "max_data_keys"),
        ({"client": object(), "region": "eu-central-1"}, "region"),
    ],
)
def test_settings_that_can_not_be_right_are_refused_at_start(more: dict[str, Any], complaint: str) -> None:
    """One sentence each."""
    with pytest.raises(ConfigurationError, match=complaint):
        KmsCipher(**{"key_id": "alias/a", **more})


def test_it_shows_the_key_that_it_uses() -> None:
    """Its id is no secret."""
    assert repr(KmsCipher("alias/a")) == "KmsCipher('alias/a')"


def test_whoever_waited_for_a_data_key_uses_the_one_that_came(kms: Kms, clock: ManualClock) -> None:
    """KMS is asked once, however many seal at once; and once for each that is to be opened."""
    cipher = cipher_of(kms, clock)
    sealing = Overtaken(lambda: cipher.seal(PLAIN, BOUND))
    cipher._asking = {None: sealing}  # type: ignore[dict-item]
    sealed = cipher.seal(PLAIN, BOUND)
    assert isinstance(sealing.seen, bytes)
    assert kms.calls == {"generate_data_key": 1}

    reader = cipher_of(kms, clock)
    opening = Overtaken(lambda: reader.open(sealed, BOUND))
    reader._asking = {None: opening}  # type: ignore[dict-item]
    assert reader.open(sealed, BOUND) == opening.seen == PLAIN
    assert kms.calls == {"generate_data_key": 1, "decrypt": 1}
