"""A payments API on Flask that charges once, however often a request comes.

    IDEMPOTENCY_STORE=dynamodb://TABLE gunicorn --threads 16 'example_apps.payments_flask.app:create_app()'

Without IDEMPOTENCY_STORE the keys are remembered in memory: enough for one process, and until it ends.
"""

from __future__ import annotations

import os
from typing import Any

import httpx
from flask import Flask, current_app, g, jsonify, request
from flask.typing import ResponseReturnValue

from idem_flask import Idempotency

# An API key may be replaced between a request and its retry; the account that it belongs to stays.
ACCOUNTS = {"key-of-anna": "anna", "key-of-bob": "bob"}

idempotency = Idempotency(caller=lambda _: g.account)


def create_app() -> Flask:
    """Make the application, configured by the environment."""
    app = Flask(__name__)
    app.config["IDEMPOTENCY_STORE"] = os.environ.get("IDEMPOTENCY_STORE", "memory://")
    app.config["IDEMPOTENCY_LEASE_SECONDS"] = float(os.environ.get("PAYMENTS_LEASE_SECONDS", "60"))
    app.extensions["provider"] = httpx.Client(
        base_url=os.environ.get("PAYMENTS_PROVIDER_URL", "http://127.0.0.1:8001"), timeout=10
    )
    # First who asks, then whether it was asked before: the extension acts behind all `before_request` functions.
    app.before_request(authenticate)
    idempotency.init_app(app)
    app.add_url_rule("/charges", view_func=create_charge, methods=["POST"])
    app.add_url_rule("/charges", view_func=list_charges)
    app.add_url_rule("/charges/<int:charge>/refund", view_func=refund, methods=["POST"])
    return app


def authenticate() -> ResponseReturnValue | None:
    """`Authorization: Bearer API-KEY` says which account asks."""
    g.account = ACCOUNTS.get(request.headers.get("Authorization", "").removeprefix("Bearer "))
    if g.account is None:
        return {"error": "this needs an API key"}, 401, {"WWW-Authenticate": "Bearer"}
    return None


def create_charge() -> ResponseReturnValue:
    """Charge `{"amount": 1200, "currency": "eur"}`."""
    match request.get_json(silent=True):
        case {"amount": int(amount), "currency": str(currency)} if amount > 0:
            return ask_provider("POST", "/charges", amount=amount, currency=currency)
    return {"error": "a charge has an amount above 0 and a currency"}, 400


def refund(charge: int) -> ResponseReturnValue:
    """Give the money of one charge back."""
    return ask_provider("POST", f"/charges/{charge:d}/refund")


def list_charges() -> ResponseReturnValue:
    """All charges of the account."""
    return ask_provider("GET", "/charges")


def ask_provider(method: str, path: str, **order: Any) -> ResponseReturnValue:
    """Pass its answer on. A 502 is not kept: the retry of the same request asks again."""
    headers = {"X-Account": g.account}
    if g.idempotency is not None:  # a GET has none
        # The same in every attempt: should we crash after the provider has charged, and before that is recorded, the
        # provider can tell by it that our next attempt is no new charge.
        headers["Idempotency-Key"] = g.idempotency.derive_key("provider")
    provider: httpx.Client = current_app.extensions["provider"]
    try:
        answer = provider.request(method, path, json=order or None, headers=headers)
    except httpx.HTTPError:
        return {"error": "the payment provider does not answer"}, 502
    if answer.is_server_error:
        return {"error": "the payment provider has failed"}, 502
    return jsonify(answer.json()), answer.status_code
