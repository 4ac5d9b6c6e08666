"""Whether an answer comes from a view, or from the framework before any view ran."""

from __future__ import annotations

import sys
from http import HTTPStatus
from traceback import walk_tb

from starlette.types import Scope

from idem_middleware.keeping import method_refused
from idem_middleware.messages import Response

__all__ = ["answered_by_view"]


def answered_by_view(scope: Scope, head: Response) -> bool:
    """Ask while the head of the answer is sent: the exception that it answers is known then, and where it was routed.

    In doubt, it was the view: an answer that is given again does less harm than work that is done again.
    """
    if _validation_failed():
        return False
    if head.status == HTTPStatus.METHOD_NOT_ALLOWED:
        return not method_refused(head.headers, scope["method"])
    return not (head.status == HTTPStatus.NOT_FOUND and _found_no_route(scope))


def _validation_failed() -> bool:
    """FastAPI answers a failed validation from within its handler for this exception, whatever its status.

    An endpoint may raise the same; then its own frame is where the exception comes from.
    """
    fastapi = sys.modules.get("fastapi.exceptions")
    error = sys.exception()
    if fastapi is None or error is None or not isinstance(error, fastapi.RequestValidationError):
        return False
    origin = ""
    for frame, _ in walk_tb(error.__traceback__):
        origin = frame.f_globals.get("__name__", "")
    return origin.partition(".")[0] == "fastapi"


def _found_no_route(scope: Scope) -> bool:
    """Whether Starlette's routing ended without an endpoint: at the top, or in the routes of a mounted application.

    An application that is mounted without routes of its own is an endpoint. So is `Router.default`, for all that it
    answers but a 404.
    """
    if "router" not in scope:
        return False  # another framework's
    reached = scope.get("endpoint")
    while reached is not None and not hasattr(reached, "routes") and hasattr(reached, "app"):
        reached = reached.app  # the middleware of a mount
    return reached is None or hasattr(reached, "routes")
