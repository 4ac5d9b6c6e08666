"""Signatures, compared with those of botocore's signer byte for byte."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from hypothesis import example, given
from hypothesis import strategies as st

from idem_middleware.stores.dynamodb.lean.signing import CONTENT_TYPE, Signer
from tests.stores.records import NOW

REGION = "eu-central-1"
TARGET = "DynamoDB_20120810.PutItem"
URL = "https://dynamodb.eu-central-1.amazonaws.com/"


class SomeKeys(NamedTuple):
    """As botocore's frozen credentials."""

    access_key: str
    secret_key: str
    token: str | None


KEYS = SomeKeys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", None)


def botocores(url: str, keys: SomeKeys, target: str, body: bytes, now: float) -> dict[str, str]:
    """The headers that botocore's signer makes of the same request. Its steps one by one: it reads the clock itself."""
    headers = {"Content-Type": CONTENT_TYPE, "X-Amz-Target": target}
    request: Any = AWSRequest(method="POST", url=url, data=body, headers=headers)
    signer: Any = SigV4Auth(keys, "dynamodb", REGION)  # type: ignore[arg-type]  # three attributes are all it reads
    request.context["timestamp"] = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    signer._modify_request_before_signing(request)
    signature = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    signer._inject_signature_to_request(request, signature)
    return dict(request.headers.items())


def ours(signer: Signer, keys: SomeKeys, target: str, body: bytes, now: float) -> dict[str, str]:
    """Our headers, without the one that botocore leaves to its HTTP client."""
    headers = signer.headers(keys, target, body, now)
    headers.pop("Host")
    return headers


URLS = [
    URL,
    "https://dynamodb.eu-central-1.amazonaws.com",
    "http://127.0.0.1:8000/",
    "http://localhost:80/",
    "https://LOCALHOST:443",
    "https://123456789012.ddb.eu-central-1.amazonaws.com/",
    "http://[::1]:8000/",
    "https://proxy.example/aws/dynamo db/./x/../y~/",
]
texts = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=64)


@given(
    url=st.sampled_from(URLS),
    access_key=texts,
    secret_key=texts,
    token=st.none() | texts,
    target=st.sampled_from([TARGET, "DynamoDB_20120810.BatchGetItem"]),
    body=st.binary(),
    now=st.floats(0, NOW),
)
@example(url=URL, access_key="A", secret_key="s", token="", target=TARGET, body=b"{}", now=NOW)
def test_it_signs_as_botocore_does(
    url: str, access_key: str, secret_key: str, token: str | None, target: str, body: bytes, now: float
) -> None:
    """Whatever the endpoint, the keys and the document."""
    keys = SomeKeys(access_key, secret_key, token)
    assert ours(Signer(url, REGION, "dynamodb"), keys, target, body, now) == botocores(url, keys, target, body, now)


@pytest.mark.parametrize(
    "change",
    [
        {"now": NOW + 1},
        {"now": NOW + 86400},
        {"keys": SomeKeys("AKIDEXAMPLE", "another", None)},
        {"keys": SomeKeys("AKIDEXAMPLE", KEYS.secret_key, "token")},
        {"body": b"other"},
        {"target": "DynamoDB_20120810.UpdateItem"},
    ],
    ids=["second", "day", "secret", "token", "body", "target"],
)
def test_nothing_is_kept_too_long(change: dict[str, Any]) -> None:
    """One signer for many requests: what it keeps is good for a day and a secret, a second, and no more."""
    signer = Signer(URL, REGION, "dynamodb")
    first = {"keys": KEYS, "target": TARGET, "body": b"{}", "now": NOW}
    for request in (first, {**first, **change}, first):
        assert ours(signer, **request) == botocores(URL, **request)


def test_the_signing_key_is_derived_once_a_day() -> None:
    """It is what a signature costs most."""
    signer = Signer(URL, REGION, "dynamodb")
    signer.headers(KEYS, TARGET, b"1", NOW)
    kept = signer._key
    signer.headers(KEYS, TARGET, b"2", NOW + 5)
    assert signer._key is kept
    signer.headers(KEYS, TARGET, b"2", NOW + 86400)
    assert signer._key is not kept


def test_the_host_is_the_one_that_is_signed() -> None:
    """It goes out as a header, so that no HTTP client can write it in another way."""
    assert (
        Signer("https://EXAMPLE.com:443/", REGION, "dynamodb").headers(KEYS, TARGET, b"", NOW)["Host"] == "example.com"
    )
