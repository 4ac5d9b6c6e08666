"""Answers that DynamoDB Local never gives, as they come over the wire.

Their shapes are those of the API's reference, of botocore's service model, and of answers that users have published
(aws/aws-sdk-net#1292, erlcloud/erlcloud#607, pynamodb/PynamoDB#1144). None was recorded by us on AWS. Names, numbers
and accounts are made up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["RECORDED", "Recorded"]

_DYNAMODB = "com.amazonaws.dynamodb.v20120810#"
_CORAL = "com.amazon.coral.service#"
_AVAILABILITY = "com.amazon.coral.availability#"
_TABLE = "arn:aws:dynamodb:eu-central-1:123456789012:table/keys"


@dataclass(frozen=True)
class Recorded:
    """One answer: what it says, and what it is to be taken for."""

    content: dict[str, Any]
    code: str
    is_retried: bool
    status: int = 400
    throttling: tuple[str, ...] = ()
    reasons: tuple[str, ...] = field(default=())


def _cancelled(*codes: str) -> dict[str, Any]:
    reasons = [{"Code": code} if code == "None" else {"Code": code, "Message": f"{code}."} for code in codes]
    message = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{', '.join(codes)}]"
    return {
        "__type": f"{_DYNAMODB}TransactionCanceledException",
        "CancellationReasons": reasons,
        "Message": message,
    }


RECORDED = {
    "provisioned throughput": Recorded(
        {
            "__type": f"{_DYNAMODB}ProvisionedThroughputExceededException",
            "message": "The level of configured provisioned throughput for the table was exceeded. Consider increasing "
            "your provisioning level with the UpdateTable API.",
            "ThrottlingReasons": [{"reason": "TableWriteProvisionedThroughputExceeded", "resource": _TABLE}],
        },
        "ProvisionedThroughputExceededException",
        is_retried=True,
        throttling=("TableWriteProvisionedThroughputExceeded",),
    ),
    "hot key": Recorded(
        {
            "__type": f"{_AVAILABILITY}ThrottlingException",
            "message": "Throughput exceeds the current capacity of your table or index.",
            "throttlingReasons": [{"reason": "TableWriteKeyRangeThroughputExceeded", "resource": _TABLE}],
        },
        "ThrottlingException",
        is_retried=True,
        throttling=("TableWriteKeyRangeThroughputExceeded",),
    ),
    "account limit": Recorded(
        {
            "__type": f"{_DYNAMODB}RequestLimitExceeded",
            "message": "Throughput exceeds the current throughput limit for your account.",
            "ThrottlingReasons": [{"reason": "TableWriteAccountLimitExceeded", "resource": _TABLE}],
        },
        "RequestLimitExceeded",
        is_retried=True,
        throttling=("TableWriteAccountLimitExceeded",),
    ),
    "throttled without a reason": Recorded(
        {"__type": f"{_CORAL}ThrottlingException", "message": "Rate exceeded"}, "ThrottlingException", is_retried=True
    ),
    "internal": Recorded(
        {"__type": f"{_DYNAMODB}InternalServerError", "message": "Internal server error"},
        "InternalServerError",
        is_retried=True,
        status=500,
    ),
    "unavailable": Recorded(
        {"__type": f"{_AVAILABILITY}ServiceUnavailableException", "message": None},
        "ServiceUnavailableException",
        is_retried=True,
        status=503,
    ),
    "conflict with a transaction": Recorded(
        {
            "__type": f"{_DYNAMODB}TransactionConflictException",
            "message": "Transaction is ongoing for the item",
        },
        "TransactionConflictException",
        is_retried=True,
    ),
    "the same transaction still runs": Recorded(
        {
            "__type": f"{_DYNAMODB}TransactionInProgressException",
            "Message": "The transaction with the given request token is already in progress.",
        },
        "TransactionInProgressException",
        is_retried=True,
    ),
    "another region writes": Recorded(
        {
            "__type": f"{_DYNAMODB}ReplicatedWriteConflictException",
            "message": "One or more items in this request are being modified by a request in another Region.",
        },
        "ReplicatedWriteConflictException",
        is_retried=True,
    ),
    "cancelled by a conflict": Recorded(
        _cancelled("None", "TransactionConflict"),
        "TransactionCanceledException",
        is_retried=True,
        reasons=("None", "TransactionConflict"),
    ),
    "cancelled by throttling": Recorded(
        _cancelled("ThrottlingError", "ProvisionedThroughputExceeded"),
        "TransactionCanceledException",
        is_retried=True,
        reasons=("ThrottlingError", "ProvisionedThroughputExceeded"),
    ),
    "cancelled by a condition": Recorded(
        _cancelled("None", "ConditionalCheckFailed"),
        "TransactionCanceledException",
        is_retried=False,
        reasons=("None", "ConditionalCheckFailed"),
    ),
    "cancelled as invalid": Recorded(
        _cancelled("None", "ValidationError"),
        "TransactionCanceledException",
        is_retried=False,
        reasons=("None", "ValidationError"),
    ),
    "denied": Recorded(
        {
            "__type": f"{_CORAL}AccessDeniedException",
            "Message": "User: arn:aws:sts::123456789012:assumed-role/service/i-0 is not authorized to perform: "
            f"dynamodb:PutItem on resource: {_TABLE} because no identity-based policy allows it",
        },
        "AccessDeniedException",
        is_retried=False,
    ),
    "expired": Recorded(
        {
            "__type": f"{_CORAL}ExpiredTokenException",
            "message": "The security token included in the request is expired",
        },
        "ExpiredTokenException",
        is_retried=False,
    ),
}
"""By what happened."""
