"""What the IETF draft "The Idempotency-Key HTTP Header Field" asks of a server, requirement by requirement.

The numbers in the headings of the sections are those of the sections of the draft (an expired Internet-Draft).
"""

from __future__ import annotations

import json
from uuid import uuid4

import httpx
import pytest

from tests.servers.client import (
    MARK,
    A,
    B,
    Service,
    is_fresh,
    is_problem,
    is_replay,
    plan,
    statuses,
)
from tests.servers.probes import DOCS_URL
from tests.support.polling import eventually

pytestmark = [pytest.mark.processes, pytest.mark.dynamodb_local]

DAY = 86400


# --- 2.1 and 2.2: the key ---------------------------------------------------------------------------------------------


def test_a_quoted_key_is_taken(service: Service) -> None:
    """The field is a structured item, and its value a string."""
    is_fresh(service.send(key=f'"{service.key}"'))
    service.ran(1)


def test_strict_servers_take_only_strings(demanding_service: Service) -> None:
    """A raw value is a token or nothing at all, and neither is a string."""
    is_problem(demanding_service.send(key=demanding_service.key), "key-invalid", 400)
    is_problem(demanding_service.send(key="k"), "key-invalid", 400)
    demanding_service.ran(0)
    is_fresh(demanding_service.send(key=f'"{demanding_service.key}"'))


def test_a_server_defines_what_its_keys_look_like(demanding_service: Service) -> None:
    """This one asks for UUIDs."""
    is_problem(demanding_service.send(key='"k"'), "key-invalid", 400)
    demanding_service.ran(0)
    is_fresh(demanding_service.send(key=f'"{uuid4()}"'))


# --- 2.3: expiry ------------------------------------------------------------------------------------------------------


def test_a_key_is_kept_for_its_retention_and_no_longer(service: Service) -> None:
    """Its own instant decides, not the sweeper: the record is still there when the key is free again."""
    first = service.send()
    service.let_pass(DAY - 60)
    is_replay(service.send(), first)
    service.let_pass(61)
    stands = service.record()
    assert stands is not None
    assert stands["status"] == "COMPLETED"

    is_fresh(service.send(body=B))
    service.ran(2)


def test_an_expired_key_is_refused_while_its_tombstone_stands(demanding_service: Service) -> None:
    """It is known for longer than its answer is kept, and then it is free."""
    first = demanding_service.send()
    demanding_service.let_pass(DAY + 1)
    is_problem(demanding_service.send(), "key-expired", 409)
    demanding_service.ran(1)
    demanding_service.let_pass(7 * DAY)
    again = demanding_service.send()
    is_fresh(again)
    assert again.content != first.content
    demanding_service.ran(2)


def test_a_short_retention_passes_by_itself(single_service: Service) -> None:
    """Two seconds by the servers' own clocks."""
    first = single_service.send(route="decorated")
    is_replay(single_service.send(route="decorated"), first)

    def fresh() -> httpx.Response | None:
        answer = single_service.send(route="decorated")
        return None if MARK in answer.headers else answer

    again = eventually(fresh, what="the end of the retention", every_seconds=0.1)
    is_fresh(again)
    assert again.json()["run"] == 2
    stands = single_service.record()
    assert stands is not None
    # The same item went on: it was claimed and completed, twice.
    assert (stands["version"], stands["attempt"]) == ("4", "1")


# --- 2.4: fingerprints ------------------------------------------------------------------------------------------------


def test_the_same_request_is_recognised(service: Service) -> None:
    """White space and the order of members make no other JSON."""
    first = service.send(body=b'{"a": 1, "b": [2]}')
    is_replay(service.send(body=b'{"a": 1, "b": [2]}'), first)
    is_replay(service.send(body=b'{"b":[2],"a":1}'), first)
    service.ran(1)


def test_a_part_of_the_payload_can_be_what_counts(service: Service) -> None:
    """Whatever changes outside of it, such as the time of sending."""

    def body(sent_at: int, amount: int) -> bytes:
        detail = {"orderId": service.name, "amount": amount}
        return json.dumps({"ts": sent_at, "detail": detail}).encode()

    first = service.send(route="body-key", key=None, body=body(1, 5))
    is_fresh(first)
    is_replay(service.send(route="body-key", key=None, body=body(2, 5)), first)
    is_problem(service.send(route="body-key", key=None, body=body(1, 6)), "key-reused", 422)
    service.ran(1)


# --- 2.5: what clients and servers do ---------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["", '"', "a b"], ids=["valid", "unbalanced", "with a space"])
def test_a_key_where_none_is_asked_for_is_ignored(service: Service, key: str) -> None:
    """Clients may send it anywhere, even a malformed one: with a GET, or to a view that is exempt."""
    for _ in range(2):
        is_fresh(service.send(plan(status=200), method="GET", key=key, body=b""), 200)
        is_fresh(service.send(route="exempt", key=key))
    service.ran(4)
    assert service.record() is None
    assert service.operations == []


def test_refusals_link_to_the_documentation(demanding_service: Service) -> None:
    """In the body and in a header."""
    refused = demanding_service.send(key=None)
    is_problem(refused, "key-missing", 400)
    assert refused.json()["type"].startswith(DOCS_URL)
    assert refused.headers["link"] == f'<{DOCS_URL}/key-missing>; rel="describedby"'


def test_who_is_not_let_in_leaves_no_record(service: Service) -> None:
    """Authorisation comes before the claim."""
    for credentials in ({}, {"Authorization": "Bearer bad-ann.1"}):
        assert service.send(route="login", headers=credentials).status_code == 403
    assert service.record() is None
    assert service.record(caller="ann") is None

    is_fresh(service.send(route="login", headers={"Authorization": "Bearer good-ann.1"}))
    service.ran(1)


def test_a_view_that_asks_for_credentials_ran_but_is_not_final(service: Service) -> None:
    """A 401 of the view's own leaves a failed attempt, and the retry runs again."""
    is_fresh(service.send(plan(status=401)), 401)
    stands = service.record()
    assert stands is not None
    assert stands["status"] == "FAILED"

    again = service.send()
    is_fresh(again)
    service.ran(2)
    is_replay(service.send(), again)


# --- 2.6: first, repeated, concurrent ---------------------------------------------------------------------------------


def test_of_fifty_first_requests_one_runs(service: Service) -> None:
    """The others are told to come back, or get its answer if they came after it.

    Sources: mastodon/mastodon#37879, RatLoopz/sahidawa-india#3393, square1-io/laravel-idempotency#1,
    yoyowallet/django-idempotency-key's middleware.py.
    """
    sent = [service.send_in_background(plan(delay=0.3)) for _ in range(50)]
    answers = [request.result() for request in sent]

    service.ran(1)
    winners = [answer for answer in answers if answer.status_code == 201 and MARK not in answer.headers]
    assert len(winners) == 1
    assert set(statuses(answers)) <= {201, 409}
    for answer in answers:
        if answer.status_code == 409:
            is_problem(answer, "in-progress", 409, retry=True)
        elif answer is not winners[0]:
            is_replay(answer, winners[0])
    is_replay(service.send(), winners[0])


@pytest.mark.parametrize("status", [200, 201, 202, 204, 302, 303, 400, 402, 404, 409, 410, 422])
def test_a_repeated_request_gets_the_first_answer(single_service: Service, status: int) -> None:
    """A success or an error of the view's, with its body and its headers."""
    first = single_service.send(plan(status=status, headers=[["Location", "/orders/7"], ["X-Order", "7"]]))
    is_fresh(first, status)
    again = single_service.send(plan(status=500, body="another answer"))
    is_replay(again, first)
    assert (again.headers["location"], again.headers["x-order"]) == ("/orders/7", "7")
    single_service.ran(1)


def test_every_worker_replays(service: Service) -> None:
    """Whichever the retry comes to: ten times, byte by byte, with repeated headers in their order."""
    links = [["Link", "</a>; rel=next"], ["X-Between", "1"], ["Link", "</b>; rel=prev"]]
    first = service.send(plan(headers=links, body_b64="AAECA/8=", content_type="application/x-raw"))
    for _ in range(10):
        again = service.send(plan(status=500))
        is_replay(again, first)
        assert again.headers.get_list("link") == ["</a>; rel=next", "</b>; rel=prev"]
        assert again.content == b"\x00\x01\x02\x03\xff"
    service.ran(1)


def test_while_the_first_request_runs_others_are_told(service: Service) -> None:
    """Its copies come too early (409), a different request under its key is a mistake (422), and neither harms it.

    Sources: ietf-wg-httpapi/idempotency#11, novuhq/docs#202, idempot-dev/idempot-js#183.
    """
    running = service.send_in_background(plan(delay=1))
    service.is_running()

    is_problem(service.send(), "in-progress", 409, retry=True)
    is_problem(service.send(body=B), "key-reused", 422)
    is_problem(service.send(), "in-progress", 409, retry=True)

    first = running.result()
    is_fresh(first)
    is_replay(service.send(), first)
    service.ran(1)


def test_a_copy_that_waits_gets_the_first_answer(demanding_service: Service) -> None:
    """As soon as it is there."""
    running = demanding_service.send_in_background(plan(delay=0.8))
    demanding_service.is_running()
    copies = [demanding_service.send_in_background() for _ in range(8)]

    first = running.result()
    is_fresh(first)
    for copy in copies:
        is_replay(copy.result(), first)
    demanding_service.ran(1)


# --- 2.7: errors ------------------------------------------------------------------------------------------------------


def test_a_missing_key_is_refused_where_one_is_needed(service: Service) -> None:
    """And nowhere else."""
    is_problem(service.send(key=None), "key-missing", 400)
    service.ran(0)
    for _ in range(2):
        is_fresh(service.send(route="optional", key=None))
    service.ran(2)


def test_an_optional_key_protects(service: Service) -> None:
    """Whoever sends one means it."""
    first = service.send(route="optional")
    is_replay(service.send(route="optional"), first)
    is_problem(service.send(route="optional", key='"'), "key-invalid", 400)
    service.ran(1)


@pytest.mark.parametrize(
    "changed",
    [
        {"body": B},
        {"body": b""},
        {"query": "?page=2"},
        {"method": "PUT"},
        {"name": "another"},
        {"headers": {"Content-Type": "text/plain"}},
    ],
    ids=["body", "no body", "query", "method", "path", "media type"],
)
def test_another_request_under_the_same_key_is_refused(single_service: Service, changed: dict[str, object]) -> None:
    """Each time that it comes, and without harm to the first one's record."""
    first = single_service.send()
    for _ in range(2):
        is_problem(single_service.send(**changed), "key-reused", 422)  # type: ignore[arg-type]
    is_replay(single_service.send(), first)
    single_service.ran(1)


def test_any_worker_refuses_a_reused_key(service: Service) -> None:
    """The record knows what the request was."""
    first = service.send(body=A)
    for _ in range(4):
        is_problem(service.send(body=B), "key-reused", 422)
    is_replay(service.send(body=A), first)
    service.ran(1)


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_server_error_is_not_final(single_service: Service, status: int) -> None:
    """The retry runs, and what it gets is."""
    is_fresh(single_service.send(plan(status=status)), status)
    second = single_service.send()
    is_fresh(second)
    is_replay(single_service.send(), second)
    single_service.ran(2)


# --- Security considerations, section 1, and the registration ---------------------------------------------------------


def test_a_key_belongs_to_its_principal(service: Service) -> None:
    """Two of them use the same key, and each gets an answer of its own.

    Sources: kortix-ai/suna#5267, arun0009/idempotent#217, jox-sm/deepslate-rpg#104, josipmusa/idempotency4j#9,
    apache/polaris#3803.
    """
    ann, bob = {"X-Tenant": "ann"}, {"X-Tenant": "bob"}
    of_ann, of_bob = service.send(route="tenant", headers=ann), service.send(route="tenant", headers=bob)
    is_fresh(of_ann)
    is_fresh(of_bob)
    assert of_ann.content != of_bob.content
    is_replay(service.send(route="tenant", headers=ann), of_ann)
    is_replay(service.send(route="tenant", headers=bob), of_bob)
    service.ran(2)


def test_a_principal_that_is_not_known_is_refused(service: Service) -> None:
    """It falls into nobody else's share.

    Source: KanishJebaMathewM/Truxify#2382.
    """
    is_problem(service.send(route="tenant"), "caller-unknown", 403)
    service.ran(0)


def test_the_key_itself_is_stored_nowhere(service: Service) -> None:
    """Whatever it holds, the record has a digest for a name."""
    key = f"' OR 1 {service.key}"
    is_fresh(service.send(key=f'"{key}"'))
    stands = service.record(key)
    assert stands is not None
    assert len(stands["pk"]) == 64
    assert service.key not in repr(stands)


def test_a_key_that_is_too_long_is_refused(service: Service) -> None:
    """And not repeated to whoever reads the answer."""
    refused = service.send(key=f'"{"k" * 256}"')
    is_problem(refused, "key-invalid", 400)
    assert "kkk" not in refused.text
    service.ran(0)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_methods_that_change_something_are_covered(single_service: Service, method: str) -> None:
    """PUT and DELETE as well: idempotent by definition, they still have answers to give again."""
    first = single_service.send(method=method)
    is_fresh(first)
    is_replay(single_service.send(method=method), first)
    single_service.ran(1)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_methods_that_change_nothing_pass(single_service: Service, method: str) -> None:
    """With a key and without."""
    for key in ("", None, "", '"'):
        is_fresh(single_service.send(plan(status=200), method=method, key=key, body=b""), 200)
    single_service.ran(4)
    assert single_service.operations == []


def test_the_key_is_never_in_an_answer(service: Service) -> None:
    """The field is for requests, and a key can be a secret: not even a view's own echo is stored."""
    echoed = plan(headers=[["X-Order", "7"]])
    answers = [service.send(echoed), service.send(), service.send(body=B), service.send(key=f'"{service.key}')]
    assert [answer.status_code for answer in answers] == [201, 201, 422, 400]
    for answer in answers:
        assert "idempotency-key" not in answer.headers
        assert service.key not in f"{answer.headers} {answer.text}"
