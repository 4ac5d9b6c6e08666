"""The probe on Django REST Framework: class-based API views, whose answers are rendered after the view."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from django.http.response import HttpResponseBase
from django.urls import URLPattern, path
from rest_framework.exceptions import APIException
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tests.probe.answers import METHODS, Execution, PlannedError, body_of, document_of
from tests.probe.apps.django_answers import RepeatableHeaders, answer, dress, execute
from tests.probe.apps.django_views import malformed, plain_urls
from tests.probe.apps.guards import Guard, NoGuard, View
from tests.probe.plan import MalformedPlanError, Plan, parse_plan
from tests.probe.routes import OWN_OPTIONS, bearer
from tests.probe.runs import RunLog
from tests.probe.settings import Settings


def urls(settings: Settings, guard: Guard) -> list[URLPattern]:
    """Give all routes, each with a class of its own."""
    log = RunLog(settings.log_path)
    views: dict[str, View] = {
        "probe": planned_view(log).as_view(),
        "exempt": guard.not_idempotent(planned_view(log).as_view()),
        **{route: protected_view(log, guard, options).as_view() for route, options in OWN_OPTIONS.items()},
    }
    # Permissions are checked before the mixin claims: nobody sees a replay without them.
    views["login"] = protected_view(log, guard, OWN_OPTIONS["login"]).as_view(permission_classes=[HasGoodToken])
    return [
        *(path(f"{route}/<str:name>", view) for route, view in views.items()),
        *plain_urls(settings, log, guard),
    ]


def planned_view(log: RunLog) -> type[APIView]:
    """Make an API view that has this log."""
    return type("ProbeView", (PlannedView,), {"log": log})


def protected_view(log: RunLog, guard: Guard, options: Mapping[str, Any]) -> type[APIView]:
    """Make an API view that claims by the product's mixin, with these options."""
    if isinstance(guard, NoGuard):
        return planned_view(log)
    from idem_django.rest_framework import IdempotentMixin  # noqa: PLC0415  # a bare probe needs no product

    return type("ProtectedProbeView", (IdempotentMixin, PlannedView), {"log": log, "idempotency": dict(options)})


class HasGoodToken(BasePermission):
    """Lets nobody past without a good token."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Look at the token."""
        return bearer(request) is not None


class AnswersWhatIsPlanned(DefaultContentNegotiation):
    """Answers JSON whatever the client accepts: here the plan decides about the answer."""

    def select_renderer(self, request: Any, renderers: Any, format_suffix: Any = None) -> Any:
        """Take the only renderer."""
        return renderers[0], renderers[0].media_type


class RenderedAnswer(RepeatableHeaders, Response):
    """An answer of data, rendered by the framework when the view is long over."""


class PlannedView(APIView):
    """Follows the plan, whatever the method."""

    log: RunLog
    content_negotiation_class = AnswersWhatIsPlanned
    http_method_names = [method.lower() for method in METHODS]  # noqa: RUF012  # Django's own attribute

    def answer(self, request: Request, name: str) -> HttpResponseBase:
        """Log the execution, then do what the plan says."""
        try:
            plan = parse_plan(request.headers.get("X-Plan"))
        except MalformedPlanError as error:
            return malformed(self.log, request, name, error)
        execution = execute(self.log, request, name, plan)
        if plan.delay:
            time.sleep(plan.delay)
        if plan.raises is not None:
            raise PlannedError(plan.raises)
        if plan.abort is not None:
            raise PlannedRefusal(plan.abort)
        return planned_answer(plan, execution)

    get = head = post = put = patch = delete = trace = query = answer
    options = answer  # type: ignore[assignment]  # the framework describes the view there; the contract does not


class PlannedRefusal(APIException):  # it is the plan's answer, no error
    """The framework's own way to answer with a status."""

    def __init__(self, status: int) -> None:
        super().__init__("planned")
        self.status_code = status


def planned_answer(plan: Plan, execution: Execution) -> HttpResponseBase:
    """Give the answer its form: data where the plan leaves the body to the handler, else the plan's bytes."""
    body = body_of(plan, execution)
    if plan.body is not None or plan.chunks or not body:
        return answer(plan, body, asynchronous=False)
    response = RenderedAnswer(document_of(plan, execution), status=plan.status, content_type=plan.content_type)
    dress(response, plan)
    return response
