"""A look into the table from outside of the product, and a hand to turn its clocks."""

from __future__ import annotations

from typing import Any

from boto3.session import Session

REGION = "eu-central-1"


class Table:
    """The records of one table, as DynamoDB has them."""

    def __init__(self, name: str, endpoint: str) -> None:
        self.name = name
        self._client: Any = Session().client("dynamodb", region_name=REGION, endpoint_url=endpoint)

    def item(self, pk: str) -> dict[str, Any] | None:
        """Give the item that stands there."""
        item: dict[str, Any] | None = self._client.get_item(
            TableName=self.name, Key={"pk": {"S": pk}}, ConsistentRead=True
        ).get("Item")
        return item

    def record(self, pk: str) -> dict[str, Any] | None:
        """Give the record that stands there, its attributes without their types."""
        item = self.item(pk)
        return None if item is None else {name: next(iter(typed.values())) for name, typed in item.items()}

    def items(self) -> set[str]:
        """Give the names of all that stands in the table."""
        pages = self._client.get_paginator("scan").paginate(
            TableName=self.name, ProjectionExpression="pk", ConsistentRead=True
        )
        return {item["pk"]["S"] for page in pages for item in page["Items"]}

    def let_pass(self, pk: str, seconds: float) -> None:
        """Make the record older, as if so much time had passed since it was written.

        The sweeper's own instant stays, so that the item does. Nothing else of it changes, above all not its version:
        its owner would not notice.
        """
        times = ("created_at", "expires_at", "bound_until")
        self._client.update_item(
            TableName=self.name,
            Key={"pk": {"S": pk}},
            UpdateExpression="SET " + ", ".join(f"#{name} = #{name} - :seconds" for name in times),
            ConditionExpression="attribute_exists(pk)",
            ExpressionAttributeNames={f"#{name}": name for name in times},
            ExpressionAttributeValues={":seconds": {"N": str(seconds)}},
        )

    def overwrite(self, pk: str, attribute: str, value: dict[str, Any]) -> None:
        """Put something else into one attribute."""
        self._client.update_item(
            TableName=self.name,
            Key={"pk": {"S": pk}},
            UpdateExpression="SET #attribute = :value",
            ConditionExpression="attribute_exists(pk)",
            ExpressionAttributeNames={"#attribute": attribute},
            ExpressionAttributeValues={":value": value},
        )

    def remove(self, pk: str, attribute: str) -> None:
        """Take one attribute away."""
        self._client.update_item(
            TableName=self.name,
            Key={"pk": {"S": pk}},
            UpdateExpression="REMOVE #attribute",
            ConditionExpression="attribute_exists(pk)",
            ExpressionAttributeNames={"#attribute": attribute},
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
