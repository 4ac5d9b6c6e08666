"""Which example there is for which framework, and how its server starts."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FRAMEWORKS", "Framework"]


@dataclass(frozen=True, slots=True)
class Framework:
    """One example app. `{port}` in the command is filled in."""

    needs: tuple[str, ...]
    """Import packages; all of them come with the extra `demo`."""
    command: tuple[str, ...]
    """Arguments for the Python interpreter."""


def _uvicorn(app: str) -> tuple[str, ...]:
    # The shutdown is bounded: the story leaves requests behind that will never end.
    arguments = ("--host", "127.0.0.1", "--port", "{port}", "--timeout-graceful-shutdown", "1")
    return ("-m", "uvicorn", app, *arguments)


def _gunicorn(app: str) -> tuple[str, ...]:
    arguments = ("--bind", "127.0.0.1:{port}", "--threads", "32", "--graceful-timeout", "1", "--log-level", "warning")
    return ("-m", "gunicorn", *arguments, app)


FRAMEWORKS = {
    "starlette": Framework(("starlette", "uvicorn"), _uvicorn("example_apps.payments_starlette.app:app")),
    "django": Framework(("django", "gunicorn"), _gunicorn("example_apps.payments_django.wsgi:application")),
    "flask": Framework(("flask", "gunicorn"), _gunicorn("example_apps.payments_flask.app:create_app()")),
}
