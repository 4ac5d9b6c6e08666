"""Failures that users of other idempotency layers reported, each as the behaviour that Flask has here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from flask import Flask, Response, jsonify, request
from flask.typing import ResponseReturnValue

from idem_flask import Idempotency
from idem_middleware import EventKind
from idem_middleware.records import KeptResponse, Status
from idem_middleware.stores.base import Written
from tests.adapters.flask.shop import Shop, post, problem, replayed
from tests.adapters.support.bench import Bench


def test_a_rejected_duplicate_frees_no_claim_of_another(bench: Bench) -> None:
    """aws-powertools/powertools-lambda-typescript#5675: the cleanup ran for the layer's own rejections, too."""
    shop = Shop(bench)

    def answer() -> str:
        statuses = [post(shop.client(), data=body).status_code for body in (b"", b"", b"other", b"")]
        assert statuses == [409, 409, 422, 409]
        return "done"

    shop.answer = answer
    shop.post()
    assert problem(shop.post(data=b"other")) == "key-reused"
    assert replayed(shop.post())
    assert shop.runs == 1


def test_a_late_finisher_overwrites_nothing_of_its_successor(bench: Bench) -> None:
    """KanishJebaMathewM/Truxify#4623: the slow original freed or overwrote the claim of whoever took over."""
    shop = Shop(bench)

    def slow() -> ResponseReturnValue:
        bench.take_over()
        return "too late", 500

    shop.answer = slow
    assert shop.post().text == "too late"
    assert bench.records[0].owner == "another"
    assert bench.state == "PENDING"
    assert problem(shop.post()) == "in-progress"


def test_what_the_view_does_to_its_request_changes_no_identity(bench: Bench) -> None:
    """aws-powertools/powertools-lambda-typescript#5715: the key was computed again at the end, from changed data."""

    def answer() -> str:
        request.environ["HTTP_IDEMPOTENCY_KEY"] = "changed"
        request.environ["PATH_INFO"] = "/changed"
        request.get_json()["a"] = "changed"
        return "done"

    shop = Shop(bench, answer)
    assert [replayed(shop.post(json={"a": 1})), replayed(shop.post(json={"a": 1}))] == [False, True]


@pytest.mark.parametrize("credentials", [{"Authorization": "Bearer two"}, {"X-Api-Key": "two"}, {}])
def test_other_credentials_get_nobody_elses_answer(bench: Bench, credentials: dict[str, str]) -> None:
    """kortix-ai/suna#5267, KanishJebaMathewM/Truxify#2382: keys were global, strangers shared a bucket."""
    shop = Shop(bench)
    shop.post(headers={"Authorization": "Bearer one"})
    assert problem(shop.post(headers=credentials)) == "credentials-changed"
    assert shop.runs == 1


def test_callers_do_not_collide_whatever_they_are_called(bench: Bench) -> None:
    """jox-sm/deepslate-rpg#104: a separator in a name made two callers one."""
    shop = Shop(bench, caller=lambda flask_request: flask_request.headers["X-User"])
    for user, key in (("a", "b:c"), ("a:b", "c"), ("a", "b/c"), ("a/b", "c")):
        assert not replayed(shop.post(key=key, headers={"X-User": user}))
    assert shop.runs == 4


@pytest.mark.parametrize(
    "damage",
    [
        {"response": None},
        {"response": KeptResponse(status=201, headers=(), body=None)},
        {"response": KeptResponse(status=201, headers=(), body=b"junk", encoding="deflate")},
    ],
)
def test_a_damaged_record_is_told_apart_and_runs_nothing(bench: Bench, damage: dict[str, Any]) -> None:
    """square1-io/laravel-idempotency#5, apache/polaris#5122: it crashed each request, or passed for no record."""
    shop = Shop(bench)
    shop.post()
    [record] = bench.records
    assert bench.memory.swap(record, replace(record, **damage), 0) == Written()
    assert problem(shop.post()) in ("response-not-stored", "record-unreadable")
    assert shop.runs == 1


def test_without_a_key_nothing_is_shared(bench: Bench) -> None:
    """aws-powertools/powertools-lambda-python#2465: the hash of no key was a key that all shared."""
    shop = Shop(bench, lambda: request.data, require_key=False)
    assert [shop.post(key=None, data=body).data for body in (b"a", b"b", b"a")] == [b"a", b"b", b"a"]
    assert bench.calls == []


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (bytes(range(256)), "application/octet-stream"),
        (b"\x89PNG\r\n\x1a\n" + bytes(64), "image/png"),
        ("größe".encode("latin-1"), "text/plain; charset=latin-1"),
    ],
)
def test_bytes_that_are_no_text_are_replayed_as_they_are(bench: Bench, body: bytes, kind: str) -> None:
    """VibeTensor/attestix#128, ArcadeData/arcadedb#5174: bodies were stored as text."""
    shop = Shop(bench, lambda: Response(body, content_type=kind))
    first, second = shop.post(), shop.post()
    assert first.data == second.data == body
    assert first.content_type == second.content_type == kind


def test_headers_of_the_first_exchange_alone_are_not_replayed(bench: Bench) -> None:
    """granit-fx/granit-dotnet#1151, VSN2015/concerns_on_rails#47: a stranger got another's session."""
    passing = {
        "Set-Cookie": "session=mine",
        "X-Request-ID": "1",
        "RateLimit-Remaining": "9",
        "Date": "then",
        "WWW-Authenticate": "Basic",
        "Retry-After": "7",
    }
    lasting = {"Location": "/orders/1", "ETag": '"x"', "Link": "</1>; rel=self", "Content-Type": "text/csv"}
    shop = Shop(bench, lambda: Response("a;b", 201, {**passing, **lasting}))
    shop.post()
    again = shop.post()
    assert (again.status_code, again.text) == (201, "a;b")
    assert {name: again.headers[name] for name in lasting} == lasting
    assert not set(passing) & set(again.headers.keys())


@pytest.mark.parametrize(
    ("status", "headers"),
    [(201, {"Location": "/1", "ETag": '"x"'}), (202, {"Link": "</1>"}), (303, {"Location": "/1"}), (204, {})],
)
def test_nothing_of_the_answer_is_lost(bench: Bench, status: int, headers: dict[str, str]) -> None:
    """fullstackhero/docs#240, ikyriak/IdempotentAPI#86: 201 became 200, Location was gone."""
    shop = Shop(bench, lambda: Response("" if status == 204 else "a,b", status, headers, mimetype="text/csv"))
    first, second = shop.post(), shop.post()
    assert second.status_code == status
    assert second.data == first.data
    assert [pair for pair in second.headers if pair[0] != "Idempotent-Replayed"] == list(first.headers)


def test_what_is_longer_at_the_replay_is_framed_anew(bench: Bench) -> None:
    """ikyriak/IdempotentAPI#21, meziantou/Meziantou.Framework#2155: stored framing described another body."""
    shop = Shop(bench, lambda: Response(iter(["a", "b"]), headers={"Transfer-Encoding": "chunked"}))

    @shop.app.after_request
    def longer(response: Response) -> Response:
        if replayed(response):
            response.set_data(response.get_data() + b"c")
        return response

    shop.server().post()
    again = shop.server().post()
    assert again.body == b"abc"
    assert again.header("Content-Length") == "3"
    assert again.header("Transfer-Encoding") is None


@pytest.mark.parametrize(
    "other",
    [
        {"data": b"x"},
        {"json": {"a": 2}},
        {"data": {"a": "2"}},
        {"query_string": "x=1"},
        {"json": {"a": 1}, "content_type": "text/plain"},
    ],
    ids=str,
)
def test_every_part_of_a_request_counts(bench: Bench, other: dict[str, Any]) -> None:
    """ikyriak/IdempotentAPI#58: the fingerprint was always that of nothing."""
    shop = Shop(bench)
    shop.post(json={"a": 1})
    assert problem(shop.post(**other)) == "key-reused"


def test_a_passing_failure_is_not_pinned_to_the_key(bench: Bench) -> None:
    """C-Address-Onboarding-Bridge/C-Address-Onboarding-Bridge-Backend#380: an outage was replayed for a day."""
    answers: list[ResponseReturnValue] = [("busy", 429), ("down", 503), ("done", 201)]
    shop = Shop(bench, lambda: answers.pop(0))
    assert [shop.post().status_code for _ in range(4)] == [429, 503, 201, 201]
    assert shop.runs == 3


@pytest.mark.parametrize(
    "answer",
    [
        lambda: ("a", 500),
        lambda: ("a", 404),
        lambda: jsonify(a=1),
        lambda: ["a", 1],
        lambda: (x for x in "ab"),
        lambda: b"",
        lambda: 1 / 0,
        lambda: 7,
        lambda: ("a", "no status"),
    ],
)
def test_every_outcome_settles_the_key(bench: Bench, answer: Callable[[], Any]) -> None:
    """torkiv-labs/Nexuq#361, Noveum/orbit#455: what was not stored was not freed either."""
    Shop(bench, answer).server().post()
    assert bench.state in ("COMPLETED", "FAILED")


def test_the_retention_is_what_it_says(bench: Bench) -> None:
    """yoyowallet/django-idempotency-key: keys vanished after the cache's own five minutes."""
    shop = Shop(bench, retention_seconds=86_400)
    shop.post()
    bench.clock.advance(86_399)
    assert replayed(shop.post())
    bench.clock.advance(2)
    assert not replayed(shop.post())


def test_replays_change_nothing_in_the_store(bench: Bench) -> None:
    """Local probe: a replay runs every `after_request` function, also the layer's own."""
    shop = Shop(bench)

    @shop.app.after_request
    def vary(response: Response) -> Response:
        response.headers.add("Vary", "X")
        return response

    shop.post()
    [before] = bench.records
    answers = [shop.post() for _ in range(3)]
    assert bench.records == [before]
    assert [answer.headers.getlist("Vary") for answer in answers] == [["X"]] * 3
    assert [answer.headers.getlist("Idempotent-Replayed") for answer in answers] == [["true"]] * 3


@pytest.mark.parametrize("key", ["", " ", "\t", "x" * 256, "x" * 3000, "gr\xfcn", "a,b", '"a', "a b"])
def test_a_malformed_key_is_refused_before_anything_is_done(bench: Bench, key: str) -> None:
    """KanishJebaMathewM/Truxify#15676: it reached the store, and was a 500."""
    shop = Shop(bench)
    refused = shop.post(key=key)
    assert refused.status_code == 400
    assert problem(refused) in ("key-invalid", "key-missing")
    assert key.strip() == "" or key.encode() not in refused.data
    assert (shop.runs, bench.calls) == (0, [])


@pytest.mark.parametrize("key", ["1", "x" * 255, '"a#b"', "a/b", "a:b", '"quoted"'])
def test_any_other_key_does(bench: Bench, key: str) -> None:
    shop = Shop(bench)
    assert [replayed(shop.post(key=key)), replayed(shop.post(key=key))] == [False, True]
    [record] = bench.records
    assert len(record.pk) == 64


def test_a_client_that_waits_knows_how_long(bench: Bench) -> None:
    """ietf-wg-httpapi/idempotency#11: without Retry-After clients hammer or give up."""
    shop = Shop(bench)

    def answer() -> str:
        busy = post(shop.client())
        assert 1 <= int(busy.headers["Retry-After"]) <= 5
        assert busy.headers["Cache-Control"] == "no-store"
        return "done"

    shop.answer = answer
    assert shop.post().text == "done"


def test_a_renamed_view_finds_its_records(bench: Bench) -> None:
    """aws-powertools/powertools-lambda-python#1330: the function's name was in the key, so a refactoring lost all."""
    shop = Shop(bench)
    shop.post()
    app = Flask("renamed")
    Idempotency(app, engine=bench.engine)

    @app.post("/<path:anything>")
    def renamed(anything: str) -> str:
        return anything

    assert replayed(post(app.test_client()))


def test_an_attempt_after_a_crash_is_told_so(bench: Bench) -> None:
    """paveg/hono-idempotency: a process that died in the middle locked its key for as long as an answer is kept."""
    shop = Shop(bench)

    def crash() -> str:
        raise SystemExit(137)

    shop.answer = crash
    with pytest.raises(SystemExit):
        shop.server().post()
    shop.answer = lambda: "done"
    assert problem(shop.post()) == "in-progress"
    bench.clock.advance(63)
    assert shop.post().text == "done"
    assert bench.told(EventKind.TAKEN_OVER)
    [record] = bench.records
    assert (record.status, record.attempt) == (Status.COMPLETED, 2)
