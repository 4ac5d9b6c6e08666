"""What is mutated, and which tests must notice: the cheapest and nearest first."""

from __future__ import annotations

__all__ = ["TESTS"]

_CORE = "tests/core/test_"
_STORES = "tests/stores/test_"
_DYNAMODB = "idem_middleware.stores.dynamodb"

TESTS: dict[str, tuple[str, ...]] = {
    "idem_middleware.decisions": (
        f"{_CORE}decisions.py",
        f"{_CORE}transitions.py",
        f"{_CORE}model.py",
        f"{_CORE}drivers.py",
    ),
    "idem_middleware.records": (
        "tests/project/test_documentation.py",  # the names of the table's edges are drawn there
        f"{_CORE}transitions.py",
        f"{_CORE}decisions.py",
        f"{_STORES}items.py",
        f"{_STORES}register.py",
        f"{_STORES}transports.py",
    ),
    "idem_middleware.transitions": (
        f"{_CORE}transitions.py",
        f"{_CORE}decisions.py",
        f"{_CORE}model.py",
        f"{_CORE}drivers.py",
    ),
    "idem_middleware.keys": (f"{_CORE}keys.py", f"{_CORE}identity.py"),
    "idem_middleware.fingerprint": (
        f"{_CORE}fingerprint.py",
        f"{_CORE}identity.py",
        f"{_CORE}canonical_json.py",
        f"{_CORE}canonical_query.py",
        f"{_CORE}canonical_multipart.py",
    ),
    f"{_DYNAMODB}.requests": (f"{_STORES}requests.py", f"{_STORES}items.py", f"{_STORES}dynamodb.py"),
    f"{_DYNAMODB}.items": (f"{_STORES}items.py", f"{_STORES}requests.py", f"{_STORES}dynamodb.py"),
}
