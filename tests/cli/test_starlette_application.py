"""The configuration of a Starlette application, found by the command line."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware

from idem_middleware.cli.applications import application
from idem_starlette import IdempotencyMiddleware


@pytest.mark.parametrize("path", ["starlette_shop", "starlette_shop:app"])
def test_it_is_the_middlewares(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among others, before anything is started."""
    module = ModuleType("starlette_shop")
    ours = Middleware(IdempotencyMiddleware, store="memory://", caller="shared", lease_seconds=77)
    module.app = Starlette(middleware=[Middleware(GZipMiddleware), ours])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "starlette_shop", module)

    assert application(path).options.lease_seconds == 77
