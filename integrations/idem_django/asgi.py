"""Django's ASGI application, with an ear for clients that ask before they send their body.

Django takes in the whole body before it makes a request of it, and so before any middleware. A client that sends
`Expect: 100-continue` (RFC 9110 §10.1.1) wants to know first whether that is worth it: without a valid key it is not.
"""

from __future__ import annotations

from typing import Any

from django.core.asgi import get_asgi_application as django_application
from django.urls import Resolver404, resolve

from idem_django.conf import configuration
from idem_django.marks import mark_of
from idem_middleware.messages import Response
from idem_middleware.outcomes import Refused

__all__ = ["get_asgi_application"]


def get_asgi_application() -> HeadFirst:
    """In the place of `django.core.asgi.get_asgi_application`."""
    return HeadFirst(django_application())


class HeadFirst:
    """Answers a request that waits to be told to go on, if its head alone is a reason to refuse it.

    Every other request is Django's, with all of its middleware.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._configuration = configuration()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        refused = self._refusal(scope) if scope["type"] == "http" and _asks(scope) else None
        if refused is None:
            await self._app(scope, receive, send)
            return
        headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in refused.headers]
        await send({"type": "http.response.start", "status": refused.status, "headers": headers})
        await send({"type": "http.response.body", "body": refused.body})

    def _refusal(self, scope: Any) -> Response | None:
        engine, options = self._configuration.engine, self._configuration.engine.options
        path = scope["path"].removeprefix(scope.get("root_path") or "")
        try:
            if mark_of(resolve(path).func, scope["method"]) is not None:
                return None  # the view has rules of its own, behind whatever stands before it
        except Resolver404:
            return None
        name = options.header.lower().encode()
        lines = [value.decode("latin-1") for key, value in scope["headers"] if key == name]
        admission = engine.admit(options, scope["method"], path, lines)
        return admission.response if isinstance(admission, Refused) else None


def _asks(scope: Any) -> bool:
    return any(name == b"expect" and value.lower() == b"100-continue" for name, value in scope["headers"])
