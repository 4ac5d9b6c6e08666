"""Settings of a DynamoDB store for a machine that is busy with other tests.

The product's own time-outs are about a second, so that a request fails soon. Where such a failure is not what a test is
about, a slow machine must not look like one.
"""

from __future__ import annotations

from typing import Any

from botocore.config import Config

__all__ = ["patient"]


def patient(**more: Any) -> dict[str, Any]:
    """Keyword arguments of `DynamoDBStore`, `more` among them."""
    return {"client_config": Config(connect_timeout=15, read_timeout=30), "deadline_seconds": 90.0, **more}
