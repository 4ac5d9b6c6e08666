"""`assert_idempotent` with Flask's client."""

from __future__ import annotations

import itertools

from flask import Flask, request, session
from flask.typing import ResponseReturnValue

from idem_flask import Idempotency
from idem_middleware.testing import assert_idempotent


def test_a_users_application_is_tested() -> None:
    """Twice and at once, by clients that keep the session."""
    numbers = itertools.count(1)
    app = Flask(__name__)
    app.secret_key = "made up"
    Idempotency(app, store="memory://", caller=lambda request: session["user"], exempt_paths=["/login"])

    @app.post("/login")
    def login() -> ResponseReturnValue:
        session["user"] = "anna"
        return ""

    @app.post("/orders")
    def order() -> ResponseReturnValue:
        return {"id": next(numbers), "for": session["user"], **request.get_json()}, 201

    client = app.test_client()
    client.post("/login")
    sent = assert_idempotent(client, {"path": "/orders", "json": {"amount": 12}})
    assert sent.replay.body == sent.first.body
    assert b"anna" in sent.replay.body
    assert next(numbers) == 3
