"""The servers: uvicorn for ASGI, gunicorn with threads for WSGI; never a development server."""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, cast

from tests.probe.readiness import Readiness
from tests.probe.settings import ASGI_FRAMEWORKS, Settings

_BUILDERS = {
    "starlette": "tests.probe.apps.starlette:build",
    "fastapi": "tests.probe.apps.fastapi:build",
    "django-wsgi": "tests.probe.apps.django:build_wsgi",
    "django-asgi": "tests.probe.apps.django:build_asgi",
    "drf": "tests.probe.apps.django:build_drf",
    "flask": "tests.probe.apps.flask:build",
}

# Whoever stops a probe waits ten seconds at most; open connections must not hold it longer than that.
_SHUTDOWN_SECONDS = 4
_THREADS = 32
# A plan with a body is longer than gunicorn's usual 8190 bytes of one header field.
_HEADER_FIELD_BYTES = 65536


def serve(settings: Settings) -> None:
    """Serve until SIGTERM, which ends this process with status 0."""
    signal.signal(signal.SIGTERM, _stop)
    if settings.framework in ASGI_FRAMEWORKS:
        _serve_asgi(settings)
    else:
        _serve_wsgi(settings)


def build_app(settings: Settings) -> Any:
    """Import the framework's module, and only that one, and build its app."""
    module, _, function = _BUILDERS[settings.framework].partition(":")
    build = cast("Callable[[Settings], Any]", getattr(importlib.import_module(module), function))
    return build(settings)


def build_asgi_app() -> Any:
    """Build the app of an ASGI worker, which finds its settings in the environment."""
    settings = Settings.from_environment()
    app = build_app(settings)
    Readiness(settings).worker_is_up()
    return app


def _stop(number: int, frame: FrameType | None) -> None:
    # uvicorn raises the signal once more after its own orderly shutdown, so that a default handler would
    # end the process by the signal. This one also serves a SIGTERM that comes before the server is up.
    sys.exit(0)


def _serve_asgi(settings: Settings) -> None:
    import uvicorn  # noqa: PLC0415  # the environment may hold the other server only

    settings.to_environment()
    Readiness(settings).announce_in_background()
    uvicorn.run(
        "tests.probe.server:build_asgi_app",
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )


def _serve_wsgi(settings: Settings) -> None:
    from tests.probe.gunicorn_server import GunicornServer  # noqa: PLC0415  # as above

    readiness = Readiness(settings)

    def worker_is_up(_worker: object) -> None:
        readiness.worker_is_up()
        readiness.announce_if_complete()

    GunicornServer(
        lambda: build_app(settings),
        bind=f"{settings.host}:{settings.port}",
        workers=settings.workers,
        worker_class="gthread",
        threads=_THREADS,
        loglevel="warning",
        graceful_timeout=_SHUTDOWN_SECONDS,
        limit_request_field_size=_HEADER_FIELD_BYTES,
        control_socket_disable=True,
        post_worker_init=worker_is_up,
    ).run()
