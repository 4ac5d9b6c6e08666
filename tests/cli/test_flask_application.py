"""The configuration of a Flask application, found by the command line."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from flask import Flask

from idem_flask import Idempotency
from idem_middleware.cli.applications import application


@pytest.mark.parametrize("path", ["flask_shop", "flask_shop:app"])
def test_it_is_the_extensions(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what stands in the application's config."""
    module = ModuleType("flask_shop")
    app = Flask("flask_shop")
    app.config["IDEMPOTENCY_LEASE_SECONDS"] = 77
    Idempotency(app, store="memory://", caller="shared")
    module.app = app  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flask_shop", module)

    assert application(path).options.lease_seconds == 77
