"""What the adapters for Django and Flask cost, as `overhead` measures Starlette's: bare and protected, side by side.

    python -m benchmarks.frameworks [--requests N] [--rounds N]

CPU time of this process per request through the framework's own WSGI application; medians and the spread of ratios.
"""

from __future__ import annotations

import argparse
import gc
import io
import platform
import statistics
import time
from collections.abc import Callable
from itertools import count
from types import ModuleType
from typing import Any

import django
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, JsonResponse
from django.test.utils import override_settings
from django.urls import path
from flask import Flask, jsonify, request

from benchmarks.overhead import BODY
from idem_flask import Idempotency

_numbers = count()
_ANSWER = {"id": "ch_1", "status": "succeeded", "amount": 1200, "currency": "EUR"}


def flask_application(*, protected: bool) -> Any:
    """One route, for POST and GET."""
    app = Flask(__name__)

    @app.route("/charges", methods=["GET", "POST"])
    def charges() -> Any:
        request.get_data()
        return jsonify(_ANSWER), 201

    if protected:
        Idempotency(app, store="memory://?max_entries=1000000", caller="shared")
    return app


def django_charges(request: HttpRequest) -> JsonResponse:
    """The same in Django."""
    _ = request.body
    return JsonResponse(_ANSWER, status=201)


def django_application(*, protected: bool) -> Any:
    """The same in Django."""
    if not settings.configured:
        urls = ModuleType("benchmarks.urls")
        urls.urlpatterns = [path("charges", django_charges)]  # type: ignore[attr-defined]
        settings.configure(
            ROOT_URLCONF=urls,
            ALLOWED_HOSTS=["*"],
            SECRET_KEY="none",  # noqa: S106 - nothing is signed
            INSTALLED_APPS=["idem_django"],
            IDEMPOTENCY={"STORE": "memory://?max_entries=1000000", "CALLER": "shared"},
        )
        django.setup()
    with override_settings(MIDDLEWARE=["idem_django.IdempotencyMiddleware"] if protected else []):
        return WSGIHandler()


def call(app: Any, method: str, key: str | None) -> None:
    """One request, from its head to the end of its answer."""
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method, "SCRIPT_NAME": "", "PATH_INFO": "/charges", "QUERY_STRING": "",
        "SERVER_NAME": "localhost", "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1", "HTTP_HOST": "localhost",
        "CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(BODY)), "wsgi.input": io.BytesIO(BODY),
        "wsgi.version": (1, 0), "wsgi.url_scheme": "http", "wsgi.errors": io.StringIO(), "wsgi.multithread": True,
        "wsgi.multiprocess": True, "wsgi.run_once": False,
    }  # fmt: skip
    if key is not None:
        environ["HTTP_IDEMPOTENCY_KEY"] = key
    statuses: list[str] = []
    answer = app(environ, lambda status, *_: statuses.append(status))
    for _ in answer:
        pass
    getattr(answer, "close", lambda: None)()
    if not statuses[0].startswith("201"):
        raise AssertionError(statuses[0])


def fresh() -> str:
    """A key that was never used."""
    return f"8e03978e-40d5-43e8-bc93-{next(_numbers):012x}"


def measured(app: Any, method: str, key: Callable[[], str | None], requests: int) -> float:
    """CPU microseconds per request."""
    call(app, method, key())
    gc.collect()
    began = time.process_time_ns()
    for _ in range(requests):
        call(app, method, key())
    return (time.process_time_ns() - began) / requests / 1000


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1000, help="per variant and round")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    print(f"CPython {platform.python_version()}, {platform.machine()}, {arguments.rounds} x {arguments.requests}")
    for name, make in (("Flask", flask_application), ("Django WSGI", django_application)):
        bare, protected = make(protected=False), make(protected=True)
        same = fresh()
        variants: dict[str, tuple[Any, str, Callable[[], str | None]]] = {
            "POST, bare": (bare, "POST", lambda: None),
            "POST, new": (protected, "POST", fresh),
            "POST, replay": (protected, "POST", lambda same=same: same),  # type: ignore[misc]
            "GET, bare": (bare, "GET", lambda: None),
            "GET, uncovered": (protected, "GET", lambda: None),
        }
        results: dict[str, list[float]] = {variant: [] for variant in variants}
        for number in range(arguments.rounds):
            names = list(variants)
            for variant in names[number % len(names) :] + names[: number % len(names)]:
                results[variant].append(measured(*variants[variant], arguments.requests))
        for variant, values in results.items():
            base = results["GET, bare" if "GET" in variant else "POST, bare"]
            ratios = [value / other for value, other in zip(values, base, strict=True)]
            print(
                f"{name:12} {variant:16} {statistics.median(values):7.1f} us CPU   x {statistics.median(ratios):.2f} "
                f"of bare ({min(ratios):.2f} to {max(ratios):.2f})"
            )


if __name__ == "__main__":
    main()
