"""The payments API for a WSGI server.

IDEMPOTENCY_STORE=dynamodb://TABLE gunicorn --threads 16 example_apps.payments_django.wsgi:application
"""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_apps.payments_django.settings")

application = get_wsgi_application()
