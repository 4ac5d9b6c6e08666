"""Making a table, and printing the code that makes one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import hcl2
import pytest

from idem_middleware.cli.infrastructure.specification import OPERATOR_ACTIONS, SERVICE_ACTIONS
from idem_middleware.cli.tables import TableState, changes
from idem_middleware.errors import StoreMisconfigured
from idem_middleware.stores.dynamodb.admin import Admin
from idem_middleware.stores.dynamodb.describing import description_of
from tests.cli.conftest import Run, RunJson

KEY = "arn:aws:kms:eu-central-1:123456789012:key/12345678-1234-1234-1234-123456789012"
VARIANTS: dict[str, tuple[str, ...]] = {
    "default": (),
    "provisioned": (
        "--provisioned",
        "500:50",
        "--encryption",
        "aws-owned",
        "--no-recovery",
        "--no-deletion-protection",
    ),
    "tagged": ("--tag", "team=payments", "--tag", 'odd name=${x} "quoted" %{y}', "--table", "orders.idempotency"),
    "own key": ("--encryption", "customer", "--kms-key", KEY),
    "two regions": ("--region", "eu-central-1", "--replica", "eu-west-1", "--tag", "a=b"),
    "by caller": ("--layout", "caller"),
    "by caller in two regions": ("--layout", "caller", "--region", "eu-central-1", "--replica", "eu-west-1"),
    "strong": ("--region", "us-east-1", "--replica", "us-east-2", "--replica", "us-west-2", "--consistency", "strong"),
}


class TestCreating:
    """`table create` and `table describe`."""

    def test_a_new_table_has_what_protects_it(self, run: Run, run_json: RunJson, moto_table: str) -> None:
        """TTL, recovery, deletion protection and tags, on demand."""
        run("table", "create", "--store", moto_table, "--tag", "team=payments")
        told = run_json("table", "describe", "--store", moto_table)
        assert (told["ttl_status"], told["ttl_attribute"]) == ("ENABLED", "ttl")
        assert (told["billing"], told["recovery"], told["deletion_protection"]) == ("on-demand", True, True)
        assert told["tags"] == {"team": "payments"}
        assert told["encryption"] == "aws-owned"

    def test_doing_it_twice_changes_nothing(self, run: Run, moto_table: str) -> None:
        """And asks nothing."""
        run("table", "create", "--store", moto_table)
        assert "is as it should be" in run("table", "create", "--store", moto_table).output

    def test_an_existing_table_is_adapted_after_a_question(self, run: Run, run_json: RunJson, moto_table: str) -> None:
        """What is missing is named first."""
        run("table", "create", "--store", moto_table, "--no-recovery", "--no-deletion-protection", "--no-ttl")
        assert "To do:" in run("table", "create", "--store", moto_table, "--dry-run").output
        asked = run("table", "create", "--store", moto_table, answer="n\n", status=1)
        for words in ("point-in-time recovery", "deletion", "TTL"):
            assert words in asked.output
        assert run_json("table", "describe", "--store", moto_table)["recovery"] is False
        run("table", "create", "--store", moto_table, "--yes")
        told = run_json("table", "describe", "--store", moto_table)
        assert (told["recovery"], told["deletion_protection"], told["ttl_status"]) == (True, True, "ENABLED")

    def test_a_dry_run_does_nothing(self, run: Run, moto_table: str) -> None:
        """There is no table after it."""
        assert "would be created" in run("table", "create", "--store", moto_table, "--dry-run").output
        assert "no such table" in run("table", "describe", "--store", moto_table, status=3).output

    def test_what_can_not_be_done_is_told_and_fails(
        self, run: Run, moto_table: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The rest is done."""
        call = Admin.call

        def refuse(admin: Admin, operation: str, request: Any) -> Any:
            if operation == "update_continuous_backups":
                raise StoreMisconfigured("not allowed", code="AccessDeniedException")
            return call(admin, operation, request)

        monkeypatch.setattr(Admin, "call", refuse)
        told = run("table", "create", "--store", moto_table, status=1).output
        assert "✗  switch point-in-time recovery on: not allowed" in told
        assert "✓  protect it from deletion" in told
        assert "1 of 2 could not be done" in told

    def test_what_is_done_to_a_bare_table(self) -> None:
        """Each thing by a call of its own; nothing twice."""
        bare = TableState(
            table=description_of({"TableStatus": "ACTIVE", "ProvisionedThroughput": {}}),
            encryption="aws-owned",
            recovery=False,
            tags={"team": "payments"},
            untold={},
        )
        wanted: dict[str, Any] = {"on_demand": True, "recovery": True, "deletion_protection": True, "kms": KEY}
        planned = list(changes(bare, "keys", **wanted, tags={"team": "orders"}))
        assert [change.operation for change in planned] == [
            "update_table",
            "update_table",
            "update_table",
            "update_continuous_backups",
            "tag_resource",
        ]
        assert planned[2].request["SSESpecification"] == {"Enabled": True, "SSEType": "KMS", "KMSMasterKeyId": KEY}
        assert "team=orders" in planned[4].what
        off: dict[str, Any] = {"on_demand": None, "recovery": False, "deletion_protection": False, "kms": False}
        assert not list(changes(bare, "keys", **off, tags={"team": "payments"}))

    def test_provisioned_units(self, run: Run, run_json: RunJson, moto_table: str) -> None:
        """As they are given."""
        run("table", "create", "--store", moto_table, "--provisioned", "500:50")
        told = run_json("table", "describe", "--store", moto_table)
        assert (told["billing"], told["write_units"], told["read_units"]) == ("provisioned", 500, 50)

    def test_wrong_units_and_tags_are_sentences(self, run: Run) -> None:
        """With an example of right ones."""
        assert "such as 500:50" in run("table", "create", "--provisioned", "5", status=2).output
        assert "a tag is NAME=VALUE" in run("table", "create", "--tag", "x", status=2).output

    def test_it_reads_well(self, run: Run, moto_table: str) -> None:
        """A row for each property."""
        run("table", "create", "--store", moto_table)
        text = run("table", "describe", "--store", moto_table).output
        for words in ("pk (HASH, S)", "ENABLED, ttl", "on-demand", "deletion protection"):
            assert words in text

    @pytest.mark.dynamodb_local
    def test_an_emulator_without_some_of_it_is_told_so(self, run: Run, run_json: RunJson, dynamodb_local: str) -> None:
        """DynamoDB Local knows neither recovery nor tags."""
        store = f"dynamodb://cli_{id(run)}?region=eu-central-1&endpoint={dynamodb_local}"
        made = run("table", "create", "--store", store, "--tag", "a=b").output
        assert "this endpoint, an emulator, has no such thing" in made
        told = run_json("table", "describe", "--store", store)
        assert told["ttl_status"] == "ENABLED"
        assert set(told["untold"]) == {"recovery", "tags"}
        again = run("table", "create", "--store", store, "--tag", "a=b").output
        assert "Do it?" not in again  # there is nothing to ask about
        assert "is as it should be." in again


def template(run: Run, kind: str, variant: str) -> str:
    return run("table", "template", "--format", kind, *VARIANTS[variant]).output


class TestTemplates:
    """`table template`, checked by the tools that will read it."""

    def test_cfn_lint_finds_nothing_in_cloudformation(self, run: Run, tmp_path: Path) -> None:
        """In no variant."""
        for variant in VARIANTS:
            (tmp_path / f"{variant}.yaml").write_text(template(run, "cloudformation", variant))
        region = ["--regions", "us-east-1", "eu-central-1"]
        tool = Path(sys.executable).with_name("cfn-lint")
        checked = subprocess.run(
            [str(tool), *region, "--", *map(str, sorted(tmp_path.glob("*.yaml")))],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert (checked.returncode, checked.stdout) == (0, ""), checked.stdout + checked.stderr

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_terraform_is_parsed(self, run: Run, variant: str) -> None:
        """And says of the table what was asked for."""
        parsed = hcl2.loads(template(run, "terraform", variant))
        (table,) = [
            found["aws_dynamodb_table"] for found in map(plain, parsed["resource"]) if "aws_dynamodb_table" in found
        ]
        table = table["idempotency"]
        assert table["hash_key"] == "pk"
        assert table.get("range_key") == ("sk" if "by caller" in variant else None)
        assert ("ttl" in table) == (variant != "strong")
        assert len(table.get("replica", [])) == VARIANTS[variant].count("--replica")
        if variant == "tagged":
            assert table["name"] == "orders.idempotency"

    @pytest.mark.skipif(shutil.which("terraform") is None, reason="terraform is not installed")
    def test_terraform_itself_finds_it_well_formed(self, run: Run, tmp_path: Path) -> None:
        """`terraform fmt` has nothing to change; it parses the file for that."""
        for variant in VARIANTS:
            (tmp_path / f"{variant.replace(' ', '_')}.tf").write_text(template(run, "terraform", variant))
        checked = subprocess.run(
            ["terraform", "fmt", "-check", "-diff", str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={"PATH": str(Path(shutil.which("terraform") or "").parent), "HOME": str(tmp_path)},
        )
        assert (checked.returncode, checked.stdout) == (0, ""), checked.stdout + checked.stderr

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_the_cdk_stack_compiles(self, run: Run, variant: str) -> None:
        """`tox -e cdk` synthesises it."""
        compile(template(run, "cdk", variant), "stack.py", "exec")

    @pytest.mark.parametrize("variant", ["default", "two regions"])
    @pytest.mark.parametrize("kind", ["cloudformation", "terraform", "cdk"])
    def test_every_kind_has_all_of_it(self, run: Run, kind: str, variant: str) -> None:
        """Alarms and policies are the same, whatever builds them."""
        text = template(run, kind, variant)
        for metric in (
            "ConditionalCheckFailedRequests",
            "WriteThrottleEvents",
            "SystemErrors",
            "SuccessfulRequestLatency",
        ):
            assert metric in text
        assert ("ReplicationLatency" in text) == (variant == "two regions")
        for action in (*SERVICE_ACTIONS, *OPERATOR_ACTIONS):
            assert action in text

    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            (("--encryption", "customer"), "--kms-key goes with"),
            (("--replica", "eu-west-1"), "need --region"),
            (("--region", "eu-west-1", "--replica", "eu-west-1"), "given twice"),
            (("--region", "eu-west-1", "--replica", "eu-west-2", "--consistency", "strong"), "exactly three regions"),
            (("--region", "a", "--replica", "b", "--provisioned", "5:5"), "on demand"),
            (("--table", "a b"), "a DynamoDB table's name has"),
        ],
        ids=["key", "region", "twice", "strong", "provisioned", "name"],
    )
    def test_what_can_not_be_built_is_a_sentence(self, run: Run, options: tuple[str, ...], sentence: str) -> None:
        """Before anything is printed."""
        assert sentence in run("table", "template", *options, status=2).output


def plain(value: Any) -> Any:
    """Without the quotes that some versions of the parser leave around names and texts, and with blocks unwrapped."""
    if isinstance(value, dict):
        return {plain(name): plain(member) for name, member in value.items() if not str(name).startswith("__")}
    if isinstance(value, list):
        return [plain(member) for member in value]
    return value.strip('"') if isinstance(value, str) else value


def test_the_policies_allow_no_more_than_is_called() -> None:
    """One list, in the store's own module; nothing is deleted by the service, and no table by anybody."""
    assert "dynamodb:DeleteItem" not in SERVICE_ACTIONS
    assert not any(action.endswith(("*", "DeleteTable")) for action in (*SERVICE_ACTIONS, *OPERATOR_ACTIONS))
