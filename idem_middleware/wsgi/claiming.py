"""From a WSGI request that is to be protected to its claim: the same for every adapter on WSGI."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from idem_middleware.blocking.engine import Engine
from idem_middleware.blocking.lease import Lease
from idem_middleware.body import BodyTooLarge
from idem_middleware.identity import Admitted, CallerUnknown
from idem_middleware.keeping import method_refused
from idem_middleware.messages import Response
from idem_middleware.outcomes import Refused, Replayed, Unprotected
from idem_middleware.problems import Problem, ProblemType
from idem_middleware.tee import TeeInput
from idem_middleware.wsgi.environ import check_declared_length, to_request

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

__all__ = ["LEASE", "claim", "is_from_view"]

LEASE = "idem_middleware.lease"
"""Where in its environment an application finds its lease; also how an inner instance knows of an outer one."""


def claim(
    engine: Engine, admitted: Admitted, environ: WSGIEnvironment, tee: TeeInput, native: Any
) -> Lease | Replayed | Refused | Unprotected:
    """Ask who calls, read the body, and claim. `native` is what the functions among the options get.

    Raises:
        OSError: half a request, so nothing is claimed on it: its client left.
    """
    options = admitted.options
    environ[LEASE] = None
    try:
        caller = engine.caller(admitted, native)
    except CallerUnknown:
        return engine.refuse_caller(admitted)
    try:
        check_declared_length(environ, options.max_request_bytes)
        body = tee.complete(options.max_request_bytes)
    except BodyTooLarge:
        return engine.enforced(engine.refuse(Problem(ProblemType.REQUEST_TOO_LARGE), options), options)
    except OSError:
        if options.mode == "observe":
            return Unprotected()
        raise
    outcome = engine.acquire(to_request(environ, body, native), admitted, caller)
    if isinstance(outcome, Lease):
        environ[LEASE] = outcome
    return outcome


def is_from_view(response: Response, method: str) -> bool:
    """Whether a view gave this answer, and not a dispatcher that has none for this method."""
    return response.status != HTTPStatus.METHOD_NOT_ALLOWED or not method_refused(response.headers, method)
