"""As a Terraform module for the AWS provider, from version 5 on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

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

__all__ = ["terraform_module"]

_HEAD = """\
terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= %s"
    }
  }
}

variable "alarm_topic_arn" {
  type        = string
  default     = null
  description = "An SNS topic that is told of alarms; none if null"
}
"""
_KEY_SETTINGS = {"HASH": "hash_key", "RANGE": "range_key"}
_OLDEST_PROVIDER = "5.0"
_OLDEST_PROVIDER_WITH_STRONG_CONSISTENCY = "6.4"


def terraform_module(specification: TableSpecification) -> str:
    """The module as text, formatted as `terraform fmt` would."""
    strong = bool(specification.replicas) and specification.consistency == "strong"
    parts = [_HEAD % (_OLDEST_PROVIDER_WITH_STRONG_CONSISTENCY if strong else _OLDEST_PROVIDER)]
    parts.append("\n".join(_table(specification)) + "\n")
    parts += ["\n".join(_alarm(alarm)) + "\n" for alarm in alarms(specification)]
    for name, actions in (("service", SERVICE_ACTIONS), ("operator", OPERATOR_ACTIONS)):
        parts.append("\n".join(_policy(name, actions, specification)) + "\n")
    parts.append(_OUTPUTS)
    return "\n".join(parts)


_OUTPUTS = """\
output "table_name" {
  value = aws_dynamodb_table.idempotency.name
}

output "service_policy_arn" {
  value = aws_iam_policy.service.arn
}

output "operator_policy_arn" {
  value = aws_iam_policy.operator.arn
}
"""


def _table(specification: TableSpecification) -> Iterator[str]:
    yield 'resource "aws_dynamodb_table" "idempotency" {'
    settings: list[tuple[str, str]] = [("name", _text(specification.name))]
    if isinstance(specification.billing, ProvisionedThroughput):
        settings += [
            ("billing_mode", _text("PROVISIONED")),
            ("read_capacity", str(specification.billing.read_units)),
            ("write_capacity", str(specification.billing.write_units)),
        ]
    else:
        settings.append(("billing_mode", _text("PAY_PER_REQUEST")))
    settings += [
        (_KEY_SETTINGS[key["KeyType"]], _text(key["AttributeName"])) for key in key_schema(specification.layout)
    ]
    settings.append(("deletion_protection_enabled", _flag(specification.deletion_protection)))
    if specification.replicas and specification.consistency == "eventual":
        settings += [("stream_enabled", "true"), ("stream_view_type", _text("NEW_AND_OLD_IMAGES"))]
    yield from _aligned(settings, 1)
    for attribute in attribute_definitions(specification.layout, with_index=specification.index):
        written = [("name", _text(attribute["AttributeName"])), ("type", _text(attribute["AttributeType"]))]
        yield from _block("attribute", written)
    if specification.index:
        index = created_index()
        yield from _block(
            "local_secondary_index",
            [
                ("name", _text(index["IndexName"])),
                ("range_key", _text(index["KeySchema"][1]["AttributeName"])),
                ("projection_type", _text(index["Projection"]["ProjectionType"])),
            ],
        )
    if specification.ttl:
        yield from _block("ttl", [("attribute_name", _text("ttl")), ("enabled", "true")])
    yield from _block("point_in_time_recovery", [("enabled", _flag(specification.recovery))])
    encryption = [("enabled", _flag(specification.encryption != "aws-owned"))]
    if specification.kms_key_arn is not None:
        encryption.append(("kms_key_arn", _text(specification.kms_key_arn)))
    yield from _block("server_side_encryption", encryption)
    for region in specification.replicas:
        replica = [
            ("region_name", _text(region)),
            ("point_in_time_recovery", _flag(specification.recovery)),
            ("propagate_tags", "true"),
        ]
        if specification.consistency == "strong":
            replica.append(("consistency_mode", _text("STRONG")))
        yield from _block("replica", replica)
    if specification.tags:
        yield ""
        yield "  tags = {"
        yield from _aligned([(_text(name), _text(value)) for name, value in specification.tags.items()], 2)
        yield "  }"
    yield from _block("lifecycle", [("prevent_destroy", _flag(specification.deletion_protection))])
    yield "}"


def _alarm(alarm: Alarm) -> Iterator[str]:
    yield f'resource "aws_cloudwatch_metric_alarm" "{alarm.name.replace("-", "_")}" {{'
    settings = [
        ("alarm_name", f'"${{aws_dynamodb_table.idempotency.name}}-{alarm.name}"'),
        ("alarm_description", _text(alarm.description)),
        ("comparison_operator", _text("GreaterThanThreshold")),
        ("threshold", f"{alarm.threshold:g}"),
        ("evaluation_periods", str(alarm.within)),
        ("datapoints_to_alarm", str(alarm.periods)),
        ("treat_missing_data", _text("notBreaching")),
        ("alarm_actions", "var.alarm_topic_arn == null ? [] : [var.alarm_topic_arn]"),
    ]
    if alarm.expression is None:
        metric = alarm.metrics[0]
        settings += [
            ("namespace", _text("AWS/DynamoDB")),
            ("metric_name", _text(metric.name)),
            ("statistic", _text(metric.statistic)),
            ("period", str(alarm.period_seconds)),
        ]
        yield from _aligned(settings, 1)
        yield ""
        yield from _dimensions(metric, 1)
    else:
        yield from _aligned(settings, 1)
        for metric in alarm.metrics:
            yield from _query(metric, alarm)
        yield from _block(
            "metric_query",
            [
                ("id", _text("result")),
                ("expression", _text(alarm.expression)),
                ("label", _text(alarm.title)),
                ("return_data", "true"),
            ],
        )
    yield "}"


def _query(metric: Metric, alarm: Alarm) -> Iterator[str]:
    yield ""
    yield "  metric_query {"
    yield from _aligned([("id", _text(metric.id)), ("return_data", "false")], 2)
    yield ""
    yield "    metric {"
    yield from _aligned(
        [
            ("namespace", _text("AWS/DynamoDB")),
            ("metric_name", _text(metric.name)),
            ("stat", _text(metric.statistic)),
            ("period", str(alarm.period_seconds)),
        ],
        3,
    )
    yield ""
    yield from _dimensions(metric, 3)
    yield "    }"
    yield "  }"


def _dimensions(metric: Metric, depth: int) -> Iterator[str]:
    space = "  " * depth
    dimensions = [("TableName", "aws_dynamodb_table.idempotency.name")]
    if metric.operation is not None:
        dimensions.append(("Operation", _text(metric.operation)))
    if metric.receiving_region is not None:
        dimensions.append(("ReceivingRegion", _text(metric.receiving_region)))
    yield f"{space}dimensions = {{"
    yield from _aligned(dimensions, depth + 1)
    yield f"{space}}}"


def _policy(name: str, actions: Sequence[str], specification: TableSpecification) -> Iterator[str]:
    yield f'data "aws_iam_policy_document" "{name}" {{'
    yield "  statement {"
    yield "    actions = ["
    yield from (f"      {_text(action)}," for action in actions)
    yield "    ]"
    index = ', "${aws_dynamodb_table.idempotency.arn}/index/*"' if specification.index else ""
    yield f"    resources = [aws_dynamodb_table.idempotency.arn{index}]"
    yield "  }"
    if specification.kms_key_arn is not None:
        yield ""
        yield "  statement {"
        yield "    actions = ["
        yield from (f"      {_text(action)}," for action in KMS_ACTIONS)
        yield "    ]"
        yield f"    resources = [{_text(specification.kms_key_arn)}]"
        yield ""
        yield "    condition {"
        yield from _aligned(
            [
                ("test", _text("StringLike")),
                ("variable", _text("kms:ViaService")),
                ("values", '["dynamodb.*.amazonaws.com"]'),
            ],
            3,
        )
        yield "    }"
        yield "  }"
    yield "}"
    yield ""
    yield f'resource "aws_iam_policy" "{name}" {{'
    yield from _aligned(
        [
            ("name", f'"${{aws_dynamodb_table.idempotency.name}}-{name}"'),
            ("policy", f"data.aws_iam_policy_document.{name}.json"),
        ],
        1,
    )
    yield "}"


# --- HCL --------------------------------------------------------------------------------------------------------------


def _block(name: str, settings: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield ""
    yield f"  {name} {{"
    yield from _aligned(settings, 2)
    yield "  }"


def _aligned(settings: Sequence[tuple[str, str]], depth: int) -> Iterator[str]:
    width = max(len(name) for name, _ in settings)
    for name, value in settings:
        yield f"{'  ' * depth}{name:<{width}} = {value}"


def _text(value: str) -> str:
    """A string; `${` and `%{` would begin a template."""
    return json.dumps(value, ensure_ascii=False).replace("${", "$${").replace("%{", "%%{")


def _flag(value: bool) -> str:  # noqa: FBT001  # there is nothing else that it could be
    return "true" if value else "false"
