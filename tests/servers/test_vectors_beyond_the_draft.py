"""What no standard says and every deployment meets: leases and faults of the store, and the layers around a view."""

from __future__ import annotations

import gzip
from base64 import b64encode
from uuid import uuid4

import httpx
import pytest

from tests.servers.client import MARK, A, Service, is_fresh, is_problem, is_replay, plan
from tests.servers.probes import ONE_WORKER, Probes
from tests.support.fault_proxy import HANGING, LOST_REPLY, REFUSED, Fault, StoreCall, answering
from tests.support.http import RawConnection, request_head
from tests.support.polling import eventually
from tests.support.probes import INSTALLED_FRAMEWORKS

pytestmark = [pytest.mark.processes, pytest.mark.dynamodb_local, pytest.mark.thorough]

# A lease of the default length, the margin for skewed clocks, and more.
A_LEASE_AND_MORE = 70


def installed(*frameworks: str) -> list[str]:
    return [name for name in frameworks if name in INSTALLED_FRAMEWORKS]


# --- the fence --------------------------------------------------------------------------------------------------------


def test_whoever_wakes_too_late_gives_the_winners_answer(service: Service) -> None:
    """Its lease went by while it worked, another one took the key over and was done first: that answer stands."""
    late = service.send_in_background(plan(delay=1.5, body="the late one's"))
    service.is_running()
    service.let_pass(A_LEASE_AND_MORE)
    winner = service.send(plan(body="the winner's"))
    is_fresh(winner)
    assert not late.done()

    is_replay(late.result(), winner)
    is_replay(service.send(), winner)
    service.ran(2)
    assert service.operations == ["PutItem", "PutItem", "UpdateItem", "UpdateItem", "UpdateItem", "PutItem"]


# --- faults of the store ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [LOST_REPLY, answering(500, "InternalServerError", applied=True)],
    ids=["lost reply", "error answer"],
)
def test_a_claim_that_meets_itself_is_no_duplicate(single_service: Service, fault: Fault) -> None:
    """It was written, nobody said so, it was sent again and found itself: the request runs, at once."""
    with single_service.proxy.failing(fault, pk=single_service.pk(), operation="PutItem", times=1) as failing:
        first = single_service.send()
    assert failing.struck == 1
    is_fresh(first)
    is_replay(single_service.send(), first)
    single_service.ran(1)
    claim, claim_again, *_ = single_service.proxy.calls(single_service.pk())
    assert (claim.status, claim_again.failed_condition) == (200, True)
    assert claim.writes("owner") == claim_again.writes("owner")


@pytest.mark.parametrize(
    "fault",
    [LOST_REPLY, answering(500, "InternalServerError", applied=True)],
    ids=["lost reply", "error answer"],
)
def test_a_record_that_meets_itself_is_written(single_service: Service, fault: Fault) -> None:
    """The same with the completion: its answer is given once and kept."""
    with single_service.proxy.failing(fault, pk=single_service.pk(), operation="UpdateItem", times=1) as failing:
        first = single_service.send()
    assert failing.struck == 1
    is_fresh(first)
    is_replay(single_service.send(), first)
    single_service.ran(1)
    assert single_service.operations == ["PutItem", "UpdateItem", "UpdateItem", "PutItem"]


def test_without_the_store_nothing_runs(single_service: Service) -> None:
    """Whether it refuses or is silent: the client gets a 503 and may come again; when the store is back, it runs.

    Sources: Dev1822/paySphere#1919, unkeyed/unkey#5282, novuhq/novu#4531.
    """
    refused, silent = str(uuid4()), str(uuid4())
    failing = single_service.proxy.failing
    with failing(REFUSED, pk=single_service.pk(refused)), failing(HANGING, pk=single_service.pk(silent)):
        sent = [single_service.send_in_background(key=f'"{key}"') for key in (refused, silent)]
        for request in sent:
            is_problem(request.result(), "store-unavailable", 503, retry=True)
    single_service.ran(0)
    for key in (refused, silent):
        is_fresh(single_service.send(key=f'"{key}"'))
    single_service.ran(2)


@pytest.mark.parametrize(
    "fault",
    [
        answering(400, "ProvisionedThroughputExceededException"),
        answering(400, "ThrottlingException"),
        answering(500, "InternalServerError"),
        answering(503, "ServiceUnavailable"),
        REFUSED,
    ],
    ids=["throttled", "throttled too", "internal error", "unavailable", "reset"],
)
def test_a_fault_that_passes_is_not_seen(single_service: Service, fault: Fault) -> None:
    """Twice at each write, and the client knows nothing of it."""
    pk = single_service.pk()
    with (
        single_service.proxy.failing(fault, pk=pk, operation="PutItem", times=2),
        single_service.proxy.failing(fault, pk=pk, operation="UpdateItem", times=2),
    ):
        first = single_service.send()
    is_fresh(first)
    is_replay(single_service.send(), first)
    single_service.ran(1)
    assert single_service.operations == [*["PutItem"] * 3, *["UpdateItem"] * 3, "PutItem"]


def test_a_table_that_can_not_be_used_is_said_at_once(single_service: Service) -> None:
    """No retry would mend it."""
    fault = answering(400, "AccessDeniedException")
    with single_service.proxy.failing(fault, pk=single_service.pk()) as failing:
        is_problem(single_service.send(), "store-unavailable", 503, retry=True)
    assert failing.struck == 1
    single_service.ran(0)


def test_an_answer_that_can_not_be_recorded_is_given_and_recorded_later(single_service: Service) -> None:
    """The handler ran, so its client gets the true answer; until the record is written, others must wait.

    Sources: aws-powertools/powertools-lambda-typescript#2944, ikyriak/IdempotentAPI#57.
    """
    with single_service.proxy.failing(REFUSED, pk=single_service.pk(), operation="UpdateItem") as failing:
        first = single_service.send()
        is_fresh(first)
        is_problem(single_service.send(), "in-progress", 409, retry=True)
    assert failing.struck > 1

    is_replay(eventually_settled(single_service), first)
    single_service.ran(1)


def test_an_answer_that_is_never_recorded_can_be_had_again_after_the_lease(single_service: Service) -> None:
    """Whoever ran it never gets through to the store. This second run is documented."""
    pk = single_service.pk()
    first_one: list[str | None] = []

    def by_the_first(call: StoreCall) -> bool:
        first_one[:] = first_one or [call.writes("owner")]
        return call.writes("owner") == first_one[0]

    fault = answering(400, "AccessDeniedException")
    with single_service.proxy.failing(fault, pk=pk, operation="UpdateItem", matching=by_the_first):
        first = single_service.send()
        is_fresh(first)
        is_problem(single_service.send(), "in-progress", 409, retry=True)
        single_service.let_pass(A_LEASE_AND_MORE)
        second = single_service.send(plan(echo=True))
        is_fresh(second)
        assert second.json()["attempt"] == 2
        is_replay(single_service.send(), second)
    single_service.ran(2)


def eventually_settled(service: Service) -> httpx.Response:
    """Give the first answer that is no 409."""

    def settled() -> httpx.Response | None:
        answer = service.send()
        return None if answer.status_code == 409 else answer

    return eventually(settled, what="the end of what is in progress", every_seconds=0.1)


# --- failures of the view ---------------------------------------------------------------------------------------------


def test_a_view_that_raises_may_run_again(service: Service) -> None:
    """Its client gets the framework's 500, the retry its own answer.

    Sources: snok/asgi-idempotency-header#16, Kludex/starlette#1175.
    """
    is_fresh(service.send(plan(**{"raise": "planned"})), 500)
    second = service.send()
    is_fresh(second)
    is_replay(service.send(), second)
    service.ran(2)


@pytest.mark.parametrize("status", [500, 503])
def test_a_server_error_can_be_final(demanding_service: Service, status: int) -> None:
    """If it is an answer that passes through us, and the options say so."""
    first = demanding_service.send(plan(status=status, body="it broke"))
    is_fresh(first, status)
    is_replay(demanding_service.send(), first)
    demanding_service.ran(1)


# --- routing ----------------------------------------------------------------------------------------------------------


def test_a_redirect_to_the_same_request_elsewhere_does_not_use_the_key_up(service: Service) -> None:
    """The client follows a 307 or 308 with the same key, and is no thief of it."""
    first_at = f"{service.name}-moved"
    for status in (307, 308):
        redirect = plan(status=status, headers=[["Location", f"/probe/{service.name}"]])
        is_fresh(service.send(redirect, name=first_at), status)
    first = service.send()
    is_fresh(first)
    is_replay(service.send(), first)
    service.ran(1)


@pytest.mark.parametrize("framework", installed("starlette", "fastapi"))
def test_a_slash_too_many_is_redirected_before_the_key_is_used(probes: Probes, framework: str) -> None:
    """By the router, without any view."""
    with probes.service(framework, ONE_WORKER) as service:
        redirected = service.send(name=f"{service.name}/")
        is_fresh(redirected, 307)
        assert redirected.headers["location"].endswith(f"/probe/{service.name}")
        first = service.send()
        is_fresh(first)
        is_replay(service.send(), first)
        service.ran(1)


def test_a_path_that_is_not_there_yet_does_not_use_the_key_up(service: Service) -> None:
    """No view has seen the request: the key is as good as new."""
    for _ in range(2):
        is_fresh(service.send(route="not-deployed-yet"), 404)
    first = service.send()
    is_fresh(first)
    is_replay(service.send(), first)
    service.ran(1)


def test_a_404_of_the_view_is_its_answer(service: Service) -> None:
    """It looked for something and did not find it, this time and in every replay."""
    first = service.send(plan(abort=404))
    is_fresh(first, 404)
    is_replay(service.send(), first)
    service.ran(1)


# --- other layers -----------------------------------------------------------------------------------------------------


def test_another_origin_gets_its_own_permission(demanding_service: Service) -> None:
    """The middleware outside answers each origin, the first and those of the replays.

    Sources: NousResearch/hermes-agent#3530, vibeunion/supacloud#435, LabsCrypt/remitlend#913,
    koala73/worldmonitor#4769.
    """
    first = demanding_service.send(headers={"Origin": "https://a.example"})
    is_fresh(first)
    assert first.headers.get_list("access-control-allow-origin") == ["https://a.example"]

    again = demanding_service.send(headers={"Origin": "https://b.example"})
    is_replay(again, first)
    assert again.headers.get_list("access-control-allow-origin") == ["https://b.example"]
    assert again.headers["vary"] == "Origin"


def test_a_permission_that_the_view_gave_is_not_given_to_another_origin(service: Service) -> None:
    """Where there is no such middleware, the view's own header was for the first client."""
    headers = [["Access-Control-Allow-Origin", "https://a.example"], ["Vary", "Origin"]]
    first = service.send(plan(headers=headers), headers={"Origin": "https://a.example"})
    assert first.headers["access-control-allow-origin"] == "https://a.example"

    again = service.send(headers={"Origin": "https://b.example"})
    is_replay(again, first)
    assert "access-control-allow-origin" not in again.headers
    assert "Origin" in again.headers["vary"]


def test_compression_is_a_matter_of_each_client(demanding_service: Service) -> None:
    """What is kept is not compressed: each retry gets what it can read."""
    planned = plan(size=5000)
    first = demanding_service.send(planned, headers={"Accept-Encoding": "gzip"})
    assert first.headers["content-encoding"] == "gzip"

    plain = demanding_service.send(planned)
    is_replay(plain, first)
    assert "content-encoding" not in plain.headers
    is_replay(demanding_service.send(planned, headers={"Accept-Encoding": "gzip"}), first)
    demanding_service.ran(1)


def test_what_the_view_compressed_itself_is_replayed_as_it_was(service: Service) -> None:
    """It is the view's answer, byte by byte."""
    body = gzip.compress(b"hello" * 100)
    headers = [["Content-Encoding", "gzip"]]
    planned = plan(body_b64=b64encode(body).decode(), headers=headers, content_type="text/plain")
    first = service.send(planned)
    assert first.text == "hello" * 100
    again = service.send(planned)
    is_replay(again, first)
    assert again.headers["content-encoding"] == "gzip"


def multipart(boundary: str, document: bytes) -> tuple[bytes, dict[str, str]]:
    parts = [
        b'Content-Disposition: form-data; name="amount"\r\n\r\n12',
        b'Content-Disposition: form-data; name="doc"; filename="a.bin"\r\n'
        b"Content-Type: application/octet-stream\r\n\r\n" + document,
    ]
    mark = boundary.encode()
    body = b"".join(b"--" + mark + b"\r\n" + part + b"\r\n" for part in parts) + b"--" + mark + b"--\r\n"
    return body, {"Content-Type": f"multipart/form-data; boundary={boundary}"}


def test_a_form_is_the_same_whatever_its_boundary(service: Service) -> None:
    """Clients draw a new one for each try; one byte of one part makes another form.

    Sources: chatvector-ai/chatvector-ai#520, asimons81/wp-chatgpt-publisher#14, buildinternet/uploads#835.
    """
    body, headers = multipart("first", b"\x00\x01")
    first = service.send(plan(read="form", echo=True), body=body, headers=headers)
    is_fresh(first)
    assert first.json()["form"] == {"amount": "12"}
    assert first.json()["files"]["doc"][:2] == ["a.bin", 2]

    body, headers = multipart("second", b"\x00\x01")
    is_replay(service.send(body=body, headers=headers), first)
    body, headers = multipart("first", b"\x00\x02")
    is_problem(service.send(body=body, headers=headers), "key-reused", 422)
    service.ran(1)


@pytest.mark.parametrize("leaves", ["close", "reset"])
def test_a_client_that_leaves_finds_its_answer(service: Service, leaves: str) -> None:
    """The work goes on without it, and its retry gets what came out.

    Source: caura-ai/caura#1629.
    """
    lines = [
        f'Idempotency-Key: "{service.key}"',
        "Content-Type: application/json",
        'X-Plan: {"status": 201, "delay": 0.5}',
    ]
    connection = RawConnection(service.probe.port)
    connection.send(request_head("POST", f"/probe/{service.name}", *lines, length=len(A)) + A)
    service.is_running()
    getattr(connection, leaves)()

    answer = eventually_settled(service)
    assert answer.status_code == 201
    assert answer.headers[MARK] == "true"
    assert answer.json() == {"run": 1, "name": service.name}
    service.ran(1)


@pytest.mark.parametrize("framework", installed("starlette", "fastapi"))
def test_a_background_task_holds_no_retry_up(probes: Probes, framework: str) -> None:
    """It runs once, after the answer, and the answer is there for a retry long before its end.

    Sources: VibeTensor/attestix#128, Kludex/starlette#1438, Kludex/starlette#2688.
    """
    with probes.service(framework, ONE_WORKER) as service:
        first = service.send(plan(background=1.5))
        is_fresh(first)
        is_replay(service.send(plan(background=1.5)), first)
        assert service.probe.runs(f"{service.name}.background") == 0
        eventually(lambda: service.probe.runs(f"{service.name}.background"), what="the background task")
        is_replay(service.send(), first)
        service.ran(1)
        assert service.probe.runs(f"{service.name}.background") == 1


@pytest.mark.parametrize("framework", installed("starlette", "fastapi"))
def test_a_background_task_that_raises_changes_no_answer(probes: Probes, framework: str) -> None:
    """The request was done before."""
    with probes.service(framework, ONE_WORKER) as service:
        first = service.send(plan(background=0, background_raise=True))
        is_fresh(first)
        is_replay(service.send(), first)
        service.ran(1)


def test_a_replay_needs_the_same_permission_as_the_first_answer(service: Service) -> None:
    """Whoever lost it gets the layer's refusal; a refreshed token is the same caller.

    Sources: margince/margince#5315, MCKRUZ/microsoft-agentic-harness#127.
    """
    first = service.send(route="login", headers={"Authorization": "Bearer good-ann.1"})
    is_fresh(first)
    is_replay(service.send(route="login", headers={"Authorization": "Bearer good-ann.2"}), first)

    refused = service.send(route="login", headers={"Authorization": "Bearer bad-ann.1"})
    is_fresh(refused, 403)
    assert first.text not in refused.text
    service.ran(1)


def test_other_credentials_get_no_answer_and_run_nothing(service: Service) -> None:
    """Where no caller is configured, the credentials of the first request are what tells its owner."""
    first = service.send(headers={"Authorization": "Bearer ann"})
    is_fresh(first)
    for credentials in ({"Authorization": "Bearer bob"}, {}, {"X-Api-Key": "k"}):
        is_problem(service.send(headers=credentials), "credentials-changed", 422)
    is_replay(service.send(headers={"Authorization": "Bearer ann"}), first)
    service.ran(1)


@pytest.mark.parametrize("status", [401, 403])
def test_credentials_that_the_view_turns_away_do_not_own_the_key(single_service: Service, status: int) -> None:
    """A refreshed token is what the answer asks for; whoever runs the work with it is the key's owner from then on."""
    service = single_service
    old, new = ({"Authorization": f"Bearer {token}"} for token in ("old", "new"))
    is_fresh(service.send(plan(status=status), headers=old), status)
    first = service.send(headers=new)
    is_fresh(first)
    is_replay(service.send(headers=new), first)
    is_problem(service.send(headers=old), "credentials-changed", 422)
    service.ran(2)


def test_a_preflight_needs_no_key(service: Service) -> None:
    """Browsers send none with it."""
    headers = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    is_fresh(service.send(plan(status=204), method="OPTIONS", key=None, body=b"", headers=headers), 204)
    service.ran(1)


# --- keys and records -------------------------------------------------------------------------------------------------


def test_two_field_lines_are_refused_even_if_they_say_the_same(service: Service) -> None:
    """Of two keys it is not known which one is meant."""
    for value in (service.key, f'"{service.key}"'):
        assert service.send_raw(*[f"Idempotency-Key: {value}"] * 2).status == 400
    service.ran(0)
    assert service.record() is None


def test_quotes_make_no_other_key(service: Service) -> None:
    """A client that mends its quoting between two tries does not run twice."""
    first = service.send(key=service.key)
    is_fresh(first)
    is_replay(service.send(key=f'"{service.key}"'), first)
    is_replay(service.send(key=f'"{service.key}";v=1'), first)
    service.ran(1)


@pytest.fixture(params=["newer", "damaged"])
def unreadable(request: pytest.FixtureRequest, service: Service) -> Service:
    """A service whose key has a record of another version, or one that makes no sense."""
    is_fresh(service.send())
    value = {"N": "99"} if request.param == "newer" else {"S": "one"}
    service.table.overwrite(service.pk(), "schema", value)
    return service


def test_a_record_that_can_not_be_read_is_never_a_reason_to_run(unreadable: Service) -> None:
    """Who wrote it knew what it means: the client has to look its result up.

    Source: apache/polaris#5122.
    """
    for _ in range(2):
        is_problem(unreadable.send(), "record-unreadable", 409)
    unreadable.ran(1)


def test_a_record_of_a_newer_version_ends_too(unreadable: Service) -> None:
    """When a key is free is something that all versions agree on."""
    unreadable.let_pass(86401)
    is_fresh(unreadable.send())
    unreadable.ran(2)


def test_cookies_are_for_the_first_client_alone(service: Service) -> None:
    """A replay may go to another device, or long after a logout."""
    headers = [["Set-Cookie", "raw=1; Path=/"], ["X-Order", "7"]]
    first = service.send(plan(cookies={"session": "secret"}, headers=headers))
    assert {cookie.split("=")[0] for cookie in first.headers.get_list("set-cookie")} == {"session", "raw"}

    again = service.send()
    is_replay(again, first)
    assert "set-cookie" not in again.headers
    assert again.headers["x-order"] == "7"
