"""What `import idem_middleware` offers."""

from __future__ import annotations

import subprocess
import sys

import pytest

import idem_middleware


def test_every_name_is_there() -> None:
    """Those that are promised, those that are found, those that are shown."""
    assert list(idem_middleware._HOMES) == idem_middleware.__all__
    assert set(idem_middleware.__all__) <= set(dir(idem_middleware))
    for name in idem_middleware.__all__:
        assert getattr(idem_middleware, name).__module__.startswith("idem_middleware.")


def test_another_name_is_an_attribute_error() -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match="no attribute 'Missing'"):
        _ = idem_middleware.Missing


def test_a_process_loads_what_it_uses() -> None:
    """No SDK for a store in memory, and no event loop where everything blocks."""
    code = (
        "import sys; from idem_middleware import Engine, MemoryStore, Request, Response;"
        "request = Request(method='POST', path='/', headers=(('Idempotency-Key', 'key'),));"
        "Engine(MemoryStore()).run(request, lambda lease: Response(201));"
        "print([name for name in ('boto3', 'botocore', 'asyncio') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert shown.stdout.strip() == "[]"
