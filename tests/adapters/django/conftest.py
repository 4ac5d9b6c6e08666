"""One set of Django settings for the process; each test changes what it needs."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import django
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.test.utils import override_settings

from tests.adapters.django.projects import MIDDLEWARE, Project, Urlconf

# A file: connections to a database in memory are never closed, and threads of requests come and go.
_folder = Path(tempfile.mkdtemp(prefix="idem-django-"))
atexit.register(shutil.rmtree, _folder, ignore_errors=True)


def _configure() -> None:
    settings.configure(
        SECRET_KEY="not one",
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=Urlconf([]),
        MIDDLEWARE=[],
        INSTALLED_APPS=[
            "django.contrib.contenttypes",
            "django.contrib.auth",
            "django.contrib.sessions",
            "django.contrib.messages",
            "django.contrib.admin",
            "idem_django",
        ],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": _folder / "tests.sqlite3"}},
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ],
                    "loaders": [("django.template.loaders.locmem.Loader", {"order.html": "order {{ number }}"})],
                },
            }
        ],
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        LOGGING_CONFIG=None,
        USE_TZ=True,
    )
    django.setup()


if not settings.configured:
    _configure()


@pytest.fixture(params=["wsgi", "asgi"])
def mode(request: pytest.FixtureRequest) -> str:
    """Both ways in which Django is served."""
    mode: str = request.param
    return mode


MakeProject = Callable[..., Project]


@pytest.fixture
def make_project() -> Iterator[MakeProject]:
    """Give a maker of projects; the last one made is the one whose settings are in force."""
    with ExitStack() as stack:

        def make(
            *routes: Any,
            mode: str = "wsgi",
            middleware: tuple[str, ...] = MIDDLEWARE,
            store: object = "memory://",
            more: dict[str, Any] | None = None,
            **options: Any,
        ) -> Project:
            events: list[Any] = []
            written = {"STORE": store, "observers": [events.append], **options}
            stack.enter_context(
                override_settings(
                    ROOT_URLCONF=Urlconf(list(routes)), MIDDLEWARE=list(middleware), IDEMPOTENCY=written, **(more or {})
                )
            )
            return Project(mode, events)

        yield make


@pytest.fixture(scope="session")
def _tables() -> Iterator[None]:
    call_command("migrate", verbosity=0, run_syncdb=True)
    yield
    connection.close()


@pytest.fixture
def database(_tables: None) -> Iterator[None]:
    """An empty database with Django's own tables."""
    yield
    call_command("flush", verbosity=0, interactive=False)
