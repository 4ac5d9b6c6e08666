"""As a CloudFormation template, in YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from idem_middleware.cli.infrastructure.specification import (
    KMS_ACTIONS,
    OPERATOR_ACTIONS,
    SERVICE_ACTIONS,
    Alarm,
    Metric,
    TableSpecification,
    alarms,
)
from idem_middleware.stores.dynamodb.layouts import attribute_definitions, created_index, key_schema
from idem_middleware.stores.dynamodb.table import ProvisionedThroughput

__all__ = ["cloudformation", "cloudformation_template"]

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9 _./-]*(?::[A-Za-z]+)*(?:::[A-Za-z0-9]+)*")
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def cloudformation_template(specification: TableSpecification) -> str:
    """The template as text."""
    return "\n".join(_yaml(cloudformation(specification))) + "\n"


def cloudformation(specification: TableSpecification) -> dict[str, Any]:
    """The template as data."""
    resources: dict[str, Any] = {
        "Table": _global_table(specification) if specification.replicas else _table(specification)
    }
    for alarm in alarms(specification):
        resources[f"{alarm.title}Alarm"] = _alarm(alarm, specification)
    resources["ServicePolicy"] = _policy(
        "What the service may do with its idempotency table", SERVICE_ACTIONS, specification
    )
    resources["OperatorPolicy"] = _policy(
        "What an operator's commands may do with the idempotency table", OPERATOR_ACTIONS, specification
    )
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"Idempotency table {specification.name}, its alarms and policies",
        "Parameters": {
            "AlarmTopicArn": {
                "Type": "String",
                "Default": "",
                "Description": "An SNS topic that is told of alarms; none if left empty",
            }
        },
        "Conditions": {"HasAlarmTopic": {"Fn::Not": [{"Fn::Equals": [{"Ref": "AlarmTopicArn"}, ""]}]}},
        "Resources": resources,
        "Outputs": {
            "TableName": {"Value": {"Ref": "Table"}},
            "TableArn": {"Value": {"Fn::GetAtt": ["Table", "Arn"]}},
            "ServicePolicyArn": {"Value": {"Ref": "ServicePolicy"}},
            "OperatorPolicyArn": {"Value": {"Ref": "OperatorPolicy"}},
        },
    }


def _retained(kind: str, properties: dict[str, Any]) -> dict[str, Any]:
    return {"Type": kind, "DeletionPolicy": "Retain", "UpdateReplacePolicy": "Retain", "Properties": properties}


def _keys(specification: TableSpecification) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "TableName": specification.name,
        "AttributeDefinitions": attribute_definitions(specification.layout, with_index=specification.index),
        "KeySchema": key_schema(specification.layout),
    }
    if specification.index:
        properties["LocalSecondaryIndexes"] = [created_index()]
    if isinstance(specification.billing, ProvisionedThroughput):
        properties["BillingMode"] = "PROVISIONED"
        properties["ProvisionedThroughput"] = {
            "ReadCapacityUnits": specification.billing.read_units,
            "WriteCapacityUnits": specification.billing.write_units,
        }
    else:
        properties["BillingMode"] = "PAY_PER_REQUEST"
    if specification.ttl:
        properties["TimeToLiveSpecification"] = {"AttributeName": "ttl", "Enabled": True}
    return properties


def _tags(specification: TableSpecification) -> dict[str, Any]:
    if not specification.tags:
        return {}
    return {"Tags": [{"Key": name, "Value": value} for name, value in specification.tags.items()]}


def _table(specification: TableSpecification) -> dict[str, Any]:
    encryption: dict[str, Any] = {"SSEEnabled": specification.encryption != "aws-owned"}
    if specification.encryption != "aws-owned":
        encryption["SSEType"] = "KMS"
    if specification.kms_key_arn is not None:
        encryption["KMSMasterKeyId"] = specification.kms_key_arn
    return _retained(
        "AWS::DynamoDB::Table",
        {
            **_keys(specification),
            "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": specification.recovery},
            "DeletionProtectionEnabled": specification.deletion_protection,
            "SSESpecification": encryption,
            **_tags(specification),
        },
    )


def _global_table(specification: TableSpecification) -> dict[str, Any]:
    properties = _keys(specification)
    encryption: dict[str, Any] = {"SSEEnabled": specification.encryption != "aws-owned"}
    if specification.encryption != "aws-owned":
        encryption["SSEType"] = "KMS"
    properties["SSESpecification"] = encryption
    if specification.consistency == "strong":
        properties["MultiRegionConsistency"] = "STRONG"
    else:
        properties["StreamSpecification"] = {"StreamViewType": "NEW_AND_OLD_IMAGES"}
    properties["Replicas"] = [
        {
            "Region": region,
            "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": specification.recovery},
            "DeletionProtectionEnabled": specification.deletion_protection,
            **_tags(specification),
        }
        for region in (specification.region, *specification.replicas)
    ]
    return _retained("AWS::DynamoDB::GlobalTable", properties)


def _alarm(alarm: Alarm, specification: TableSpecification) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "AlarmName": f"{specification.name}-{alarm.name}",
        "AlarmDescription": alarm.description,
        "ComparisonOperator": "GreaterThanThreshold",
        "Threshold": alarm.threshold,
        "EvaluationPeriods": alarm.within,
        "DatapointsToAlarm": alarm.periods,
        "TreatMissingData": "notBreaching",
        "AlarmActions": {"Fn::If": ["HasAlarmTopic", [{"Ref": "AlarmTopicArn"}], {"Ref": "AWS::NoValue"}]},
    }
    if alarm.expression is None:
        metric = alarm.metrics[0]
        properties |= {
            "Namespace": "AWS/DynamoDB",
            "MetricName": metric.name,
            "Dimensions": _dimensions(metric),
            "Statistic": metric.statistic,
            "Period": alarm.period_seconds,
        }
    else:
        properties["Metrics"] = [
            *(_query(metric, alarm) for metric in alarm.metrics),
            {"Id": "result", "Expression": alarm.expression, "Label": alarm.title, "ReturnData": True},
        ]
    return {"Type": "AWS::CloudWatch::Alarm", "Properties": properties}


def _query(metric: Metric, alarm: Alarm) -> dict[str, Any]:
    return {
        "Id": metric.id,
        "ReturnData": False,
        "MetricStat": {
            "Metric": {"Namespace": "AWS/DynamoDB", "MetricName": metric.name, "Dimensions": _dimensions(metric)},
            "Period": alarm.period_seconds,
            "Stat": metric.statistic,
        },
    }


def _dimensions(metric: Metric) -> list[dict[str, Any]]:
    dimensions: list[dict[str, Any]] = [{"Name": "TableName", "Value": {"Ref": "Table"}}]
    if metric.operation is not None:
        dimensions.append({"Name": "Operation", "Value": metric.operation})
    if metric.receiving_region is not None:
        dimensions.append({"Name": "ReceivingRegion", "Value": metric.receiving_region})
    return dimensions


def _policy(description: str, actions: Sequence[str], specification: TableSpecification) -> dict[str, Any]:
    resources: list[object] = [{"Fn::GetAtt": ["Table", "Arn"]}]
    if specification.index:
        resources.append({"Fn::Sub": "${Table.Arn}/index/*"})
    statements: list[dict[str, Any]] = [
        {"Sid": "Table", "Effect": "Allow", "Action": list(actions), "Resource": resources}
    ]
    if specification.kms_key_arn is not None:
        statements.append(
            {
                "Sid": "KeyByWayOfTheTable",
                "Effect": "Allow",
                "Action": list(KMS_ACTIONS),
                "Resource": specification.kms_key_arn,
                "Condition": {"StringLike": {"kms:ViaService": "dynamodb.*.amazonaws.com"}},
            }
        )
    return {
        "Type": "AWS::IAM::ManagedPolicy",
        "Properties": {
            "Description": description,
            "PolicyDocument": {"Version": "2012-10-17", "Statement": statements},
        },
    }


# --- YAML, of the few kinds of values above ---------------------------------------------------------------------------


def _yaml(value: object, indent: int = 0) -> Iterator[str]:
    space = "  " * indent
    if isinstance(value, Mapping):
        for name, member in value.items():
            yield from _member(f"{space}{_scalar(name)}:", member, indent)
    elif isinstance(value, list):
        for member in value:
            lines = list(_yaml(member, indent + 1))
            yield f"{space}- {lines[0].strip()}"
            yield from lines[1:]
    else:
        yield f"{space}{_scalar(value)}"


def _member(head: str, member: object, indent: int) -> Iterator[str]:
    if isinstance(member, (Mapping, list)) and member:
        yield head
        yield from _yaml(member, indent + 1)
    else:
        yield f"{head} {_scalar(member)}"


def _scalar(value: object) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS and not value.endswith(" "):
        return value
    return json.dumps(value, ensure_ascii=False)
