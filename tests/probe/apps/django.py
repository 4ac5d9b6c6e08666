"""The Django projects of the probes, without a settings file: a process holds one of them."""

from __future__ import annotations

from types import ModuleType
from typing import Any, cast

import django
from django.conf import settings as django_settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application

from tests.probe.apps.guards import Guard, NoGuard
from tests.probe.settings import Settings


def build_wsgi(settings: Settings) -> Any:
    """Build the project with synchronous views."""
    urlconf = _configure(settings)
    from tests.probe.apps.django_views import urls  # noqa: PLC0415  # views need the settings

    urlconf.urlpatterns = urls(settings, _guard(settings), asynchronous=False)
    return get_wsgi_application()


def build_asgi(settings: Settings) -> Any:
    """Build the project with asynchronous views."""
    urlconf = _configure(settings)
    from tests.probe.apps.django_views import urls  # noqa: PLC0415  # as above

    urlconf.urlpatterns = urls(settings, _guard(settings), asynchronous=True)
    if settings.bare:
        return get_asgi_application()
    from idem_django.asgi import get_asgi_application as product_application  # noqa: PLC0415  # a bare probe has none

    return product_application()


def build_drf(settings: Settings) -> Any:
    """Build the project with API views of Django REST Framework."""
    urlconf = _configure(
        settings,
        REST_FRAMEWORK={
            "DEFAULT_AUTHENTICATION_CLASSES": [],
            "DEFAULT_PERMISSION_CLASSES": [],
            "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
            "UNAUTHENTICATED_USER": None,
        },
    )
    from tests.probe.apps.drf import urls  # noqa: PLC0415  # as above

    urlconf.urlpatterns = urls(settings, _guard(settings))
    return get_wsgi_application()


class _Urlconf(ModuleType):
    """A module of URL patterns, made by code."""

    urlpatterns: list[Any]


def _configure(settings: Settings, **more: Any) -> _Urlconf:
    """Set Django up; the URL patterns come afterwards, since views need the settings."""
    urlconf = _Urlconf("tests.probe.urls")
    urlconf.urlpatterns = []
    product = [] if settings.bare else ["idem_django.IdempotencyMiddleware"]
    django_settings.configure(
        ALLOWED_HOSTS=["*"],
        SECRET_KEY="the probe's sessions are nobody's",
        ROOT_URLCONF=urlconf,
        INSTALLED_APPS=[] if settings.bare else ["idem_django"],
        MIDDLEWARE=[
            "django.middleware.common.CommonMiddleware",
            "django.contrib.sessions.middleware.SessionMiddleware",
            *product,
        ],
        # Sessions without a database.
        SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
        IDEMPOTENCY={"STORE": settings.store, **{name.upper(): value for name, value in settings.options.items()}},
        # Tracebacks belong on standard error, where whoever started the probe looks.
        LOGGING={
            "version": 1,
            "disable_existing_loggers": False,
            "handlers": {"stderr": {"class": "logging.StreamHandler"}},
            "root": {"handlers": ["stderr"], "level": "WARNING"},
        },
        **more,
    )
    django.setup()
    return urlconf


def _guard(settings: Settings) -> Guard:
    if settings.bare:
        return NoGuard()
    import idem_django  # noqa: PLC0415  # a bare probe needs no product

    return cast("Guard", idem_django)
