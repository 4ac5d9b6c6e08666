"""A Flask application with the extension, a view that counts its runs, and clients for both."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from flask import Flask, Response
from flask.testing import FlaskClient
from flask.typing import ResponseReturnValue
from werkzeug.test import TestResponse

from idem_flask import Idempotency
from tests.adapters.support.bench import Bench
from tests.adapters.support.server import Server

__all__ = ["Shop", "post", "problem", "replayed"]


class Shop:
    """`POST /orders` is answered by what `answer` gives or raises; `runs` says how often."""

    def __init__(
        self, bench: Bench, answer: Callable[[], ResponseReturnValue] = lambda: ("done", 201), **options: Any
    ) -> None:
        self.bench = bench
        self.answer = answer
        self.runs = 0
        self.app = Flask("shop")
        self.app.secret_key = "not one"
        self.idempotency = Idempotency(self.app, engine=bench.engine, **options)
        self.app.add_url_rule("/orders", view_func=self.order, methods=["GET", "POST", "PUT"])

    def order(self) -> ResponseReturnValue:
        self.runs += 1
        return self.answer()

    def client(self) -> FlaskClient:
        """Flask's own, which knows no server."""
        return self.app.test_client()

    def server(self) -> Server:
        """One that writes a journal of what its clients see."""
        return Server(self.app, self.bench.journal)

    def post(self, path: str = "/orders", *, key: str | None = "k", **request: Any) -> TestResponse:
        """One POST of a client without a past."""
        return post(self.client(), path, key=key, **request)


def post(client: FlaskClient, path: str = "/orders", *, key: str | None = "k", **request: Any) -> TestResponse:
    """One POST."""
    headers = dict(request.pop("headers", {}))
    if key is not None:
        headers["Idempotency-Key"] = key
    return client.post(path, headers=headers, **request)


def problem(response: Response | TestResponse) -> str:
    """The end of a problem's type."""
    assert response.content_type == "application/problem+json"
    kind: str = json.loads(response.get_data())["type"]
    return kind.rpartition("/")[2].rpartition(":")[2]


def replayed(response: Response | TestResponse) -> bool:
    """Whether it is marked as a replay."""
    return response.headers.get("Idempotent-Replayed") == "true"
