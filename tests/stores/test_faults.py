"""What a failed call means."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from botocore import exceptions as botocore_exceptions
from botocore.parsers import ResponseParserError

from idem_middleware.errors import StoreMisconfigured, StoreUnavailable
from idem_middleware.stores.dynamodb.faults import Fault, Kind, classify, error_for
from tests.stores.doubles import condition_failed, error, read_timeout

RETRIED_CODES = [
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
    "RequestLimitExceeded",
    "InternalServerError",
    "ServiceUnavailable",
    "TransactionConflictException",
    "TransactionInProgressException",
    "ReplicatedWriteConflictException",
    "LimitExceededException",
]
OPERATORS_CODES = [
    "ResourceNotFoundException",
    "AccessDeniedException",
    "UnrecognizedClientException",
    "InvalidSignatureException",
    "MissingAuthenticationTokenException",
    "ExpiredTokenException",
]
TRANSPORT_ERRORS: Sequence[Exception] = [
    read_timeout(),
    botocore_exceptions.ConnectTimeoutError(endpoint_url="http://x"),
    botocore_exceptions.EndpointConnectionError(endpoint_url="http://x"),
    botocore_exceptions.ConnectionClosedError(endpoint_url="http://x"),
    botocore_exceptions.HTTPClientError(error="broken"),
    botocore_exceptions.ProxyConnectionError(proxy_url="http://x"),
    botocore_exceptions.SSLError(endpoint_url="https://x", error=EOFError()),
    botocore_exceptions.IncompleteReadError(actual_bytes=1, expected_bytes=2),
    botocore_exceptions.CredentialRetrievalError(provider="iam-role", error_msg="slow"),
    ResponseParserError("not json"),
]
OPERATORS_ERRORS: Sequence[Exception] = [
    botocore_exceptions.NoCredentialsError(),
    botocore_exceptions.PartialCredentialsError(provider="env", cred_var="secret"),
    botocore_exceptions.NoRegionError(),
    botocore_exceptions.InvalidRegionError(region_name="x y"),
    botocore_exceptions.ProfileNotFound(profile="p"),
    botocore_exceptions.UnauthorizedSSOTokenError(),
]


def kind_of(exc: BaseException) -> Kind:
    """The kind of a failure that is one."""
    fault = classify(exc)
    assert fault is not None
    return fault.kind


def test_a_failed_condition_is_an_answer() -> None:
    """Not a fault, so it is never retried."""
    assert classify(condition_failed()) == Fault(Kind.ANSWER, "ConditionalCheckFailedException")


@pytest.mark.parametrize("code", RETRIED_CODES)
def test_what_passes_is_retried(code: str) -> None:
    """Throttling, conflicts with a transaction, and DynamoDB's own trouble."""
    assert classify(error(code)) == Fault(Kind.RETRY, code)


@pytest.mark.parametrize("exc", TRANSPORT_ERRORS, ids=lambda exc: type(exc).__name__)
def test_a_lost_or_broken_answer_is_retried(exc: Exception) -> None:
    """Whether the write was applied is unknown; the resend will tell."""
    assert classify(exc) == Fault(Kind.RETRY, type(exc).__name__)


@pytest.mark.parametrize(
    ("status", "kind"), [(500, Kind.RETRY), (503, Kind.RETRY), (429, Kind.RETRY), (400, Kind.FATAL)]
)
@pytest.mark.parametrize("code", ["NeverHeardOf", "503", ""])
def test_an_unknown_code_is_judged_by_its_status(code: str, status: int, kind: Kind) -> None:
    """Proxies and newer versions of the service have codes of their own."""
    assert kind_of(error(code, status=status)) is kind


@pytest.mark.parametrize("code", OPERATORS_CODES)
def test_what_an_operator_must_mend_is_told_so(code: str) -> None:
    """The message has the table, the code and the call that failed."""
    fault = classify(error(code))
    assert fault is not None
    told = error_for(fault, "my-keys", "update_item")
    assert isinstance(told, StoreMisconfigured)
    assert told.code == code
    for part in ("my-keys", code, "dynamodb:UpdateItem"):
        assert part in str(told)


@pytest.mark.parametrize("exc", OPERATORS_ERRORS, ids=lambda exc: type(exc).__name__)
def test_missing_credentials_and_regions_are_an_operators_matter(exc: Exception) -> None:
    """They are told as what they are, not as a store that is down."""
    fault = classify(exc)
    assert fault is not None
    assert fault.kind is Kind.MISCONFIGURED
    assert fault.code == type(exc).__name__
    assert fault.advice


def test_denied_permissions_name_the_action_to_allow() -> None:
    """Missing IAM actions show on rare paths only (powertools-lambda-python#1901), so the message says which one."""
    fault = classify(error("AccessDeniedException", "User: arn:aws:iam::1:user/x is not authorized"))
    assert fault is not None
    told = str(error_for(fault, "keys", "batch_get_item"))
    assert "not allowed dynamodb:BatchGetItem" in told
    assert "arn:aws" not in told


@pytest.mark.parametrize(
    "message",
    [
        "The provided key element does not match the schema",
        "One or more parameter values were invalid: Missing the key id in the item",
        "One or more parameter values were invalid: Type mismatch for key pk expected: N actual: S",
    ],
)
def test_a_table_with_another_key_is_an_operators_matter(message: str) -> None:
    """DynamoDB calls it a validation error of ours."""
    fault = classify(error("ValidationException", message))
    assert fault is not None
    assert fault.kind is Kind.MISCONFIGURED
    assert "pk" in str(error_for(fault, "keys", "put_item"))


@pytest.mark.parametrize(
    "message",
    [
        "Item size has exceeded the maximum allowed size",
        "Item size to update has exceeded the maximum allowed size",
    ],
)
def test_an_item_that_is_too_large_has_a_name_of_its_own(message: str) -> None:
    """It will never fit, so it is neither retried nor taken for an outage."""
    fault = classify(error("ValidationException", message))
    assert fault is not None
    assert fault == Fault(Kind.TOO_LARGE, "ItemTooLarge")
    assert error_for(fault, "keys", "update_item").code == "ItemTooLarge"


@pytest.mark.parametrize(
    "exc",
    [
        error("ValidationException", "Invalid UpdateExpression"),
        error("UnknownOperationException"),
        botocore_exceptions.DataNotFoundError(data_path="endpoints"),
    ],
    ids=["validation", "unknown", "no call"],
)
def test_everything_else_is_not_retried(exc: Exception) -> None:
    """The same call would fail the same way."""
    fault = classify(exc)
    assert fault is not None
    assert fault.kind is Kind.FATAL
    told = error_for(fault, "keys", "put_item")
    assert type(told) is StoreUnavailable
    assert told.code == fault.code


@pytest.mark.parametrize("exc", [TypeError("bug"), KeyboardInterrupt(), StoreUnavailable("already"), ConnectionError()])
def test_what_is_not_botos_is_no_fault(exc: BaseException) -> None:
    """Bugs and interrupts go through as they are; so does what was translated already."""
    assert classify(exc) is None


@pytest.mark.parametrize("code", ["InvalidSignatureException", "ValidationException", "AccessDeniedException", "Odd"])
def test_messages_repeat_nothing_that_was_sent(code: str) -> None:
    """A signature error quotes the request, headers and all."""
    fault = classify(error(code, "the canonical request was AKIASECRET"))
    assert fault is not None
    assert "AKIASECRET" not in str(error_for(fault, "keys", "put_item"))


def test_a_mangled_error_is_still_one() -> None:
    """A proxy's answer may have no shape at all."""
    mangled = botocore_exceptions.ClientError({}, "PutItem")
    assert classify(mangled) == Fault(Kind.FATAL, "Unknown")
