"""Settings of the payments API: what Django needs at the least, and the idempotency."""

from __future__ import annotations

import os

SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY", "an example signs nothing")
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "example_apps.payments_django.urls"
USE_TZ = True

INSTALLED_APPS = ["idem_django"]

# First who asks, then whether it was asked before: nobody gets an answer again that is not theirs.
MIDDLEWARE = [
    "example_apps.payments_django.accounts.ApiKeyMiddleware",
    "idem_django.IdempotencyMiddleware",
]

IDEMPOTENCY = {
    # In memory, the keys are known to one process, and until it ends.
    "STORE": os.environ.get("IDEMPOTENCY_STORE", "memory://"),
    "CALLER": lambda request: request.account,
    "LEASE_SECONDS": float(os.environ.get("PAYMENTS_LEASE_SECONDS", "60")),
}

PAYMENTS_PROVIDER_URL = os.environ.get("PAYMENTS_PROVIDER_URL", "http://127.0.0.1:8001")
