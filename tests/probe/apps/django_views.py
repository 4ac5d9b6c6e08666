"""The probe's views on Django: functions and classes, synchronous for WSGI and asynchronous for ASGI."""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path
from django.views import View
from django.views.decorators.http import require_GET

from tests.probe.answers import METHODS, Execution, PlannedError, body_of
from tests.probe.apps.django_answers import answer, execute, refuse
from tests.probe.apps.guards import Guard, guarded_views
from tests.probe.apps.guards import View as ViewFunction
from tests.probe.plan import MalformedPlanError, Plan, parse_plan
from tests.probe.routes import bearer
from tests.probe.runs import RunLog
from tests.probe.settings import Settings


def urls(settings: Settings, guard: Guard, *, asynchronous: bool) -> list[URLPattern]:
    """Give all routes, with function views and one class-based one."""
    log = RunLog(settings.log_path)
    make_view = partial(asynchronous_view if asynchronous else synchronous_view, log)
    views = guarded_views(make_view, guard)
    # The authorisation is outside of the decorator that claims: nobody sees a replay without it.
    authorised = authorised_asynchronously if asynchronous else authorised_synchronously
    return [
        path("probe/<str:name>", make_view()),
        path("cbv/<str:name>", class_based(make_view()).as_view()),
        *(path(f"{route}/<str:name>", view) for route, view in views.items() if route != "login"),
        path("login/<str:name>", authorised(views["login"])),
        *plain_urls(settings, log, guard),
    ]


def plain_urls(settings: Settings, log: RunLog, guard: Guard) -> list[URLPattern]:
    """Give the routes that are never protected."""

    @require_GET
    def runs(request: HttpRequest, name: str) -> HttpResponse:
        return JsonResponse({"runs": log.count(name)})

    @require_GET
    def healthz(request: HttpRequest) -> HttpResponse:
        return JsonResponse({"framework": settings.framework, "pid": os.getpid()})

    return [
        path("log/<str:name>", guard.not_idempotent(runs)),
        path("healthz", guard.not_idempotent(healthz)),
    ]


def synchronous_view(log: RunLog) -> ViewFunction:
    """Make a view for WSGI."""

    def view(request: HttpRequest, name: str) -> HttpResponseBase:
        try:
            plan = parse_plan(request.headers.get("X-Plan"))
        except MalformedPlanError as error:
            return malformed(log, request, name, error)
        execution = execute(log, request, name, plan)
        if plan.delay:
            time.sleep(plan.delay)
        return follow(request, plan, execution, asynchronous=False)

    return view


def asynchronous_view(log: RunLog) -> ViewFunction:
    """Make a view for ASGI."""

    async def view(request: HttpRequest, name: str) -> HttpResponseBase:
        try:
            plan = parse_plan(request.headers.get("X-Plan"))
        except MalformedPlanError as error:
            return malformed(log, request, name, error)
        execution = execute(log, request, name, plan)
        if plan.delay:
            await asyncio.sleep(plan.delay)
        return follow(request, plan, execution, asynchronous=True)

    return view


def class_based(view: ViewFunction) -> type[View]:
    """Make a class whose method for each HTTP method does what the view function does."""

    class ProbeView(View):
        http_method_names = [method.lower() for method in METHODS]  # noqa: RUF012  # Django's own attribute

    def method(self: View, request: HttpRequest, name: str) -> Any:
        return view(request, name)

    async def asynchronous_method(self: View, request: HttpRequest, name: str) -> Any:
        return await view(request, name)

    for name in ProbeView.http_method_names:
        setattr(ProbeView, name, asynchronous_method if iscoroutinefunction(view) else method)
    return ProbeView


def malformed(log: RunLog, request: HttpRequest, name: str, error: MalformedPlanError) -> HttpResponse:
    """Tell the test what is wrong with its plan; the handler ran all the same."""
    execute(log, request, name, Plan())
    return HttpResponse(str(error), status=500, content_type="text/plain")


def follow(request: HttpRequest, plan: Plan, execution: Execution, *, asynchronous: bool) -> HttpResponseBase:
    """Do what the plan says after its delay."""
    if plan.raises is not None:
        raise PlannedError(plan.raises)
    if plan.abort is not None:
        return refuse(plan.abort)
    if plan.session is not None:
        request.session.update(plan.session)
    return answer(plan, body_of(plan, execution), asynchronous=asynchronous)


def authorised_synchronously(view: ViewFunction) -> ViewFunction:
    """Let nobody past without a good token."""

    @wraps(view)
    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if bearer(request) is None:
            raise PermissionDenied
        return view(request, *args, **kwargs)

    return wrapper


def authorised_asynchronously(view: ViewFunction) -> ViewFunction:
    """Let nobody past without a good token; for views that are coroutines."""

    @wraps(view)
    async def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if bearer(request) is None:
            raise PermissionDenied
        return await view(request, *args, **kwargs)

    return wrapper
