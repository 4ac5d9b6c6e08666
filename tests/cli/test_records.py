"""Looking at keys, and releasing an abandoned one."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from idem_middleware import Engine, Options, Request, Response
from idem_middleware.body import RequestBody
from idem_middleware.cli.inspection import MEANINGS, NotReleased, Phase, load, name_of, phase, release, scan
from idem_middleware.keys import record_pk
from idem_middleware.records import OmittedResponse, Record, SealedResponse, Status
from idem_middleware.stores import DynamoDBStore
from idem_middleware.stores.urls import store_from_url
from tests.cli.conftest import Run, RunJson

SECRET_BODY = "the customer's own words " * 30


@pytest.fixture
def store(moto_table: str) -> DynamoDBStore:
    """On moto, with its table."""
    store = store_from_url(moto_table)
    assert isinstance(store, DynamoDBStore)
    store.create_table()
    return store


def claim(pk: str, *, age_seconds: float = 600.0, lease_seconds: float = 60.0, **changes: Any) -> Record:
    """A claim that began so long ago and was never renewed."""
    began_at = time.time() - age_seconds
    record = Record(
        pk=pk,
        status=Status.PENDING,
        version=1,
        owner="a" * 32,
        attempt=1,
        fingerprint=b"f" * 33,
        caller_digest=None,
        created_at=began_at,
        expires_at=began_at + lease_seconds,
        bound_until=began_at + 86400.0,
    )
    return replace(record, **changes)


def soon(store: DynamoDBStore) -> float:
    return store.clock.monotonic() + 10


def put(store: DynamoDBStore, record: Record) -> Record:
    store.create(record, soon(store))
    return record


def run_request(store: DynamoDBStore, key: str, answer: Response, caller: str = "acct_7") -> None:
    request = Request(
        method="POST", path="/orders", headers=(("Idempotency-Key", key),), body=RequestBody.from_bytes(b"{}")
    )
    engine = Engine(store, Options(caller=lambda native: caller))
    engine.run(request, lambda lease: answer)


def answer(body: str = SECRET_BODY, kind: str = "text/plain") -> Response:
    return Response(201, (("Content-Type", kind), ("Location", "/orders/1")), body.encode("latin-1"))


class TestPhases:
    """What a record means."""

    @pytest.mark.parametrize(
        ("changes", "seconds", "meant"),
        [
            ({}, 30, Phase.RUNNING),
            ({}, 61, Phase.RUNNING),
            ({}, 63, Phase.ABANDONED),
            ({}, 86401, Phase.FREE),
            ({"status": Status.FAILED}, 1, Phase.FAILED),
            ({"status": Status.COMPLETED, "expires_at": 1e9 + 100, "response": None}, 1, Phase.UNKNOWN),
            ({"status": Status.COMPLETED, "response": OmittedResponse(reason="outcome-unknown")}, 1, Phase.UNKNOWN),
            ({"status": Status.COMPLETED}, 100, Phase.EXPIRED),
            ({"schema": 99}, 1, Phase.UNREADABLE),
        ],
    )
    def test_status_and_time_make_it(self, changes: dict[str, Any], seconds: float, meant: Phase) -> None:
        """By the same order as the decision that a retry meets."""
        record = claim("pk", age_seconds=0)
        record = replace(record, created_at=1e9, expires_at=1e9 + 60, bound_until=1e9 + 86400)
        assert phase(replace(record, **changes), 1e9 + seconds, margin_seconds=2.0) is meant

    def test_each_has_an_explanation(self) -> None:
        """In words."""
        assert set(MEANINGS) == set(Phase)


class TestShow:
    """`show`."""

    def test_a_done_key(self, run: Run, run_json: RunJson, store: DynamoDBStore, moto_table: str) -> None:
        """Its state, times and sizes; and neither key nor body."""
        run_request(store, "order-8", answer())
        given = ("show", "order-8", "--caller", "acct_7", "--store", moto_table)
        told = run_json(*given)
        assert (told["phase"], told["attempt"], told["answer"]["status"]) == ("done", 1, 201)
        assert told["answer"]["encoding"] == "deflate"
        text = run(*given).output
        assert "retries get the stored answer" in text
        assert "1 write unit for each retry" in text
        assert "customer's own words" not in text + json.dumps(told)
        assert "order-8" not in text

    def test_the_body_where_it_is_asked_for(
        self, run: Run, run_json: RunJson, store: DynamoDBStore, moto_table: str
    ) -> None:
        """Unpacked, with its headers."""
        run_request(store, "order-8", answer())
        given = ("show", "order-8", "--caller", "acct_7", "--store", moto_table)
        shown = run(*given, "--body").output
        assert SECRET_BODY in shown
        assert "Location: /orders/1" in shown
        assert run_json(*given, "--body")["body"] == {"text": SECRET_BODY}

    def test_a_body_that_is_no_text(self, run: Run, run_json: RunJson, store: DynamoDBStore, moto_table: str) -> None:
        """Is not thrown at a terminal."""
        run_request(store, "order-8", answer("\xff\x00\x1b", "image/png"))
        given = ("show", "order-8", "--caller", "acct_7", "--store", moto_table, "--body")
        assert "3 bytes that are no text" in run(*given).output
        assert run_json(*given)["body"] == {"base64": "/wAb"}

    def test_a_body_in_chunks(self, run_json: RunJson, store: DynamoDBStore, moto_table: str) -> None:
        """Is put together."""
        body = "".join(Random(8).choices("abcdefghijklmnopqrstuvwxyz", k=20_000))  # noqa: S311  # 5 bits a letter
        run_request(store, "order-8", answer(body))
        told = run_json("show", "order-8", "--caller", "acct_7", "--store", moto_table, "--body")
        assert told["answer"]["chunks"] == 1
        assert told["body"] == {"text": body}

    def test_the_caller_is_part_of_the_key(self, run: Run, store: DynamoDBStore, moto_table: str) -> None:
        """Who forgets it is reminded."""
        run_request(store, "order-8", answer())
        assert "give --caller" in run("show", "order-8", "--store", moto_table, status=1).output

    def test_a_digest_from_a_log(self, run: Run, run_json: RunJson, store: DynamoDBStore, moto_table: str) -> None:
        """Finds the record without the key."""
        run_request(store, "order-8", answer())
        pk = record_pk("", "acct_7", "order-8")
        for digest in (pk[:12], pk):
            assert run_json("show", "--digest", digest, "--store", moto_table)["pk"] == pk
        assert "begins with" in run("show", "--digest", "0" * 12, "--store", moto_table, status=1).output

    def test_an_ambiguous_digest_is_refused(self, run: Run, store: DynamoDBStore, moto_table: str) -> None:
        """Rather than one of them shown."""
        put(store, claim("ab" * 32))
        put(store, claim("ab" * 31 + "cd"))
        assert "give more digits" in run("show", "--digest", "abababab", "--store", moto_table, status=1).output

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"checkpoint": b"paid"}, ["4 bytes: the work of lease.transact is done", "abandoned"]),
            (
                {
                    "status": Status.COMPLETED,
                    "expires_at": 4e9,
                    "bound_until": 4e9,
                    "response": OmittedResponse(reason="outcome-unknown", location="/orders/1"),
                },
                ["not kept: outcome-unknown, see /orders/1", "retries get 409"],
            ),
            (
                {
                    "status": Status.COMPLETED,
                    "expires_at": 4e9,
                    "bound_until": 4e9,
                    "response": SealedResponse(b"sealed"),
                },
                ["sealed by the service's cipher", "retries get the stored answer"],
            ),
            ({"schema": 99}, ["unreadable", "99"]),
        ],
        ids=["checkpoint", "omitted", "sealed", "newer"],
    )
    def test_other_records_are_explained(
        self,
        run: Run,
        run_json: RunJson,
        store: DynamoDBStore,
        moto_table: str,
        changes: dict[str, Any],
        words: list[str],
    ) -> None:
        """In words, and for machines."""
        put(store, claim(name_of(store, "order-9", caller=None, namespace=""), **changes))
        text = run("show", "order-9", "--store", moto_table).output
        assert [word for word in words if word not in text] == []
        told = run_json("show", "order-9", "--body", "--store", moto_table)
        assert told["body"] is None
        assert "no body to show" in run("show", "order-9", "--body", "--store", moto_table).output

    @pytest.mark.parametrize(
        ("given", "sentence"),
        [
            ((), "give a KEY, or --digest"),
            (("a", "--digest", "abcdef"), "give a KEY, or --digest"),
            (("--digest", "xyz"), "6 to 64 hexadecimal digits"),
            (("caf\xe9",), "not printable ASCII"),
        ],
        ids=["nothing", "both", "no digest", "no key"],
    )
    def test_wrong_input_is_a_sentence(self, run: Run, given: tuple[str, ...], sentence: str) -> None:
        """Without a traceback."""
        assert sentence in run("show", *given, status=2).output

    def test_keys_by_caller_are_found_where_they_lie(self, run_json: RunJson, moto_table: str) -> None:
        """In the layout that keeps a caller's records together, listed by its index."""
        url = f"{moto_table}&layout=caller"
        store = store_from_url(url)
        assert isinstance(store, DynamoDBStore)
        store.create_table()
        run_request(store, "order-8", answer())
        told = run_json("show", "order-8", "--caller", "acct_7", "--store", url)
        assert told["phase"] == "done"
        assert run_json("show", "--digest", told["key_digest"], "--store", url)["pk"] == told["pk"]
        listed = run_json("list", "--caller", "acct_7", "--state", "done", "--store", url)
        assert [each["pk"] for each in listed["records"]] == [told["pk"]]
        assert run_json("list", "--caller", "acct_8", "--state", "done", "--store", url)["records"] == []

    def test_work_that_came_by_a_function(self, run_json: RunJson, store: DynamoDBStore, moto_table: str) -> None:
        """Shares no key with a request; and a key in quotes is the same as without."""
        Engine(store).run_once("order-8", None, lambda lease: "placed")
        assert run_json("show", "order-8", "--function", "--store", moto_table)["phase"] == "done"
        assert run_json("show", '"order-8"', "--function", "--store", moto_table)["phase"] == "done"

    def test_where_keys_have_homes_the_home_is_asked(
        self, run_json: RunJson, store: DynamoDBStore, moto_table: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Not the first region."""
        home = DynamoDBStore(store.table, region="eu-west-1")
        home.create_table()
        run_request(home, "order-8", answer())
        regional = SimpleNamespace(stores={"eu-central-1": store, "eu-west-1": home}, home_of=lambda name: home)
        monkeypatch.setattr("idem_middleware.cli.terminal.store_from_url", lambda url: regional)
        assert run_json("show", "order-8", "--caller", "acct_7", "--store", moto_table)["phase"] == "done"


class TestList:
    """`list`."""

    @pytest.fixture(autouse=True)
    def records(self, store: DynamoDBStore) -> None:
        """One of each kind."""
        put(store, claim("a" * 64))
        put(store, claim("b" * 64, age_seconds=10))
        put(store, claim("c" * 64, age_seconds=5000, status=Status.FAILED))
        run_request(store, "order-8", answer())

    def test_what_needs_a_look(self, run: Run, run_json: RunJson, moto_table: str) -> None:
        """Abandoned and failed, not what runs or is done."""
        told = run_json("list", "--store", moto_table)
        assert sorted(each["pk"][0] for each in told["records"]) == ["a", "c"]
        assert told["more"] is False
        text = run("list", "--store", moto_table).output
        assert "aaaaaaaaaaaa" in text
        assert "2 records." in text

    def test_by_state_and_age(self, run_json: RunJson, moto_table: str) -> None:
        """As they are asked for."""
        running = run_json("list", "--state", "running", "--store", moto_table)
        assert [each["pk"][0] for each in running["records"]] == ["b"]
        old = run_json("list", "--older-than", "4000", "--store", moto_table)
        assert [each["pk"][0] for each in old["records"]] == ["c"]
        done = run_json("list", "--state", "done", "--store", moto_table)
        assert [each["answer"]["status"] for each in done["records"]] == [201]

    def test_no_more_than_the_limit(self, run: Run, moto_table: str) -> None:
        """And it says so."""
        assert "1 record, and there are more." in run("list", "--limit", "1", "--store", moto_table).output

    def test_all_pages_are_looked_through_at_a_bounded_rate(
        self, store: DynamoDBStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A pause after each, as long as what it took."""
        monkeypatch.setattr("idem_middleware.cli.inspection._PAGE", 1)
        pauses: list[float] = []
        pages: list[int] = []
        found = scan(store, units_per_second=2.0, sleep=pauses.append, on_page=pages.append)
        assert len(list(found)) == 4
        assert sum(pages) == 4
        assert len(pauses) >= 3
        assert all(seconds > 0 for seconds in pauses)

    def test_a_caller_is_listed_in_the_layout_for_it(self, run: Run, moto_table: str) -> None:
        """Elsewhere it is a sentence."""
        assert "only the layout 'caller'" in run("list", "--caller", "x", "--store", moto_table, status=2).output


class TestRelease:
    """`release`."""

    @pytest.fixture
    def name(self, store: DynamoDBStore) -> str:
        """The record of the key order-8."""
        return name_of(store, "order-8", caller=None, namespace="")

    def test_an_abandoned_claim_runs_again_with_the_next_retry(
        self, run: Run, store: DynamoDBStore, moto_table: str, name: str
    ) -> None:
        """After a question that says so; FAILED, the same fingerprint, the checkpoint kept."""
        put(store, claim(name, checkpoint=b"paid", attempt=2))
        refused = run("release", "order-8", "--store", moto_table, answer="n\n", status=1)
        assert "will run the work again" in refused.output
        done = run("release", "order-8", "--store", moto_table, answer="y\n")
        assert f"event kind=released key_digest={name[:12]} attempt=2 reason=operator" in done.output
        seen = load(store, name)
        assert seen is not None
        assert (seen.phase, seen.record.checkpoint, seen.record.version) == (Phase.FAILED, b"paid", 2)
        assert seen.record.fingerprint == b"f" * 33

    def test_it_is_told_to_the_log_as_any_event(
        self, run_json: RunJson, store: DynamoDBStore, moto_table: str, name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """By the same observer as the service's own."""
        put(store, claim(name))
        with caplog.at_level(logging.DEBUG, logger="idem_middleware"):
            told = run_json("release", "order-8", "--yes", "--store", moto_table)
        assert told == {
            "released": True,
            "event": {"kind": "released", "key_digest": name[:12], "attempt": 1, "reason": "operator"},
        }
        assert "reason=operator" in caplog.text

    @pytest.mark.parametrize(
        "make",
        [lambda name: claim(name, age_seconds=1), lambda name: claim(name, status=Status.FAILED)],
        ids=["running", "failed"],
    )
    def test_nothing_else_is_released(
        self, run: Run, store: DynamoDBStore, moto_table: str, name: str, make: Callable[[str], Record]
    ) -> None:
        """Not even with --yes."""
        record = put(store, make(name))
        assert "only an abandoned claim" in run("release", "order-8", "--yes", "--store", moto_table, status=1).output
        seen = load(store, name)
        assert seen is not None
        assert seen.record == record

    def test_an_owner_that_wakes_up_meanwhile_wins(self, store: DynamoDBStore, name: str) -> None:
        """The swap finds another version than what was shown."""
        record = put(store, claim(name))
        seen = load(store, name)
        assert seen is not None
        store.swap(record, replace(record, version=2, expires_at=time.time() + 60), soon(store))
        with pytest.raises(NotReleased, match="look again"):
            release(store, seen)

    def test_only_what_was_seen_abandoned(self, store: DynamoDBStore, name: str) -> None:
        """The function checks it, too."""
        put(store, claim(name, age_seconds=1))
        seen = load(store, name)
        assert seen is not None
        with pytest.raises(NotReleased, match="this key is running"):
            release(store, seen)


class TestErase:
    """`erase`."""

    def test_the_answer_is_gone_and_the_work_stays_known(
        self, run: Run, run_json: RunJson, store: DynamoDBStore, moto_table: str
    ) -> None:
        """After a question."""
        run_request(store, "order-8", answer())
        given = ("order-8", "--caller", "acct_7", "--store", moto_table)
        run("erase", *given, answer="n\n", status=1)
        assert run_json("show", *given)["phase"] == "done"
        assert "nothing runs again" in run("erase", *given, answer="y\n").output
        assert run_json("show", *given)["phase"] == "unknown"
        assert run_json("erase", *given, "--yes")["outcome"] == "nothing-kept"

    def test_what_is_running_is_not_erased(self, run: Run, store: DynamoDBStore, moto_table: str) -> None:
        """It would be written anew."""
        put(store, claim(name_of(store, "order-9", caller=None, namespace=""), age_seconds=1))
        assert "it is running" in run("erase", "order-9", "--yes", "--store", moto_table, status=1).output


class TestSweep:
    """`sweep`."""

    def test_it_deletes_what_is_over(self, run: Run, run_json: RunJson, store: DynamoDBStore, moto_table: str) -> None:
        """And says what it took."""
        put(store, claim("a" * 64, age_seconds=90_000))
        put(store, claim("b" * 64))
        told = run_json("sweep", "--store", moto_table, "--units", "10000")
        assert (told["seen"], told["deleted"], told["resume_from"]) == (2, 1, None)
        assert "1 items seen, 0 deleted" in run("sweep", "--store", moto_table, "--units", "10000").output
