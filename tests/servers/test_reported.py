"""What users of other layers of this kind reported, on every framework and its real server: it does not happen here.

Each test names where it was reported. More of them are among the other tests; `docs/reported.md` has the whole list.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import wait

import httpx
import pytest

from tests.servers.client import Service, is_fresh, is_problem, is_replay, plan, statuses
from tests.support.polling import eventually

pytestmark = [pytest.mark.processes, pytest.mark.dynamodb_local, pytest.mark.thorough]

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
TEXT = {"Content-Type": "text/plain"}


def test_a_rejected_duplicate_frees_nobodys_claim(single_service: Service) -> None:
    """A cleanup hook ran for the layer's own refusals, too, and deleted the record of the one that ran.

    Sources: aws-powertools/powertools-lambda-typescript#5675, aws-powertools/powertools-lambda-typescript#5676,
    idempot-dev/idempot-js#183, idempot-dev/idempot-js#191.
    """
    service = single_service
    running = service.send_in_background(plan(delay=1))
    service.is_running()
    for _ in range(2):
        is_problem(service.send(), "in-progress", 409, retry=True)
        is_problem(service.send(body=b"{}"), "key-reused", 422)
    first = running.result()
    is_fresh(first)
    is_problem(service.send(body=b"{}"), "key-reused", 422)
    is_replay(service.send(), first)
    service.ran(1)


def test_a_late_finisher_frees_and_overwrites_nothing(single_service: Service) -> None:
    """The slow original came back after a retry had taken over, and freed or overwrote what was the other's.

    Sources: KanishJebaMathewM/Truxify#4623, KanishJebaMathewM/Truxify#5856, sliceworkz/eventstore#176.
    """
    service = single_service
    late = service.send_in_background(plan(delay=1, body='"late"'))
    service.is_running()
    service.let_pass(70)
    second = service.send_in_background(plan(delay=1.5, body='"second"'))
    service.is_running(run=2)
    is_fresh(late.result())  # the other has no answer yet, so its client gets its own
    third = service.send()
    if not second.done():  # on a machine that is busy with other things it may be
        is_problem(third, "in-progress", 409, retry=True)
    is_fresh(second.result())
    is_replay(service.send(), second.result())
    service.ran(2)


def test_the_same_key_elsewhere_is_no_replay(single_service: Service) -> None:
    """A key that was known by its user alone gave the answer of another endpoint, and the write never happened.

    Sources: nensii21/devlink#1195, RamaAditya49/titen#37, LabsCrypt/remitlend#1680, pathosDev/actor-ts#609,
    theam/facility#196.
    """
    first = single_service.send()
    is_fresh(first)
    is_problem(single_service.send(name="another"), "key-reused", 422)
    is_problem(single_service.send(query="?to=b"), "key-reused", 422)
    for method in ("PUT", "PATCH", "DELETE"):
        is_problem(single_service.send(method=method), "key-reused", 422)
    is_replay(single_service.send(), first)


def test_a_query_in_another_order_is_the_same(single_service: Service) -> None:
    """However it is encoded; but repeated names keep their order, and a dry run is not the real one.

    Sources: pathosDev/actor-ts#609, theam/facility#196.
    """
    first = single_service.send(query="?a=%2F&b=1&b=2")
    for same in ("?b=1&b=2&a=%2F", "?b=1&a=%2f&b=2", "?%61=/&b=1&b=2"):
        is_replay(single_service.send(query=same), first)
    for different in ("?a=%2F&b=2&b=1", "?a=%2F&b=1", "?a=%2F&b=1&b=2&dry=1", ""):
        is_problem(single_service.send(query=different), "key-reused", 422)


PAYLOADS = {
    "json": ((b'{"a": 1}', {}), (b'{"a": 2}', {})),
    "form": ((b"a=1", FORM), (b"a=2", FORM)),
    "text": ((b"one", TEXT), (b"two", TEXT)),
    "nothing": ((b"", TEXT), (b"x", TEXT)),
    "no members": ((b"", {}), (b"{}", {})),
    "media type": ((b"a=1", FORM), (b"a=1", TEXT)),
}


def test_another_payload_is_another_request(single_service: Service) -> None:
    """A fingerprint was always that of nothing, or a way to the record went round the comparison.

    Sources: ikyriak/IdempotentAPI#58, aws-powertools/powertools-lambda-python#3781,
    aws-powertools/powertools-lambda-typescript#2058, aws-powertools/powertools-lambda-java#2260,
    aws-powertools/powertools-lambda-python#3821.
    """
    for key, (one, other) in PAYLOADS.items():
        answer = single_service.send(body=one[0], headers=one[1], key=f'"{single_service.key} {key}"')
        is_fresh(answer)
        reused = single_service.send(body=other[0], headers=other[1], key=f'"{single_service.key} {key}"')
        is_problem(reused, "key-reused", 422)
        is_replay(single_service.send(body=one[0], headers=one[1], key=f'"{single_service.key} {key}"'), answer)


def test_json_means_what_it_says_and_nothing_more(single_service: Service) -> None:
    """Members in another order were another payload; and where that was mended, arrays in another order were none.

    Sources: aws-powertools/powertools-lambda-python#638, aws-powertools/powertools-lambda-typescript#2120,
    apache/fineract#5674.
    """
    written = b'{"a": {"b": {"c": 1, "d": [1, 2]}}, "e": null}'
    first = single_service.send(body=written)
    is_replay(single_service.send(body=b'{"e":null,"a":{"b":{"d":[1,2],"c":1}}}'), first)
    for different in (b"[2, 1]", b"[1, 2.0]", b'[1, "2"]'):
        is_problem(single_service.send(body=written.replace(b"[1, 2]", different)), "key-reused", 422)
    is_problem(single_service.send(body=b'{"a": {"b": {"c": 1, "d": [1, 2]}}}'), "key-reused", 422)
    is_problem(single_service.send(body=written[:-1]), "key-reused", 422)  # no JSON any more: compared as written


@pytest.mark.parametrize(
    ("attribute", "problem"),
    [("response", "response-not-stored"), ("fingerprint", "record-unreadable")],
)
def test_a_record_without_a_part_of_it_runs_nothing(single_service: Service, attribute: str, problem: str) -> None:
    """A completed record without its answer crashed each request, or answered 409 for ever without a word why.

    Sources: square1-io/laravel-idempotency#5, paveg/hono-idempotency#92, apache/polaris#5122.
    """
    is_fresh(single_service.send())
    single_service.table.remove(single_service.pk(), attribute)
    is_problem(single_service.send(), problem, 409)
    single_service.ran(1)


def test_an_answer_that_says_nothing_is_an_answer(single_service: Service) -> None:
    """A hook was skipped for results that are false (aws-powertools/powertools-lambda-typescript#2915)."""
    for body in ("null", "0", "false", '""', "[]", ""):
        key, planned = f'"{single_service.key} {body}"'.replace('""', "quotes"), plan(body=body)
        first = single_service.send(planned, key=key)
        assert first.text == body
        is_replay(single_service.send(planned, key=key), first)
    single_service.ran(6)


def test_an_answer_is_kept_as_long_as_is_said(single_service: Service) -> None:
    """Keys vanished after a cache's own five minutes; here it is a day by default, and what a view says.

    Sources: yoyowallet/django-idempotency-key's storage.py, ikyriak/IdempotentAPI#59.
    """
    for route, seconds in (("probe", 86_400), ("decorated", 2)):
        before = time.time()
        is_fresh(single_service.send(key=f'"{route}"', route=route))
        stands = single_service.record(route)
        assert stands is not None
        # A second for DynamoDB's clock, by which it is written: its answers say the time in whole seconds.
        assert before - 2 + seconds <= float(stands["expires_at"]) <= time.time() + 2 + seconds


def test_duplicates_take_no_threads_from_others(single_service: Service) -> None:
    """Whoever knew a busy key could pin all workers, each waiting for the one that ran: by default nobody waits.

    Sources: apache/polaris#4269, aws-powertools/powertools-lambda-python#2490, idempot-dev/idempot-js#181,
    idempot-dev/idempot-js#186, accept-io/midas#14, alphagov/pay-connector#4460.
    """
    service = single_service
    owner = service.send_in_background(plan(delay=2.5))
    service.is_running()
    duplicates = [service.send_in_background() for _ in range(24)]
    wait(duplicates)
    is_fresh(service.send(key='"unrelated"', name=f"{service.name}-unrelated"))
    assert not owner.done()
    assert statuses(duplicate.result() for duplicate in duplicates) == [409] * 24
    is_fresh(owner.result())
    service.ran(1)


def test_work_that_takes_longer_than_its_lease_keeps_it(short_leased_service: Service) -> None:
    """Leases were shorter than the servers' own time-outs, and slow requests ran twice: they are renewed here.

    Sources: nishimura-yuma77/hiromeru#20, KanishJebaMathewM/Truxify#5846.
    """
    service = short_leased_service
    running = service.send_in_background(plan(delay=2))
    service.is_running()

    def lease_end() -> float:
        stands = service.record()
        return float(stands["expires_at"]) if stands is not None and stands["status"] == "PENDING" else 0.0

    first_end = lease_end()
    assert first_end
    eventually(lambda: lease_end() > first_end, what="a lease that goes on")
    is_fresh(running.result())
    is_replay(service.send(), running.result())
    service.ran(1)


def test_what_is_answered_now_is_framed_now(single_service: Service) -> None:
    """Stored framing described another body, and broke the connection of the replay.

    Sources: ikyriak/IdempotentAPI#21, meziantou/Meziantou.Framework#2155, karpetrosyan/hishel's changelog.
    """
    planned = plan(size=10_000, chunks=5)
    with httpx.Client(base_url=single_service.probe.url, timeout=20) as client:  # one connection for all of them
        headers = {"Idempotency-Key": single_service.key, "X-Plan": json.dumps(planned)}
        answers = [client.post(f"/probe/{single_service.name}", headers=headers, content=b"x") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [201, 201, 201]
    assert answers[0].headers.get("transfer-encoding") == "chunked"
    assert "transfer-encoding" not in answers[1].headers
    assert [answer.headers.get("content-length") for answer in answers[1:]] == ["10000", "10000"]
    assert answers[0].content == answers[1].content == answers[2].content


def test_replays_do_not_change_each_other(single_service: Service) -> None:
    """A store gave out the very object that it kept, and each replay left its mark on it.

    Sources: yoyowallet/django-idempotency-key's storage.py, groupon/node-cached#28, jaredwray/cacheable#137.
    """
    single_service.send()
    before = single_service.record()
    first, *others = [single_service.send() for _ in range(4)]
    for other in others:
        assert (other.status_code, other.content) == (first.status_code, first.content)
        assert [name for name, _ in other.headers.raw] == [name for name, _ in first.headers.raw]
    assert single_service.record() == before
