"""Every probe, bare, on its real server: the handlers follow their plan before the product comes into it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.probe.answers import METHODS
from tests.probe.plan import deterministic_bytes
from tests.support.polling import eventually
from tests.support.probes import INSTALLED_FRAMEWORKS, RunningProbe, running_probe

pytestmark = [pytest.mark.thorough, pytest.mark.processes]


def only_on(*frameworks: str) -> pytest.MarkDecorator:
    """Run a test on the probes of those frameworks alone that have what it is about."""
    return pytest.mark.parametrize(
        "probe", [name for name in frameworks if name in INSTALLED_FRAMEWORKS], indirect=True, scope="module"
    )


WITH_BACKGROUND_TASKS = only_on("starlette", "fastapi")
WITH_SESSIONS = only_on("django-wsgi", "django-asgi", "flask")


@pytest.fixture(scope="module", params=INSTALLED_FRAMEWORKS)
def probe(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningProbe]:
    """One running probe of each framework for the whole module."""
    log = tmp_path_factory.mktemp("probe") / "log"
    with running_probe(request.param, log, bare=True) as running:
        yield running


@pytest.fixture
def client(probe: RunningProbe) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=probe.url, timeout=20) as client:
        yield client


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"n{uuid4().hex}"


def planned(**plan: Any) -> dict[str, str]:
    return {"X-Plan": json.dumps(plan)}


@pytest.mark.parametrize("method", [method for method in METHODS if method != "HEAD"])
def test_any_method_is_answered(client: httpx.Client, probe: RunningProbe, name: str, method: str) -> None:
    """The handler says which run it was, and the log has it."""
    answer = client.request(method, f"/probe/{name}")

    assert (answer.status_code, answer.json()) == (200, {"run": 1, "name": name})
    assert [record["method"] for record in probe.records(name)] == [method]


def test_a_head_request_runs_the_handler_and_has_no_body(client: httpx.Client, probe: RunningProbe, name: str) -> None:
    """As for any HTTP server."""
    assert client.head(f"/probe/{name}").content == b""
    assert probe.runs(name) == 1


@pytest.mark.parametrize("route", ["exempt", "optional", "decorated", "tenant", "body-key"])
def test_the_other_routes_have_the_same_handler(client: httpx.Client, name: str, route: str) -> None:
    """What differs is their protection, and a bare probe has none."""
    assert client.post(f"/{route}/{name}").json() == {"run": 1, "name": name}


def test_the_log_route_counts(client: httpx.Client, name: str) -> None:
    """Without a run it says zero."""
    assert client.get(f"/log/{name}").json() == {"runs": 0}
    client.post(f"/probe/{name}")
    client.post(f"/exempt/{name}")
    assert client.get(f"/log/{name}").json() == {"runs": 2}


def test_the_health_route_names_the_framework(client: httpx.Client, probe: RunningProbe) -> None:
    """And the process that answers."""
    answer = client.get("/healthz").json()

    assert answer.pop("pid") > 0
    assert answer == {"framework": probe.framework}


@pytest.mark.parametrize("token", [None, "Bearer bad-ann.1", "Basic YTpi"])
def test_nobody_gets_past_the_login_without_a_good_token(
    client: httpx.Client, probe: RunningProbe, name: str, token: str | None
) -> None:
    """The framework's own authorisation answers 403, and nothing runs."""
    answer = client.post(f"/login/{name}", headers={"Authorization": token} if token else {})

    assert (answer.status_code, probe.runs(name)) == (403, 0)


def test_a_good_token_opens_the_login(client: httpx.Client, name: str) -> None:
    """Whoever it belongs to."""
    answer = client.post(f"/login/{name}", headers={"Authorization": "Bearer good-ann.1"})

    assert answer.json() == {"run": 1, "name": name}


@pytest.mark.parametrize("status", [200, 201, 204, 301, 304, 402, 422, 500, 503])
def test_the_plan_decides_about_the_status(client: httpx.Client, name: str, status: int) -> None:
    """Any status can be answered."""
    assert client.post(f"/probe/{name}", headers=planned(status=status)).status_code == status


def test_headers_are_sent_as_planned(client: httpx.Client, name: str) -> None:
    """Repeated names stay repeated, in their order, and bytes beyond ASCII stay what they are."""
    headers = [["Link", "</a>"], ["X-City", "Zürich"], ["Link", "</b>"], ["Set-Cookie", "a=1"], ["Set-Cookie", "b=2"]]
    answer = client.post(f"/probe/{name}", headers=planned(headers=headers))

    assert answer.headers.get_list("link") == ["</a>", "</b>"]
    assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert [value for header, value in answer.headers.raw if header.lower() == b"x-city"] == [
        "Zürich".encode("latin-1")
    ]


def test_cookies_are_set_through_the_framework(client: httpx.Client, name: str) -> None:
    """A client keeps them."""
    assert dict(client.post(f"/probe/{name}", headers=planned(cookies={"a": "1", "b": "2"})).cookies) == {
        "a": "1",
        "b": "2",
    }


@pytest.mark.parametrize(
    ("plan", "body", "content_type"),
    [
        ({"body": '{"a":1}'}, b'{"a":1}', "application/json"),
        ({"body": "a,b", "content_type": "text/csv"}, b"a,b", "text/csv"),
        ({"body_b64": "AP8="}, b"\x00\xff", "application/octet-stream"),
        ({"size": 300_000}, deterministic_bytes(300_000), "application/octet-stream"),
    ],
    ids=["json", "csv", "bytes", "large"],
)
@pytest.mark.parametrize("chunks", [0, 4], ids=["whole", "streamed"])
def test_the_body_is_the_planned_one(
    client: httpx.Client, name: str, plan: dict[str, Any], body: bytes, content_type: str, chunks: int
) -> None:
    """Whole and streamed, with its media type untouched."""
    answer = client.post(f"/probe/{name}", headers=planned(**plan, chunks=chunks))

    assert (answer.content, answer.headers["content-type"]) == (body, content_type)


def test_a_streamed_answer_comes_piece_by_piece(client: httpx.Client, name: str) -> None:
    """The first piece is there while the handler still waits."""
    plan = planned(body="abcd", chunks=2, chunk_delay=0.3)
    with client.stream("POST", f"/probe/{name}", headers=plan) as answer:
        received = [piece for piece in answer.iter_raw() if piece]

    assert received == [b"ab", b"cd"]


def test_a_stream_can_break(client: httpx.Client, probe: RunningProbe, name: str) -> None:
    """The client sees that the answer is not whole, and the server lives on."""
    with pytest.raises(httpx.RemoteProtocolError):
        client.post(f"/probe/{name}", headers=planned(body="abcd", chunks=4, fail_after_chunk=2))
    assert probe.runs(name) == 1
    assert client.get("/healthz").status_code == 200


def test_an_exception_is_the_frameworks_500(client: httpx.Client, probe: RunningProbe, name: str) -> None:
    """The log has the run all the same: its line comes first."""
    assert client.post(f"/probe/{name}", headers=planned(**{"raise": "boom"})).status_code == 500
    assert probe.runs(name) == 1


@pytest.mark.parametrize("status", [403, 404, 409, 418, 503])
def test_an_abort_answers_its_status(client: httpx.Client, probe: RunningProbe, name: str, status: int) -> None:
    """Through the framework's own exception, where it has one."""
    assert client.post(f"/probe/{name}", headers=planned(abort=status)).status_code == status
    assert probe.runs(name) == 1


def test_a_malformed_plan_is_a_500_that_says_why(client: httpx.Client, name: str) -> None:
    """It is a bug of the test that sent it."""
    answer = client.post(f"/probe/{name}", headers={"X-Plan": '{"statsu": 201}'})

    assert (answer.status_code, answer.text) == (500, "X-Plan has unknown members: statsu")


@pytest.mark.parametrize("read", ["body", "stream"])
def test_an_echo_tells_the_request_unchanged(client: httpx.Client, probe: RunningProbe, name: str, read: str) -> None:
    """Method, path, query and the digest of the body, in both ways to read it."""
    body = deterministic_bytes(100_000)
    answer = client.put(f"/probe/{name}?b=2&a=1&a=%2F", content=body, headers=planned(echo=True, read=read))

    digest = hashlib.sha256(body).hexdigest()
    assert answer.json() == {
        "run": 1,
        "name": name,
        "method": "PUT",
        "path": f"/probe/{name}",
        "query": "b=2&a=1&a=%2F",
        "body_sha256": digest,
        "form": {},
        "files": {},
        "attempt": None,
    }
    assert probe.records(name)[0]["body_sha256"] == digest


def test_a_multipart_form_is_seen_with_its_files(client: httpx.Client, name: str) -> None:
    """Through the framework's own parser."""
    content = deterministic_bytes(3000)
    answer = client.post(
        f"/probe/{name}",
        data={"amount": "12", "tags": ["a", "b"]},
        files={"doc": ("a.bin", content)},
        headers=planned(echo=True, read="form"),
    ).json()

    assert answer["form"] == {"amount": "12", "tags": ["a", "b"]}
    assert answer["files"] == {"doc": ["a.bin", 3000, hashlib.sha256(content).hexdigest()]}


def test_an_urlencoded_form_is_seen(client: httpx.Client, name: str) -> None:
    """Decoded, as frameworks give it."""
    answer = client.post(f"/probe/{name}", data={"note": "a b"}, headers=planned(echo=True, read="form")).json()

    assert (answer["form"], answer["files"]) == ({"note": "a b"}, {})


def test_a_body_can_be_left_unread(client: httpx.Client, name: str) -> None:
    """The connection serves the next request all the same."""
    for run in (1, 2):
        answer = client.post(f"/probe/{name}", content=b"x" * 1000, headers=planned(read="none"))
        assert answer.json() == {"run": run, "name": name}


@WITH_BACKGROUND_TASKS
def test_a_background_task_runs_after_the_answer(client: httpx.Client, probe: RunningProbe, name: str) -> None:
    """It logs under a name of its own."""
    client.post(f"/probe/{name}", headers=planned(background=0.05))

    eventually(lambda: probe.runs(f"{name}.background") == 1, what="the background task's line in the log")
    assert probe.runs(name) == 1


@WITH_BACKGROUND_TASKS
def test_a_background_task_that_raises_harms_no_other_request(client: httpx.Client, probe: RunningProbe) -> None:
    """Its answer had long been sent; all that the server does is to close this connection."""
    assert client.post(f"/probe/n{uuid4().hex}", headers=planned(background_raise=True)).status_code == 200
    assert httpx.get(f"{probe.url}/healthz").status_code == 200


@WITH_SESSIONS
def test_a_session_is_kept_in_a_cookie(client: httpx.Client, name: str) -> None:
    """The framework's own sessions, and only where the plan asks for one."""
    assert not client.post(f"/probe/{name}").headers.get_list("set-cookie")
    assert client.post(f"/probe/{name}", headers=planned(session={"user": "ann"})).headers.get_list("set-cookie")
