"""Where the tests find Amazon's DynamoDB Local, which they run as the product's own users do."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from idem_middleware.testing.dynamodb_local import DynamoDBLocal, NotAvailable
from tests.support.processes import ROOT

__all__ = ["FOLDER_VARIABLE", "DynamoDBLocal", "DynamoDBLocalMissingError", "NotAvailable", "locate"]

FOLDER_VARIABLE = "DYNAMODB_LOCAL_DIR"
_DEFAULT_FOLDER = ROOT / ".dynamodb-local"
_JAR = "DynamoDBLocal.jar"


class DynamoDBLocalMissingError(RuntimeError):
    """It is not on this machine; the message says how it gets there."""


def locate() -> Path:
    """Find the folder of DynamoDB Local.

    Raises:
        DynamoDBLocalMissingError: no Java, or not fetched.

    """
    if shutil.which("java") is None:
        raise DynamoDBLocalMissingError("DynamoDB Local needs java, version 17 or later")
    folder = Path(os.environ.get(FOLDER_VARIABLE) or _DEFAULT_FOLDER)
    if not (folder / _JAR).is_file():
        raise DynamoDBLocalMissingError(
            f"DynamoDB Local is not in {folder}: run `python scripts/fetch_dynamodb_local.py`, or set {FOLDER_VARIABLE}"
        )
    return folder.resolve()
