"""The routes that differ from `/probe` in their protection, the same in every framework."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from tests.probe.answers import principal


class RequestWithHeaders(Protocol):
    """What the requests of all frameworks have in common."""

    @property
    def headers(self) -> Any:
        """The headers, by name in any case."""
        ...


def tenant(request: RequestWithHeaders) -> str | None:
    """The caller of `/tenant`."""
    value: str | None = request.headers.get("X-Tenant")
    return value


def bearer(request: RequestWithHeaders) -> str | None:
    """The caller of `/login`."""
    return principal(request.headers.get("Authorization"))


# Routes protected by the framework's per-view way, with options of their own on top of the probe's.
OWN_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "optional": {"require_key": False},
    "decorated": {"retention_seconds": 2},
    "tenant": {"caller": tenant},
    "login": {"caller": bearer},
    "body-key": {"key": "detail.orderId", "payload": "detail"},
}
