"""A store named by a URL: `memory://`, or `dynamodb://TABLE?region=...`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from idem_middleware.errors import ConfigurationError
from idem_middleware.stores.base import Store
from idem_middleware.stores.dynamodb import DynamoDBStore
from idem_middleware.stores.dynamodb.table import DEFAULT_TABLE
from idem_middleware.stores.memory import MemoryStore
from idem_middleware.stores.regional import RegionalStore

__all__ = ["store_from_url", "store_of"]


def store_of(store: Store | str) -> Store:
    """A store, or the one that a URL names.

    Raises:
        ConfigurationError: it is neither, or a wrong URL.
    """
    if isinstance(store, str):
        return store_from_url(store)
    given: object = store
    if not all(hasattr(given, name) for name in ("clock", "create", "swap", "load")):
        wanted = "a store or its URL, such as 'dynamodb://TABLE?region=…' or 'memory://'"
        raise ConfigurationError([f"store must be {wanted}, not of type {type(given).__name__}"])
    return store


def store_from_url(url: str) -> Store:
    """Make the store that a URL names. Nothing is connected yet.

        memory://?max_entries=1000&max_bytes=10000000
        dynamodb://TABLE?region=eu-central-1&endpoint=http://127.0.0.1:8000&transport=lean&layout=caller
        dynamodb://TABLE?regions=eu-central-1,us-east-1&evacuated=us-east-1
        dynamodb://TABLE?audit_table=AUDIT_TABLE&audit_seconds=7776000

    Every part may be left out. The URL holds no secrets: credentials are found as boto3 finds them.

    Raises:
        ConfigurationError: unknown schemes and parameters (with the nearest right name) and wrong values, all at once.

    """
    if not isinstance(url, str):
        raise ConfigurationError([f"a store's URL is text, not of type {type(url).__name__}"])
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ConfigurationError(["the store's URL is not a URL"]) from None
    make = _SCHEMES.get(parts.scheme)
    if make is None or "://" not in url:
        known = ", ".join(f"{scheme}://" for scheme in _SCHEMES)
        # Only the scheme is repeated: what follows may be the URL of something else, with its password.
        scheme = parts.scheme or url.partition(":")[0] if ":" in url else ""
        given = f", not {scheme}://" if scheme.isalnum() else ""
        raise ConfigurationError([f"a store's URL begins with one of {known}{given}{_near(scheme, _SCHEMES)}"])
    return make(parts)


def _memory_store(parts: SplitResult) -> Store:
    problems = ["a memory:// URL has no host or path"] if parts.netloc or parts.path.strip("/") else []
    given = _parameters(parts, ("max_entries", "max_bytes"), problems)
    bounds: dict[str, Any] = {}
    for name, value in given.items():
        if value.isascii() and value.isdigit() and int(value) >= 1:
            bounds[name] = int(value)
        else:
            problems.append(f"{name} must be a whole number, 1 or more, not {value!r}")
    if problems:
        raise ConfigurationError(problems)
    return MemoryStore(**bounds)


def _dynamodb_store(parts: SplitResult) -> Store:
    problems = []
    if "@" in parts.netloc:
        problems.append("credentials don't belong into a store's URL: boto3 finds them by itself")
    if parts.path.strip("/"):
        problems.append("a dynamodb:// URL has no path: it is dynamodb://TABLE")
    known = ("region", "regions", "evacuated", "endpoint", "transport", "layout", "audit_table", "audit_seconds")
    given: dict[str, Any] = _parameters(parts, known, problems)
    problems += [f"{name} has no value" for name, value in given.items() if not value]
    if "regions" in given and "region" in given:
        problems.append("give region (all is there) or regions (each key has its home in one of them), not both")
    if given.get("audit_seconds"):
        try:
            given["audit_seconds"] = float(given["audit_seconds"])
        except ValueError:
            problems.append(f"audit_seconds must be a number, not {given['audit_seconds']!r}")
    if "evacuated" in given and "regions" not in given:
        problems.append("evacuated needs regions, among which keys have their homes")
    if problems:
        raise ConfigurationError(problems)
    table = parts.netloc or DEFAULT_TABLE
    return _regional_store(table, given) if "regions" in given else DynamoDBStore(table, **given)


def _regional_store(table: str, given: dict[str, Any]) -> Store:
    regions = _words(given.pop("regions"))
    evacuated = _words(given.pop("evacuated", ""))
    endpoint: str | None = given.pop("endpoint", None)
    endpoints = {} if endpoint is None else dict.fromkeys(regions, endpoint)
    return RegionalStore(table, regions, evacuated=evacuated, endpoints=endpoints, **given)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


_SCHEMES: dict[str, Callable[[SplitResult], Store]] = {"memory": _memory_store, "dynamodb": _dynamodb_store}


def _parameters(parts: SplitResult, known: Iterable[str], problems: list[str]) -> dict[str, str]:
    """The URL's parameters; what is wrong with them is added to `problems`."""
    found: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in known:
            problems.append(f"a {parts.scheme}:// URL has no parameter {name}{_near(name, known)}")
        elif name in found:
            problems.append(f"{name} is given twice")
        else:
            found[name] = value
    if parts.fragment:
        problems.append("a store's URL has no fragment (#)")
    return found


def _near(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""
