"""The WSGI service, as servers load it."""

from tests.hosts.apps import make_wsgi

application = make_wsgi()
