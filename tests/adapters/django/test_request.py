from __future__ import annotations

import hashlib
import io
import operator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.files.uploadhandler import MemoryFileUploadHandler
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt, csrf_protect

from idem_django import idempotent, not_idempotent
from tests.adapters.django.conftest import MakeProject
from tests.adapters.django.projects import MIDDLEWARE, Counter, multipart

LARGE = bytes(i % 251 for i in range(3_000_000))
FORM = "application/x-www-form-urlencoded"

READERS: dict[str, Any] = {
    "body": operator.attrgetter("body"),
    "read at once": operator.methodcaller("read"),
    "read in pieces": lambda request: b"".join(iter(lambda: request.read(1000), b"")),
    "lines": b"".join,
    "body after read": lambda request: request.read(0) + request.read(),
    "body twice": lambda request: request.body and request.body,
    "body, then read": lambda request: request.body and request.read(),
}


def reading(read: Any) -> Any:
    def view(request: HttpRequest) -> JsonResponse:
        return JsonResponse({"seen": hashlib.sha256(read(request)).hexdigest()})

    return view


class ReadsBody:
    """A middleware that logs bodies."""

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> Any:
        assert request.body is not None
        return self.get_response(request)


class ReadsForm(ReadsBody):
    """A middleware that looks into forms."""

    def __call__(self, request: HttpRequest) -> Any:
        assert request.POST is not None
        return self.get_response(request)


class ReadsFormBeforeViews(ReadsBody):
    """A middleware that looks into forms when Django is about to call a view."""

    def __call__(self, request: HttpRequest) -> Any:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, *args: Any) -> None:
        assert request.POST is not None


HERE = "tests.adapters.django.test_request."


@pytest.mark.parametrize("body", [b"", b"one\ntwo\nthree", LARGE], ids=["empty", "small", "large"])
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_the_view_reads_the_body_in_every_way(make_project: MakeProject, mode: str, read: Any, body: bytes) -> None:
    """What was hashed for the comparison is read as if nobody had read it (encode/django-rest-framework#2774)."""
    project = make_project(path("", reading(read)), mode=mode, more={"DATA_UPLOAD_MAX_MEMORY_SIZE": None})
    answer = project.post(body=body, content_type="text/plain")
    assert answer.json() == {"seen": hashlib.sha256(body).hexdigest()}
    assert project.post(body=body, content_type="text/plain").is_replay


@pytest.mark.parametrize(
    "before",
    [
        (HERE + "ReadsBody", *MIDDLEWARE),
        (*MIDDLEWARE, HERE + "ReadsForm"),
        (HERE + "ReadsFormBeforeViews", *MIDDLEWARE),
        ("django.middleware.csrf.CsrfViewMiddleware", *MIDDLEWARE),
    ],
    ids=["body in front", "form behind", "form before views", "csrf"],
)
@pytest.mark.parametrize("size", [10, 3_000_000])
def test_forms_reach_the_view_whoever_else_reads_them(
    make_project: MakeProject, mode: str, before: tuple[str, ...], size: int
) -> None:
    """A form that the CSRF check or another middleware has read is read and compared all the same."""

    @csrf_exempt
    def view(request: HttpRequest) -> JsonResponse:
        upload: Any = request.FILES["doc"]
        return JsonResponse({"name": upload.name, "seen": hashlib.sha256(upload.read()).hexdigest()})

    project = make_project(path("", view), mode=mode, middleware=before, more={"DATA_UPLOAD_MAX_MEMORY_SIZE": None})
    content = LARGE[:size]
    body, content_type = multipart("first", doc=content)
    answer = project.post(body=body, content_type=content_type)
    assert answer.json() == {"name": "doc.bin", "seen": hashlib.sha256(content).hexdigest()}
    body, content_type = multipart("another", doc=content)
    assert project.post(body=body, content_type=content_type).is_replay
    body, content_type = multipart("another", doc=content[:-1] + b"!")
    assert project.post(body=body, content_type=content_type).problem == "key-reused"


def test_a_replay_needs_the_csrf_token(make_project: MakeProject) -> None:
    counter = Counter()
    project = make_project(
        path("", csrf_protect(counter.view_for("wsgi"))),
        middleware=("django.middleware.csrf.CsrfViewMiddleware", *MIDDLEWARE),
    )
    token = "a" * 32
    cookie = [("Cookie", f"csrftoken={token}")]
    body = f"csrfmiddlewaretoken={token}&a=1".encode()
    assert project.post(body=body, content_type=FORM, headers=cookie).status == 201
    assert project.post(body=body, content_type=FORM, headers=cookie).is_replay
    assert project.post(body=body, content_type=FORM).status == 403
    assert counter.runs == 1


def test_the_view_chooses_its_upload_handlers(make_project: MakeProject) -> None:
    class Quota(MemoryFileUploadHandler):
        chunks = 0

        def receive_data_chunk(self, raw_data: bytes, start: int) -> Any:
            Quota.chunks += 1
            return super().receive_data_chunk(raw_data, start)

    @csrf_exempt
    def view(request: HttpRequest) -> JsonResponse:
        request.upload_handlers.insert(0, Quota(request))
        upload: Any = request.FILES["doc"]
        return JsonResponse({"size": upload.size})

    project = make_project(path("", view))
    body, content_type = multipart("b", doc=b"x" * 200_000)
    assert project.post(body=body, content_type=content_type).json() == {"size": 200_000}
    assert Quota.chunks > 1


def test_djangos_limit_of_the_body_still_holds(make_project: MakeProject, mode: str) -> None:
    project = make_project(path("", reading(READERS["body"])), mode=mode, more={"DATA_UPLOAD_MAX_MEMORY_SIZE": 10})
    assert project.post(body=b"x" * 11).status == 400


def test_a_body_over_the_limit_is_refused_and_the_key_stays_free(make_project: MakeProject, mode: str) -> None:
    """Sources: paveg/hono-idempotency#79, KanishJebaMathewM/Truxify#10258."""
    counter = Counter()
    project = make_project(path("", counter.view_for(mode)), mode=mode, max_request_bytes=10)
    assert project.post(body=b"x" * 11).problem == "request-too-large"
    assert project.post(body=b"x" * 10).status == 201
    assert counter.runs == 1


@pytest.mark.parametrize("name", READERS)
def test_a_body_over_the_limit_is_there_as_a_whole_while_it_is_only_observed(
    make_project: MakeProject, mode: str, name: str
) -> None:
    route = path("", reading(READERS[name]))
    more = {"DATA_UPLOAD_MAX_MEMORY_SIZE": None}
    project = make_project(route, mode=mode, max_request_bytes=10, MODE="observe", more=more)
    assert project.post(body=LARGE).json() == {"seen": hashlib.sha256(LARGE).hexdigest()}
    assert [(e.reason, e.observed) for e in project.events] == [("request-too-large", True)]


def test_half_a_body_is_for_the_view_while_it_is_only_observed(make_project: MakeProject) -> None:
    counter = Counter()
    project = make_project(path("", counter.view_for("wsgi")), MODE="observe")
    project.post(body=b"half", environ={"CONTENT_LENGTH": "8"})
    assert (counter.runs, project.kinds) == (1, [])


def test_the_limit_holds_without_a_declared_length(make_project: MakeProject) -> None:
    project = make_project(path("", Counter().view_for("asgi")), mode="asgi", max_request_bytes=10)
    answer = project.post(body=b"x" * 11, headers=[("Content-Length", "")])
    assert answer.problem == "request-too-large"


def test_half_a_body_claims_nothing(make_project: MakeProject) -> None:
    counter = Counter()
    project = make_project(path("", counter.view_for("wsgi")))
    assert project.post(body=b"half", environ={"CONTENT_LENGTH": "8"}).status == 400
    assert project.post(body=b"half and").status == 201
    assert counter.runs == 1


def test_a_connection_that_breaks_claims_nothing(make_project: MakeProject) -> None:
    class Broken(io.BytesIO):
        def read(self, *args: Any) -> bytes:
            raise ConnectionResetError

    counter = Counter()
    project = make_project(path("", counter.view_for("wsgi")))
    answer = project.post(body=b"x", environ={"wsgi.input": Broken()})
    assert (answer.status, counter.runs, project.kinds) == (400, 0, [])


def test_a_bad_key_is_told_before_the_body_is_read(make_project: MakeProject) -> None:
    class Unread(io.BytesIO):
        def read(self, *args: Any) -> bytes:
            raise AssertionError("read")

    project = make_project(path("", Counter().view_for("wsgi")))
    for key, problem in (('"', "key-invalid"), (None, "key-missing")):
        assert project.post(key=key, environ={"wsgi.input": Unread()}).problem == problem


def test_a_form_that_was_used_up_in_front_is_an_error_that_says_so(make_project: MakeProject) -> None:
    """Nothing runs unprotected because somebody read the body away (getsentry/sentry-python#3045)."""
    counter = Counter()
    project = make_project(
        path("", counter.view_for("wsgi")),
        middleware=(HERE + "ReadsForm", *MIDDLEWARE),
        more={"DEBUG_PROPAGATE_EXCEPTIONS": True},
    )
    body, content_type = multipart("b", doc=b"x")
    with pytest.raises(ImproperlyConfigured, match="belongs behind"):
        project.post(body=body, content_type=content_type)
    assert counter.runs == 0


def test_a_form_that_was_used_up_in_front_is_logged_while_it_is_only_observed(
    make_project: MakeProject, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What only observes lets everything run, and says what will be wrong once it enforces."""
    counter = Counter()
    project = make_project(
        path("", counter.view_for(mode)), mode=mode, MODE="observe", middleware=(HERE + "ReadsForm", *MIDDLEWARE)
    )
    body, content_type = multipart("b", doc=b"x")
    assert project.post(body=body, content_type=content_type).status == 201
    assert counter.runs == 1
    assert "belongs behind" in caplog.text


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST"])
def test_uncovered_requests_keep_their_own_stream(make_project: MakeProject, method: str) -> None:
    streams: list[str] = []

    @not_idempotent
    def view(request: Any) -> JsonResponse:
        streams.append(type(request._stream).__name__)
        assert request.idempotency is None
        return JsonResponse({})

    project = make_project(path("", view))
    assert project.send(method, "/", key='"').status == 200
    assert streams == ["LimitedStream"]


def test_an_unprotected_upload_is_not_read_ahead(make_project: MakeProject) -> None:
    class Counted(io.BytesIO):
        given = 0

        def read(self, *args: Any) -> bytes:
            piece = super().read(*args)
            Counted.given += len(piece)
            return piece

    @not_idempotent
    def view(request: HttpRequest) -> JsonResponse:
        assert request.read(10) == LARGE[:10]
        return JsonResponse({"given": Counted.given})

    project = make_project(path("", view))
    assert project.post(body=LARGE, environ={"wsgi.input": Counted(LARGE)}).json() == {"given": 10}


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({}, {"RAW_URI": "/a"}, True),
        ({"RAW_URI": "/a?x"}, {"REQUEST_URI": "http://host/a"}, True),
        ({"RAW_URI": "/%61"}, {"RAW_URI": "/a"}, False),
        ({"PATH_INFO": "/a b"}, {"PATH_INFO": "/a b", "RAW_URI": "/a%20b"}, True),
        ({"REQUEST_METHOD": "PUT"}, {}, False),
        ({"QUERY_STRING": "a=1&b=2"}, {"QUERY_STRING": "b=2&a=1"}, True),
    ],
)
def test_the_path_is_compared_as_the_server_tells_it(
    make_project: MakeProject, first: dict[str, str], second: dict[str, str], *, same: bool
) -> None:
    counter = Counter()
    project = make_project(path("<str:name>", counter.view_for("wsgi")))
    assert project.post("/a", environ=first).status == 201
    assert project.post("/a", environ=second).is_replay is same
    assert counter.runs == 1


def test_temporary_files_are_closed_with_the_answer(make_project: MakeProject, mode: str) -> None:
    """An open file would be a warning, and warnings are errors here."""
    project = make_project(path("", Counter().view_for(mode)), mode=mode)
    for _ in range(2):
        assert project.post(body=LARGE).status == 201
    assert project.post(body=LARGE + b"!").problem == "key-reused"


def test_reading_a_little_before_the_claim_loses_nothing(make_project: MakeProject) -> None:
    def peeking(view: Any) -> Any:
        def wrapper(request: HttpRequest) -> Any:
            assert request.read(3) == LARGE[:3]
            return view(request)

        return wrapper

    @peeking
    @idempotent
    def view(request: HttpRequest) -> JsonResponse:
        return JsonResponse({"rest": hashlib.sha256(request.read()).hexdigest()})

    project = make_project(path("", view))
    answer = project.post(body=LARGE)
    assert answer.json() == {"rest": hashlib.sha256(LARGE[3:]).hexdigest()}
    assert project.post(body=LARGE).is_replay
    assert project.post(body=b"?" + LARGE[1:]).status == 500  # `peeking` complains before anything is claimed
