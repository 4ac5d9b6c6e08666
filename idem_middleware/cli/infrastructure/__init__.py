"""The table, its alarms and its two policies as infrastructure code. Pure: text from a specification."""

from __future__ import annotations

from collections.abc import Callable

from idem_middleware.cli.infrastructure.cdk import cdk_module
from idem_middleware.cli.infrastructure.cloudformation import cloudformation_template
from idem_middleware.cli.infrastructure.specification import AlarmSettings, TableSpecification
from idem_middleware.cli.infrastructure.terraform import terraform_module

__all__ = ["RENDERERS", "AlarmSettings", "TableSpecification"]

RENDERERS: dict[str, Callable[[TableSpecification], str]] = {
    "cloudformation": cloudformation_template,
    "terraform": terraform_module,
    "cdk": cdk_module,
}
"""What `table template --format` offers."""
