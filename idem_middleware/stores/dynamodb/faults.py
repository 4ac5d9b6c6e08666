"""What a failed call means: one table; no I/O, and nothing of botocore is imported for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus

from idem_middleware.errors import StoreMisconfigured, StoreUnavailable
from idem_middleware.transactions import CancellationCode, CancellationReason

__all__ = ["KNOWN_CODES", "Fault", "Kind", "classify", "error_for"]


class Kind(Enum):
    """What to do about a failure."""

    ANSWER = "the condition did not hold: an answer, not a fault"
    RETRY = "the same call may succeed soon; whether this one was applied is unknown"
    MISCONFIGURED = "an operator has to act"
    TOO_LARGE = "the item is over DynamoDB's limit, and always will be"
    FATAL = "the call will not succeed, for a reason that is none of the above"


@dataclass(frozen=True, slots=True)
class Fault:
    """One failure: what it is, DynamoDB's error code or the transport error's name, and what an operator can do."""

    kind: Kind
    code: str
    advice: str = ""
    reasons: tuple[CancellationReason, ...] = ()
    """Of a transaction that was cancelled: one for each of its actions, the record's own first."""
    throttling: tuple[str, ...] = ()
    """What was exceeded, in DynamoDB's words: TableWriteKeyRangeThroughputExceeded is a hot key."""

    @property
    def is_conflict(self) -> bool:
        """Whether nothing stood against it but another write of the same item, which is over in milliseconds."""
        stood = {reason.code for reason in self.reasons if reason.code is not CancellationCode.NONE}
        return stood == {CancellationCode.CONFLICT} if stood else self.code in _CONFLICTS


ITEM_TOO_LARGE = "ItemTooLarge"
CANCELLED = "TransactionCanceledException"
TRANSACT = "transact_write_items"
_VALIDATION = "ValidationException"

_CREDENTIALS = "check the AWS credentials of this process"
_CLOCK = "check the secret key, and this machine's clock: AWS takes no signature that is more than 5 minutes off"
_REGION = "set region=..., or AWS_REGION in the environment; no region is assumed"
_EXPIRED = "its credentials are over; they must be renewed, or come from a source that renews them"

# By DynamoDB's error codes: Developer Guide, "Error handling with DynamoDB", and the service model.
_RETRIED = frozenset(
    {
        "400",  # the status, where no code came: DynamoDB gives one with each, so the answer was cut off
        "InternalFailure",
        "InternalServerError",
        "LimitExceededException",
        "PriorRequestNotComplete",
        "ProvisionedThroughputExceededException",
        "ReplicatedWriteConflictException",
        "RequestLimitExceeded",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)
_CONFLICTS = frozenset(
    {"ReplicatedWriteConflictException", "TransactionConflictException", "TransactionInProgressException"}
)
_ADVICE = {
    "ResourceNotFoundException": "there is no such table in this account and region: create it, or correct its name",
    "TableNotFoundException": "there is no such table in this account and region: create it, or correct its name",
    "AccessDeniedException": "the credentials in use are not allowed {action} on it: add that to their policy",
    "AccessDenied": "the credentials in use are not allowed {action} on it: add that to their policy",
    "UnrecognizedClientException": _CREDENTIALS,
    "InvalidClientTokenId": _CREDENTIALS,
    "MissingAuthenticationToken": _CREDENTIALS,
    "MissingAuthenticationTokenException": _CREDENTIALS,
    "IncompleteSignature": _CREDENTIALS,
    "IncompleteSignatureException": _CREDENTIALS,
    "OptInRequired": "this account is not signed up for the service or the region",
    "SubscriptionRequiredException": "this account is not signed up for the service or the region",
    "InvalidSignatureException": _CLOCK,
    "SignatureDoesNotMatch": _CLOCK,
    "RequestExpired": _CLOCK,
    "RequestTimeTooSkewed": _CLOCK,
    "ExpiredToken": _EXPIRED,
    "ExpiredTokenException": _EXPIRED,
    # By the names of botocore's exceptions, where no answer came.
    "NoCredentialsError": "no AWS credentials were found; boto3 looks in the environment, its files and the instance",
    "PartialCredentialsError": "the AWS credentials are incomplete: both key id and secret key are needed",
    "UnknownCredentialError": _CREDENTIALS,
    "NoAuthTokenError": _CREDENTIALS,
    "TokenRetrievalError": _CREDENTIALS,
    "SSOError": "log in again (aws sso login)",
    "LoginError": "log in again (aws login)",
    "ProfileNotFound": "the AWS profile named in the environment does not exist",
    "ConfigNotFound": "the AWS configuration file named in the environment does not exist",
    "ConfigParseError": "the AWS configuration file can't be parsed",
    "InvalidConfigError": "the AWS configuration file is not valid",
    "InvalidRetryConfigurationError": "client_config has wrong retries",
    "InvalidRetryModeError": "client_config has a wrong retry mode",
    "NoRegionError": _REGION,
    "InvalidRegionError": _REGION,
    "UnknownRegionError": _REGION,
    "UnknownEndpointError": _REGION,
    "EndpointProviderError": "endpoint and region don't go together",
    "InvalidEndpointConfigurationError": "the endpoint in the AWS configuration is not valid",
    "InvalidProxiesConfigError": "client_config has wrong proxies",
}
_TRANSACTION_DENIED = (
    "the credentials in use must be allowed dynamodb:UpdateItem (for claim_items also dynamodb:PutItem) on it, and "
    "PutItem, UpdateItem, DeleteItem or ConditionCheckItem on each table that the actions name"
)
_TRANSACTION_ADVICE = {  # IAM knows no action TransactWriteItems: each of its parts needs its own
    "AccessDeniedException": _TRANSACTION_DENIED,
    "AccessDenied": _TRANSACTION_DENIED,
    "ResourceNotFoundException": "one of the tables that it names does not exist in this account and region",
}
_KEY_SCHEMA_ADVICE = (
    "its key must be the one attribute pk, a string, without a sort key; with layout='caller' pk and the sort key sk"
)
# botocore's exceptions where no (whole) answer came. Each stands for those derived from it.
_TRANSPORT = frozenset(
    {
        "ConnectionError",
        "HTTPClientError",
        "IncompleteReadError",
        "ResponseParserError",
        "CredentialRetrievalError",
        "MetadataRetrievalError",
        "ChecksumError",
    }
)
# The names of botocore's exceptions that come most often, of those derived from the above.
_TRANSPORT_NAMES = frozenset(
    {
        "ConnectTimeoutError",
        "ConnectionClosedError",
        "EndpointConnectionError",
        "ProxyConnectionError",
        "ReadTimeoutError",
        "ResponseStreamingError",
        "SSLError",
    }
)
_OURS = frozenset({"Interrupted", "StoreFull"})  # where no call failed, but nothing could be written either
KNOWN_CODES = frozenset({*_RETRIED, *_ADVICE, *_TRANSPORT, *_TRANSPORT_NAMES, *_OURS, ITEM_TOO_LARGE, _VALIDATION})
"""The codes that a fault usually has. Others come with new releases of DynamoDB, and from proxies."""

_KEY_SCHEMA_WORDS = (
    "does not match the schema",
    "Missing the key",
    "Type mismatch for key",
    "required keys was not given",  # the last two are DynamoDB Local's
    "number of conditions on the keys",
)
_TOO_LARGE_WORDS = ("Item size",)


def classify(exc: BaseException) -> Fault | None:
    """Say what a failure is; None where it is none of boto3's, but a bug or an interrupt."""
    names = [kind.__name__ for kind in type(exc).__mro__ if kind.__module__.partition(".")[0] == "botocore"]
    if not names:
        return None
    response = getattr(exc, "response", None)
    if "ClientError" in names and isinstance(response, Mapping):
        return _answered(response)
    for name in names:
        if name in _ADVICE:
            return Fault(Kind.MISCONFIGURED, names[0], _ADVICE[name])
        if name in _TRANSPORT:
            return Fault(Kind.RETRY, names[0])
    return Fault(Kind.FATAL, names[0])


def _answered(response: Mapping[str, object]) -> Fault:
    error = response.get("Error")
    details = error if isinstance(error, Mapping) else {}
    code, message = str(details.get("Code", "Unknown")), str(details.get("Message", ""))
    if code == "ConditionalCheckFailedException":
        return Fault(Kind.ANSWER, code)
    if code == CANCELLED:
        return _cancelled(response)
    if code in _RETRIED:
        return Fault(Kind.RETRY, code, throttling=_throttling(response))
    if code in _ADVICE:
        return Fault(Kind.MISCONFIGURED, code, _ADVICE[code])
    if code == _VALIDATION:
        return _invalid(message)
    # Codes that we don't know, or that a proxy made up: the status decides.
    return Fault(Kind.RETRY if _is_passing(_http_status(response)) else Kind.FATAL, code)


def _cancelled(response: Mapping[str, object]) -> Fault:
    """A transaction that was not carried out: again, if nothing but conflicts and throttling stood against it."""
    listed = response.get("CancellationReasons")
    reasons = tuple(map(_reason, listed)) if isinstance(listed, Sequence) else ()
    stood = [reason.code for reason in reasons if reason.code is not CancellationCode.NONE]
    passes = bool(stood) and all(code.passes for code in stood)
    return Fault(Kind.RETRY if passes else Kind.ANSWER, CANCELLED, reasons=reasons, throttling=_throttling(response))


def _reason(listed: object) -> CancellationReason:
    members = listed if isinstance(listed, Mapping) else {}
    item = members.get("Item")
    return CancellationReason(CancellationCode.of(members.get("Code")), item if isinstance(item, Mapping) else None)


def _throttling(response: Mapping[str, object]) -> tuple[str, ...]:
    """The reasons without the resources: those name the account. Two spellings are in use."""
    listed = response.get("ThrottlingReasons") or response.get("throttlingReasons")
    if not isinstance(listed, Sequence):
        return ()
    return tuple(str(each["reason"]) for each in listed if isinstance(each, Mapping) and "reason" in each)


def _invalid(message: str) -> Fault:
    if any(words in message for words in _TOO_LARGE_WORDS):
        return Fault(Kind.TOO_LARGE, ITEM_TOO_LARGE)
    if any(words in message for words in _KEY_SCHEMA_WORDS):
        return Fault(Kind.MISCONFIGURED, _VALIDATION, _KEY_SCHEMA_ADVICE)
    return Fault(Kind.FATAL, _VALIDATION)


def _is_passing(status: int) -> bool:
    return status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS


def _http_status(response: Mapping[str, object]) -> int:
    metadata = response.get("ResponseMetadata")
    status = metadata.get("HTTPStatusCode") if isinstance(metadata, Mapping) else None
    return status if isinstance(status, int) else 0


def error_for(fault: Fault, table: str, operation: str) -> StoreUnavailable:
    """Make the error to raise, `from` the failure itself.

    `operation` is the name of boto3's method. AWS's own message stays out of the text: it may hold what was sent.
    """
    action = "dynamodb:" + operation.title().replace("_", "")
    if operation == TRANSACT and fault.kind is Kind.MISCONFIGURED:
        return StoreMisconfigured(
            f"a transaction on DynamoDB table {table!r} and others can't be carried out ({fault.code}): "
            + _TRANSACTION_ADVICE.get(fault.code, fault.advice),
            code=fault.code,
        )
    if fault.kind is Kind.MISCONFIGURED:
        return StoreMisconfigured(
            f"DynamoDB table {table!r} can't be used ({fault.code} at {action}): {fault.advice.format(action=action)}",
            code=fault.code,
        )
    if fault.kind is Kind.TOO_LARGE:
        return StoreUnavailable(
            f"the item is larger than DynamoDB takes (400 KB), and was not written to table {table!r}", code=fault.code
        )
    if fault.kind is Kind.RETRY:
        return StoreUnavailable(
            f"DynamoDB table {table!r} gave no answer to {action} in time; the last try ended with {fault.code}",
            code=fault.code,
        )
    return StoreUnavailable(f"DynamoDB table {table!r} refused {action}: {fault.code}", code=fault.code)
