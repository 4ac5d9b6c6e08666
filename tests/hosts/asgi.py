"""The ASGI service, as servers load it."""

from tests.hosts.apps import make_asgi

application = make_asgi()
