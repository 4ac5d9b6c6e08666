"""The printed stack, synthesised by the CDK: `tox -e cdk`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from idem_middleware.cli.infrastructure.specification import OPERATOR_ACTIONS, SERVICE_ACTIONS
from idem_middleware.stores.dynamodb.layouts import key_schema
from tests.cli.conftest import Run
from tests.cli.test_table import VARIANTS, template

pytestmark = pytest.mark.cdk


def synthesised(run: Run, variant: str, folder: Path) -> dict[str, Any]:
    (folder / "stack.py").write_text(template(run, "cdk", variant))
    made = subprocess.run(
        [sys.executable, "stack.py"],
        cwd=folder,
        env={**os.environ, "CDK_OUTDIR": str(folder / "out")},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert made.returncode == 0, made.stderr
    document: dict[str, Any] = json.loads((folder / "out" / "Idempotency.template.json").read_text())
    return document


def properties(document: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [found["Properties"] for found in document["Resources"].values() if found["Type"] == kind]


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_synthesises_to_the_same_table(run: Run, variant: str, tmp_path: Path) -> None:
    """With the alarms and the policies that the other tools get."""
    document = synthesised(run, variant, tmp_path)
    (table,) = properties(document, "AWS::DynamoDB::GlobalTable")
    assert table["KeySchema"] == key_schema("caller" if "by caller" in variant else "flat")
    assert ("TimeToLiveSpecification" in table) == (variant != "strong")
    assert len(table["Replicas"]) == 1 + VARIANTS[variant].count("--replica")
    recovers = table["Replicas"][0]["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"]
    assert recovers == ("--no-recovery" not in VARIANTS[variant])
    assert len(properties(document, "AWS::CloudWatch::Alarm")) == 4 + VARIANTS[variant].count("--replica")
    policies = properties(document, "AWS::IAM::ManagedPolicy")
    allowed = [policy["PolicyDocument"]["Statement"][0]["Action"] for policy in policies]
    assert allowed == [list(SERVICE_ACTIONS), list(OPERATOR_ACTIONS)]
    tool = Path(sys.executable).with_name("cfn-lint")
    if tool.exists():
        checked = subprocess.run(
            [str(tool), str(tmp_path / "out" / "Idempotency.template.json")],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert checked.returncode == 0, checked.stdout
