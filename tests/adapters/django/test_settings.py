from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.wsgi import WSGIHandler
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.test.utils import override_settings
from django.urls import path
from rest_framework.exceptions import APIException
from rest_framework.views import APIView

import idem_django
from idem_django.conf import configuration
from idem_middleware import MemoryStore
from idem_middleware.stores.dynamodb.items import item_of
from idem_middleware.testing import FaultyStore
from idem_middleware.wsgi import IdempotencyMiddleware as Outer
from tests.adapters.django.conftest import MakeProject
from tests.adapters.django.projects import MIDDLEWARE, Counter, Exchange

HEADERS: Any = {"HTTP_IDEMPOTENCY_KEY": "k"}


def tenant(request: HttpRequest) -> str | None:
    return request.headers.get("X-Tenant")


def never_store(response: Any) -> bool:
    return False


observed: list[Any] = []


def observe(event: Any) -> None:
    observed.append(event)


def test_all_clients_and_handlers_of_a_process_share_one_engine(make_project: MakeProject) -> None:
    """A store in memory would be empty in each new handler."""
    counter = Counter()
    make_project(path("", counter.view_for("wsgi")))
    for _ in range(3):
        assert Client().post("/", "{}", content_type="application/json", **HEADERS).json() == {"run": 1}


def test_settings_that_change_are_read_anew(make_project: MakeProject) -> None:
    counter = Counter()
    make_project(path("", counter.view_for("wsgi")))
    Client().post("/", "{}", content_type="application/json", **HEADERS)
    with override_settings(IDEMPOTENCY={"STORE": "memory://", "REPLAY_HEADER": "X-Again"}):
        answers = [Client().post("/", "{}", content_type="application/json", **HEADERS) for _ in range(2)]
    assert answers[0].json() == {"run": 2}
    assert answers[1]["X-Again"] == "true"


def test_threads_that_come_at_once_get_the_same(make_project: MakeProject) -> None:
    make_project()
    seen: list[Any] = []
    threads = [threading.Thread(target=lambda: seen.append(configuration())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(each) for each in seen}) == 1


@pytest.mark.parametrize("names", [str.upper, str.lower, str.title])
def test_names_are_written_in_any_case(names: Any) -> None:
    with override_settings(IDEMPOTENCY={names("STORE"): "memory://", names("WAIT_SECONDS"): 3}):
        assert configuration().engine.options.wait_seconds == 3


def test_a_store_may_be_built_by_the_settings() -> None:
    store = MemoryStore()
    with override_settings(IDEMPOTENCY={"STORE": store}):
        assert configuration().engine.store is store


def test_functions_are_named_by_their_path(make_project: MakeProject) -> None:
    """A settings module can't import code that needs the apps."""
    project = make_project(
        path("", lambda request: HttpResponse()),
        caller="tests.adapters.django.test_settings.tenant",
        store_if="tests.adapters.django.test_settings.never_store",
        observers=["tests.adapters.django.test_settings.observe"],
    )
    assert project.post().problem == "caller-unknown"
    assert project.post(headers=[("X-Tenant", "a")]).status == 200
    assert not project.post(headers=[("X-Tenant", "a")]).is_replay
    assert observed


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (None, "IDEMPOTENCY is not set"),
        ([], "must be a dictionary"),
        ({}, '"STORE" is missing'),
        ({"STORE": 3}, "must be a store or its URL"),
        ({"STORE": "redis://x"}, "begins with one of"),
        ({"STORE": "memory://", "LEASE_SECOND": 3}, "did you mean LEASE_SECONDS"),
        ({"WAIT_SECONDS": -1, "STORE": "memory:/", "METHODS": ["GET"]}, "wait_seconds.*methods.*a store's URL"),
        ({"STORE": "memory://", "CALLER": "no.such.module"}, "CALLER can't be imported"),
        ({"STORE": "dynamodb://keys?layout=caller", "CALLER": "shared"}, "'caller' needs a function as caller"),
        ({"STORE": "memory://", "OBSERVERS": ["no.such.module"]}, "OBSERVERS can't be imported"),
    ],
)
def test_wrong_settings_stop_the_start_and_say_all_that_is_wrong(written: Any, told: str) -> None:
    with override_settings(IDEMPOTENCY=written, MIDDLEWARE=MIDDLEWARE), pytest.raises(ImproperlyConfigured, match=told):
        Client().get("/")


def test_protection_can_be_switched_off(make_project: MakeProject, mode: str) -> None:
    project = make_project(path("", Counter().view_for(mode)), mode=mode, MODE="off")
    assert [project.post().is_replay for _ in range(2)] == [False, False]


def test_observing_refuses_and_replays_nothing(make_project: MakeProject, mode: str) -> None:
    counter = Counter()
    project = make_project(path("", counter.view_for(mode)), mode=mode, MODE="observe")
    assert [project.post(key=key).status for key in ("k", "k", None)] == [201, 201, 201]
    assert counter.runs == 3
    assert "replayed" in project.kinds


def test_paths_are_those_below_the_script(make_project: MakeProject, mode: str) -> None:
    project = make_project(
        path("a/x", Counter().view_for(mode)), path("b", Counter().view_for(mode)), mode="wsgi", EXEMPT_PATHS=["/a"]
    )
    mounted: Any = {"environ": {"SCRIPT_NAME": "/shop"}}
    assert [project.post("/a/x", **mounted).is_replay for _ in range(2)] == [False, False]
    assert [project.post("/b", **mounted).is_replay for _ in range(2)] == [False, True]


def test_an_instance_around_django_acts_alone(make_project: MakeProject) -> None:
    seen: list[Any] = []

    def view(request: Any) -> HttpResponse:
        seen.append(request.idempotency)
        return HttpResponse()

    project = make_project(path("", view))
    outer: Any = Outer(WSGIHandler(), MemoryStore(), caller="shared")
    environ = project.environ("POST", "/", b"{}", [("Idempotency-Key", "k")])
    assert Exchange(environ, outer).finish().status == 200
    assert (project.kinds, seen[0].attempt) == ([], 1)


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr


def test_without_django_it_says_what_to_install() -> None:
    hidden = "import sys; sys.modules['django'] = None; import idem_django"
    assert "pip install 'idem-middleware[django]'" in run(hidden)
    hidden = "import sys; sys.modules['rest_framework'] = None; import idem_django.rest_framework"
    assert "pip install 'idem-middleware[drf]'" in run(hidden)


def test_importing_it_needs_no_settings() -> None:
    code = "from idem_django import IdempotencyMiddleware, idempotent, not_idempotent; assert idempotent(len)"
    assert run(code) == ""


def test_it_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Idempotency'"):
        _ = idem_django.Idempotency


@pytest.mark.usefixtures("database")
def test_the_record_is_decided_on_the_final_answer_of_an_atomic_request(make_project: MakeProject) -> None:
    """Work and record agree when the request's transaction rolls back (encode/django-rest-framework#4560, #2887)."""

    class Refusing(APIView):
        authentication_classes: Any = ()

        def post(self, request: Any) -> HttpResponse:
            Group.objects.create(name="half")
            raise APIException

    def broken_commit(request: HttpRequest) -> HttpResponse:
        Group.objects.create(name="half")
        transaction.on_commit(lambda: 1 / 0)
        return HttpResponse()

    def fine(request: HttpRequest) -> HttpResponse:
        Group.objects.create(name="whole")
        return HttpResponse()

    project = make_project(path("a", Refusing.as_view()), path("b", broken_commit), path("c", fine))
    connection.settings_dict["ATOMIC_REQUESTS"] = True
    try:
        assert [project.post("/a", key="a").status for _ in range(2)] == [500, 500]
        assert not Group.objects.filter(name="half").exists()
        assert [project.post("/b", key="b").status for _ in range(2)] == [500, 500]
        assert [project.post("/c", key="c").is_replay for _ in range(2)] == [False, True]
    finally:
        connection.settings_dict["ATOMIC_REQUESTS"] = False
    assert Group.objects.filter(name="whole").count() == 1


def test_what_is_stored_is_plain_data_with_a_version(make_project: MakeProject) -> None:
    """Nothing is pickled (django-idempotency-key's storage.py): a record that was tampered with runs no code."""
    store = FaultyStore(MemoryStore())
    project = make_project(path("", Counter().view_for("wsgi")), store=store)
    project.post()
    record: Any = store.load(store.calls[-1].pk, 0)
    item = item_of(record.record)
    assert item["schema"]["N"] == "1"
    assert {kind for value in item["response"]["M"].values() for kind in value} <= {"N", "S", "L", "B", "M"}
