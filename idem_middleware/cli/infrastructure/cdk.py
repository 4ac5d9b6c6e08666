"""As a stack for the AWS CDK in Python (aws-cdk-lib 2)."""

from __future__ import annotations

from collections.abc import Iterator

from idem_middleware.cli.infrastructure.specification import (
    KMS_ACTIONS,
    OPERATOR_ACTIONS,
    SERVICE_ACTIONS,
    Alarm,
    Metric,
    TableSpecification,
    alarms,
)
from idem_middleware.stores.dynamodb.layouts import created_index, key_schema
from idem_middleware.stores.dynamodb.table import ProvisionedThroughput

__all__ = ["cdk_module"]

_HEAD = '''\
"""Idempotency table, its alarms and policies: `IdempotencyStack` for an app of the AWS CDK."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from constructs import Construct


class IdempotencyStack(cdk.Stack):
    """Grant `service_policy` to the service's role, `operator_policy` to people. `alarm_topic` is told of alarms."""

    def __init__(
        self, scope: Construct, construct_id: str, *, alarm_topic: sns.ITopic | None = None, **kwargs: object
    ) -> None:
        super().__init__(scope, construct_id, **kwargs)
'''
_TAIL = """\

    def _metric(self, name: str, statistic: str, **dimensions: str) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace="AWS/DynamoDB",
            metric_name=name,
            statistic=statistic,
            period=cdk.Duration.seconds(60),
            dimensions_map={"TableName": self.table.table_name, **dimensions},
        )

    def _policy(self, name: str, description: str, allowed: list[str]) -> iam.ManagedPolicy:
        resources = [self.table.table_arn%s]
        statement = iam.PolicyStatement(actions=allowed, resources=resources)
        return iam.ManagedPolicy(self, name, description=description, statements=[statement])


if __name__ == "__main__":
    app = cdk.App()
    IdempotencyStack(app, "Idempotency"%s)
    app.synth()
"""


def cdk_module(specification: TableSpecification) -> str:
    """The module as text."""
    region = specification.own_region  # a stack without one can't name keys
    environment = "" if region is None else f', env=cdk.Environment(region="{region}")'
    index = ', f"{self.table.table_arn}/index/*"' if specification.index else ""
    head = _HEAD if specification.kms_key_arn else _HEAD.replace("from aws_cdk import aws_kms as kms\n", "")
    body = [*_table(specification), *_tags(specification), *_alarms(specification), *_policies(specification)]
    return head + "".join(f"        {line}\n" if line else "\n" for line in body) + _TAIL % (index, environment)


def _table(specification: TableSpecification) -> Iterator[str]:
    yield "self.table = dynamodb.TableV2("
    yield "    self,"
    yield '    "Table",'
    yield f"    table_name={_text(specification.name)},"
    for setting, key in zip(("partition_key", "sort_key"), key_schema(specification.layout), strict=False):
        name = _text(key["AttributeName"])
        yield f"    {setting}=dynamodb.Attribute(name={name}, type=dynamodb.AttributeType.STRING),"
    if specification.index:
        index = created_index()
        yield "    local_secondary_indexes=["
        yield "        dynamodb.LocalSecondaryIndexProps("
        yield f"            index_name={_text(index['IndexName'])},"
        created = _text(index["KeySchema"][1]["AttributeName"])
        yield f"            sort_key=dynamodb.Attribute(name={created}, type=dynamodb.AttributeType.NUMBER),"
        yield f"            projection_type=dynamodb.ProjectionType.{index['Projection']['ProjectionType']},"
        yield "        )"
        yield "    ],"
    yield f"    billing={_billing(specification)},"
    if specification.ttl:
        yield '    time_to_live_attribute="ttl",'
    yield "    point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification("
    yield f"        point_in_time_recovery_enabled={specification.recovery}"
    yield "    ),"
    yield f"    deletion_protection={specification.deletion_protection},"
    yield f"    encryption={_encryption(specification)},"
    yield "    removal_policy=cdk.RemovalPolicy.RETAIN,"
    if specification.replicas:
        yield "    replicas=["
        yield from (f"        dynamodb.ReplicaTableProps(region={_text(region)})," for region in specification.replicas)
        yield "    ],"
        if specification.consistency == "strong":
            yield "    multi_region_consistency=dynamodb.MultiRegionConsistency.STRONG,"
    yield ")"


def _billing(specification: TableSpecification) -> str:
    if isinstance(specification.billing, ProvisionedThroughput):
        units = specification.billing
        return (
            f"dynamodb.Billing.provisioned(read_capacity=dynamodb.Capacity.fixed({units.read_units}), "
            f"write_capacity=dynamodb.Capacity.autoscaled(max_capacity={units.write_units}))"
        )
    return "dynamodb.Billing.on_demand()"


def _encryption(specification: TableSpecification) -> str:
    if specification.kms_key_arn is not None:
        key = f'kms.Key.from_key_arn(self, "Key", {_text(specification.kms_key_arn)})'
        return f"dynamodb.TableEncryptionV2.customer_managed_key({key})"
    if specification.encryption == "aws-managed":
        return "dynamodb.TableEncryptionV2.aws_managed_key()"
    return "dynamodb.TableEncryptionV2.dynamo_owned_key()"


def _tags(specification: TableSpecification) -> Iterator[str]:
    for name, value in specification.tags.items():
        yield f"cdk.Tags.of(self.table).add({_text(name)}, {_text(value)})"


def _alarms(specification: TableSpecification) -> Iterator[str]:
    yield "alarms = ["
    for alarm in alarms(specification):
        yield "    cloudwatch.Alarm("
        yield "        self,"
        yield f"        {_text(alarm.title + 'Alarm')},"
        yield f"        alarm_name={_text(f'{specification.name}-{alarm.name}')},"
        yield f"        alarm_description={_text(alarm.description)},"
        yield from (f"        {line}" for line in _metric_argument(alarm))
        yield "        comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,"
        yield f"        threshold={alarm.threshold:g},"
        yield f"        evaluation_periods={alarm.within},"
        yield f"        datapoints_to_alarm={alarm.periods},"
        yield "        treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,"
        yield "    ),"
    yield "]"
    yield "if alarm_topic is not None:"
    yield "    for alarm in alarms:"
    yield "        alarm.add_alarm_action(actions.SnsAction(alarm_topic))"


def _metric_argument(alarm: Alarm) -> Iterator[str]:
    if alarm.expression is None:
        yield f"metric={_metric(alarm.metrics[0])},"
        return
    yield "metric=cloudwatch.MathExpression("
    yield f"    expression={_text(alarm.expression)},"
    yield f"    label={_text(alarm.title)},"
    yield f"    period=cdk.Duration.seconds({alarm.period_seconds}),"
    yield "    using_metrics={"
    yield from (f"        {_text(metric.id)}: {_metric(metric)}," for metric in alarm.metrics)
    yield "    },"
    yield "),"


def _metric(metric: Metric) -> str:
    dimensions = ""
    if metric.operation is not None:
        dimensions += f", Operation={_text(metric.operation)}"
    if metric.receiving_region is not None:
        dimensions += f", ReceivingRegion={_text(metric.receiving_region)}"
    return f"self._metric({_text(metric.name)}, {_text(metric.statistic)}{dimensions})"


def _policies(specification: TableSpecification) -> Iterator[str]:
    for name, title, description, allowed in (
        ("service_policy", "ServicePolicy", "What the service may do with its idempotency table", SERVICE_ACTIONS),
        (
            "operator_policy",
            "OperatorPolicy",
            "What an operator's commands may do with the idempotency table",
            OPERATOR_ACTIONS,
        ),
    ):
        yield f"self.{name} = self._policy("
        yield f"    {_text(title)},"
        yield f"    {_text(description)},"
        yield "    ["
        yield from (f"        {_text(action)}," for action in allowed)
        yield "    ],"
        yield ")"
    if specification.kms_key_arn is not None:
        yield "through_the_table = iam.PolicyStatement("
        yield "    actions=["
        yield from (f"        {_text(action)}," for action in KMS_ACTIONS)
        yield "    ],"
        yield f"    resources=[{_text(specification.kms_key_arn)}],"
        yield '    conditions={"StringLike": {"kms:ViaService": "dynamodb.*.amazonaws.com"}},'
        yield ")"
        yield "self.service_policy.add_statements(through_the_table)"
        yield "self.operator_policy.add_statements(through_the_table)"


def _text(value: str) -> str:
    quoted = repr(value)
    return f'"{quoted[1:-1]}"' if quoted[0] == "'" and '"' not in value else quoted
