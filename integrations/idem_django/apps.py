"""The app, for `INSTALLED_APPS`: it brings the system checks."""

from __future__ import annotations

from django.apps import AppConfig

__all__ = ["IdempotencyConfig"]


class IdempotencyConfig(AppConfig):
    """Registers the checks. The middleware works without the app; its mistakes are then found by the first request."""

    name = "idem_django"
    verbose_name = "Idempotency"

    def ready(self) -> None:
        from idem_django import checks  # noqa: PLC0415 - needs the apps

        checks.register_all()
