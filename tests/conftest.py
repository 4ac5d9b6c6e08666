"""Fixtures for all tests, and what keeps them away from the developer's own AWS account."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.dynamodb_local import DynamoDBLocal, DynamoDBLocalMissingError, locate

# Any test file or folder whose name contains this word needs the import package beside it.
_NEEDED_BY_NAME = {
    "starlette": "starlette",
    "fastapi": "fastapi",
    "django": "django",
    "drf": "rest_framework",
    "flask": "flask",
}

# Set on CI: what a developer without Java may skip must not be skipped there in silence.
REQUIRE_VARIABLE = "IDEM_REQUIRE_DYNAMODB_LOCAL"


# A property holds or not; how long an example takes on a busy machine says nothing. On CI the examples are the same
# every time: what is judged there is the change. Every run elsewhere, and `tox -e fuzz`, looks for new ones.
settings.register_profile("no deadlines", deadline=None, derandomize=os.environ.get("CI") == "true")
settings.load_profile("no deadlines")


def pytest_configure(config: pytest.Config) -> None:
    """Give every AWS client made in the tests credentials that open nothing, and one region."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(
        # DynamoDB Local takes letters and digits only.
        AWS_ACCESS_KEY_ID="testing",
        AWS_SECRET_ACCESS_KEY="testing",
        AWS_DEFAULT_REGION="us-east-1",
        AWS_EC2_METADATA_DISABLED="true",
        AWS_CONFIG_FILE=os.devnull,
        AWS_SHARED_CREDENTIALS_FILE=os.devnull,
    )
    # The tests' servers are on loopback; a proxy meant for the outside must not get between.
    for name in [name for name in os.environ if name.lower() in ("http_proxy", "https_proxy", "all_proxy")]:
        del os.environ[name]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the tests of a framework that is not installed: each adapter must work without the others."""
    words = collection_path.stem.split("_")
    if any(word in words and find_spec(package) is None for word, package in _NEEDED_BY_NAME.items()):
        return True
    return None


@pytest.fixture(scope="session")
def dynamodb_local() -> Iterator[str]:
    """The URL of a DynamoDB Local of this test process's own; it starts with the first test that asks for it.

    One for each test process rather than one for all: nothing has to agree on who starts and stops it, and a
    worker that dies takes none away from the others. Tests must use tables of their own.
    """
    try:
        folder = locate()
    except DynamoDBLocalMissingError as missing:
        if os.environ.get(REQUIRE_VARIABLE) == "1":
            pytest.fail(f"{REQUIRE_VARIABLE}=1, but {missing}", pytrace=False)
        pytest.skip(str(missing))
    with DynamoDBLocal(folder) as local:
        yield local.url
