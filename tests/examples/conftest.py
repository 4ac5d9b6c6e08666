"""A payment provider for the example apps; and what these tests need to run at all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from example_apps.demo.provider import ProviderServer

# The examples are used from the checkout; where a built wheel is tested, they are not there.
_HAS_EXAMPLES = find_spec("example_apps") is not None
_HAS_DEMO_EXTRA = all(map(find_spec, ("flask_cors", "httpx", "moto", "rich", "starlette", "uvicorn")))

collect_ignore = [] if _HAS_DEMO_EXTRA else ["test_demo.py"]
collect_ignore_glob = [] if _HAS_EXAMPLES else ["test_*.py"]


@pytest.fixture
def provider() -> Iterator[ProviderServer]:
    """A provider that listens on a port of its own."""
    from example_apps.demo.provider import ProviderServer  # noqa: PLC0415  # may be missing, see above

    with ProviderServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
