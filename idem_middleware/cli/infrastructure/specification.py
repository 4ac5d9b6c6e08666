"""What is to be built, once for all tools that build it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from idem_middleware.stores.dynamodb.layouts import Layout
from idem_middleware.stores.dynamodb.table import ACTIONS, ProvisionedThroughput

__all__ = [
    "KMS_ACTIONS",
    "LATENCY_OPERATIONS",
    "OPERATIONS",
    "OPERATOR_ACTIONS",
    "SERVICE_ACTIONS",
    "WRITES",
    "Alarm",
    "AlarmSettings",
    "Consistency",
    "Encryption",
    "Metric",
    "TableSpecification",
    "alarms",
]

Encryption = Literal["aws-owned", "aws-managed", "customer"]
Consistency = Literal["eventual", "strong"]

SERVICE_ACTIONS = ACTIONS
"""The least that the service needs; `doctor` tries each of them."""

OPERATOR_ACTIONS = (
    # to look
    "dynamodb:DescribeTable",
    "dynamodb:DescribeTimeToLive",
    "dynamodb:DescribeContinuousBackups",
    "dynamodb:ListTagsOfResource",
    "dynamodb:GetItem",
    "dynamodb:BatchGetItem",
    "dynamodb:Query",
    "dynamodb:Scan",
    # to release an abandoned claim, to sweep, to erase by key
    "dynamodb:UpdateItem",
    "dynamodb:DeleteItem",
    # to create and adapt the table; it may not be deleted
    "dynamodb:CreateTable",
    "dynamodb:UpdateTable",
    "dynamodb:UpdateTimeToLive",
    "dynamodb:UpdateContinuousBackups",
    "dynamodb:TagResource",
)
"""What the commands of `idem-middleware` call; `doctor` tries the service's rights, too."""

KMS_ACTIONS = (
    "kms:CreateGrant",
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey*",
    "kms:ReEncrypt*",
)
"""With a customer managed key, by way of DynamoDB alone: Developer Guide, "Using IAM policies with a KMS key"."""

OPERATIONS = (*(action.removeprefix("dynamodb:") for action in SERVICE_ACTIONS), "TransactWriteItems")
"""By these names CloudWatch counts. A transaction needs the rights of what is in it, and is counted as itself."""

WRITES = ("PutItem", "UpdateItem")
LATENCY_OPERATIONS = WRITES
_MINUTE = 60
_KMS_KEY = re.compile(r"arn:[a-z0-9-]+:kms:[a-z0-9-]+:\d{12}:key/[A-Za-z0-9-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmSettings:
    """When to wake somebody."""

    retry_percent: float = 50.0
    latency_ms: float = 50.0
    replication_ms: float = 10_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpecification:
    """The table and what belongs to it. `kms_key_arn` is needed for encryption "customer", and only there."""

    name: str
    layout: Layout = "flat"
    billing: Literal["on-demand"] | ProvisionedThroughput = "on-demand"
    recovery: bool = True
    deletion_protection: bool = True
    encryption: Encryption = "aws-managed"
    kms_key_arn: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    region: str | None = None
    replicas: tuple[str, ...] = ()
    consistency: Consistency = "eventual"
    alarms: AlarmSettings = field(default_factory=AlarmSettings)

    @property
    def ttl(self) -> bool:
        """Strongly consistent global tables have none; `idem-middleware sweep` deletes there."""
        return not (self.replicas and self.consistency == "strong")

    @property
    def own_region(self) -> str | None:
        """Where the table is: as given, or where its key is."""
        if self.region is None and self.kms_key_arn is not None:
            return self.kms_key_arn.split(":")[3]
        return self.region

    @property
    def index(self) -> bool:
        """Whether what a caller has used can be listed: not to be had on strongly consistent global tables."""
        return self.layout == "caller" and self.ttl

    def problems(self) -> list[str]:
        """What can't be built, one sentence each."""
        found = []
        if (self.encryption == "customer") != (self.kms_key_arn is not None):
            found.append("--kms-key goes with --encryption customer, and the other way round")
        if self.kms_key_arn is not None and not _KMS_KEY.fullmatch(self.kms_key_arn):
            found.append("--kms-key must be the ARN of a key: arn:aws:kms:REGION:ACCOUNT:key/ID")
        if self.replicas and self.region is None:
            found.append("replicas need --region, the table's own: a global table names every region")
        if self.replicas and self.billing != "on-demand":
            found.append(
                "a table with replicas is billed on demand here: provisioned ones need auto scaling in each region"
            )
        if self.region in self.replicas or len(set(self.replicas)) != len(self.replicas):
            found.append("a region is given twice")
        if self.replicas and self.encryption == "customer":
            found.append("a customer's key is one region's: give each replica its own in the printed code")
        if self.consistency == "strong" and len(self.replicas) != 2:  # noqa: PLR2004  # three regions with its own
            found.append("strong consistency takes exactly three regions: --region and two --replica")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric of AWS/DynamoDB for this table. `hidden` ones only feed an expression."""

    id: str
    name: str
    statistic: str
    operation: str | None = None
    receiving_region: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """`expression` over `metrics` (or the one metric) above `threshold`, for `periods` minutes out of `within`."""

    name: str
    title: str
    description: str
    metrics: tuple[Metric, ...]
    expression: str | None
    threshold: float
    periods: int
    within: int
    period_seconds: int = _MINUTE


def alarms(specification: TableSpecification) -> tuple[Alarm, ...]:
    """Every alarm of this table."""
    settings = specification.alarms
    return (
        Alarm(
            name="retries",
            title="Retries",
            description=(
                "Share of conditional-check failures in all claims. Each replay, conflict and mismatch is one, so this "
                "is the share of retries, not of faults: look for a client or a proxy that retries in a loop."
            ),
            metrics=(
                Metric(id="failed", name="ConditionalCheckFailedRequests", statistic="Sum"),
                Metric(id="claims", name="SuccessfulRequestLatency", statistic="SampleCount", operation="PutItem"),
            ),
            expression="IF(FILL(failed, 0) + FILL(claims, 0) > 0, "
            "100 * FILL(failed, 0) / (FILL(failed, 0) + FILL(claims, 0)), 0)",
            threshold=settings.retry_percent,
            periods=10,
            within=15,
        ),
        Alarm(
            name="throttling",
            title="Throttling",
            description="Requests were throttled: they are retried for 3 s, then answered with 503.",
            metrics=(
                Metric(id="writes", name="WriteThrottleEvents", statistic="Sum"),
                Metric(id="reads", name="ReadThrottleEvents", statistic="Sum"),
            ),
            expression="FILL(writes, 0) + FILL(reads, 0)",
            threshold=0,
            periods=3,
            within=5,
        ),
        Alarm(
            name="system-errors",
            title="SystemErrors",
            description="DynamoDB answered with 5xx. They are retried for 3 s, then the request is answered with 503.",
            metrics=tuple(
                Metric(id=f"m{number}", name="SystemErrors", statistic="Sum", operation=operation)
                for number, operation in enumerate(OPERATIONS)
            ),
            expression=" + ".join(f"FILL(m{number}, 0)" for number in range(len(OPERATIONS))),
            threshold=0,
            periods=3,
            within=5,
        ),
        Alarm(
            name="latency",
            title="Latency",
            description=(
                "The slowest hundredth of the writes. Each new request waits for two of them; one call is given up "
                "after about 2.4 s."
            ),
            metrics=tuple(
                Metric(id=f"m{number}", name="SuccessfulRequestLatency", statistic="p99", operation=operation)
                for number, operation in enumerate(LATENCY_OPERATIONS)
            ),
            expression=f"MAX([{', '.join(f'm{number}' for number in range(len(LATENCY_OPERATIONS)))}])",
            threshold=settings.latency_ms,
            periods=5,
            within=5,
        ),
        *(
            Alarm(
                name=f"replication-{region}",
                title=f"Replication{''.join(part.title() for part in region.split('-'))}",
                description=(
                    f"Writes reach {region} late. Until then, a retry that is sent there finds nothing: send the "
                    "requests of one key to one region."
                ),
                metrics=(Metric(id="m0", name="ReplicationLatency", statistic="Average", receiving_region=region),),
                expression=None,
                threshold=settings.replication_ms,
                periods=5,
                within=5,
            )
            for region in specification.replicas
        ),
    )
