"""The store on DynamoDB: what it calls, how often, and what it does when calls fail."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import boto3
import pytest
from moto import mock_aws

from idem_middleware.decisions import Attempt, Execute, decide
from idem_middleware.errors import StoreMisconfigured, StoreUnavailable
from idem_middleware.events import EventKind
from idem_middleware.options import Options
from idem_middleware.outcomes import certain
from idem_middleware.records import KeptResponse, Status
from idem_middleware.stores import DynamoDBStore
from idem_middleware.stores.base import Found, Gone, Written
from idem_middleware.stores.dynamodb.items import chunk_item, chunk_pk, item_of
from idem_middleware.stores.dynamodb.table import create_table
from tests.stores.doubles import (
    LostReplies,
    ManualTime,
    Scripted,
    Step,
    StoreDrivenByALoop,
    WatchedClient,
    answer,
    condition_failed,
    error,
    read_timeout,
    scripted_store,
)
from tests.stores.records import NOW, SMALL_ANSWER, after, new_pk, pending, soon

PK = "0123456789abcdef" * 4
CLAIM = pending(PK)
DONE = after(CLAIM, status=Status.COMPLETED, response=SMALL_ANSWER)


@pytest.fixture(params=[DynamoDBStore, StoreDrivenByALoop], ids=["blocking", "on a loop"])
def scripted(request: pytest.FixtureRequest) -> Scripted:
    """Make scripted stores; whoever asks for this is tested with both ways to carry out steps."""
    return partial(scripted_store, kind=request.param)


class TestCalls:
    """How many calls each step costs, counted on moto."""

    @pytest.fixture
    def watched(self) -> Iterator[tuple[DynamoDBStore, WatchedClient]]:
        """A store, and its client to count at."""
        with mock_aws():
            client = boto3.client("dynamodb", region_name="eu-central-1")
            create_table(client, "keys")
            watched = WatchedClient(client)
            yield DynamoDBStore("keys", client=watched), watched

    def test_a_new_request_is_one_put_and_one_update(self, watched: tuple[DynamoDBStore, WatchedClient]) -> None:
        """The claim, and its completion."""
        store, client = watched
        store.create(CLAIM, soon(store))
        store.swap(CLAIM, DONE, soon(store))
        assert client.operations == ["put_item", "update_item"]

    def test_a_replay_is_one_failed_put(self, watched: tuple[DynamoDBStore, WatchedClient]) -> None:
        """The record comes with the failure, so nothing is read."""
        store, client = watched
        store.create(CLAIM, soon(store))
        store.swap(CLAIM, DONE, soon(store))
        client.operations.clear()
        assert store.create(pending(PK, owner="retry"), soon(store)) == Found(DONE)
        assert client.operations == ["put_item"]

    def test_a_lost_swap_is_one_failed_update(self, watched: tuple[DynamoDBStore, WatchedClient]) -> None:
        """The same for a take-over that came second."""
        store, client = watched
        store.create(CLAIM, soon(store))
        store.swap(CLAIM, DONE, soon(store))
        client.operations.clear()
        assert store.swap(CLAIM, after(CLAIM, owner="late"), soon(store)) == Found(DONE)
        assert client.operations == ["update_item"]

    def test_a_large_answer_is_a_put_for_each_chunk_and_one_read(
        self, watched: tuple[DynamoDBStore, WatchedClient]
    ) -> None:
        """One piece is read by GetItem, several by one BatchGetItem."""
        store, client = watched
        store.put_chunks(DONE, [b"1", b"2", b"3"], soon(store))
        assert client.operations == ["put_item"] * 3
        client.operations.clear()
        store.get_chunks(DONE, 3, soon(store))
        store.get_chunks(DONE, 1, soon(store))
        assert client.operations == ["batch_get_item", "get_item"]

    def test_a_poll_is_one_read(self, watched: tuple[DynamoDBStore, WatchedClient]) -> None:
        """Of one item."""
        store, client = watched
        store.load(PK, soon(store))
        assert client.operations == ["get_item"]


class TestLostReplies:
    """DynamoDB applied the write, and the answer got lost on the way (aws-sdk-java#2667)."""

    @pytest.fixture
    def store(self) -> Iterator[DynamoDBStore]:
        """A store that loses the first reply of each kind of call."""
        with mock_aws():
            client = boto3.client("dynamodb", region_name="eu-central-1")
            create_table(client, "keys")
            lossy = WatchedClient(client, then=LostReplies())
            yield DynamoDBStore("keys", client=lossy, sleep=lambda _: None)

    def test_a_create_finds_itself(self, store: DynamoDBStore) -> None:
        """The store sends it again, meets its own claim, and says so without judging."""
        attempt = Attempt(pk=PK, owner="me", fingerprint=b"f", caller_digest=None, options=Options())
        claim = attempt.claim(None, NOW)
        found = store.create(claim, soon(store))
        assert found == Found(claim)
        assert decide(attempt.after(claim), claim, NOW) == Execute(claim)

    def test_a_swap_finds_itself(self, store: DynamoDBStore) -> None:
        """A completion, here: the work is done and recorded once."""
        store.create(CLAIM, soon(store))
        assert store.swap(CLAIM, DONE, soon(store)) == Found(DONE)

    def test_a_read_is_read_again(self, store: DynamoDBStore) -> None:
        """Nothing is lost with it."""
        store.create(CLAIM, soon(store))
        assert store.load(PK, soon(store)) == Found(CLAIM)

    def test_chunks_are_written_and_read_again(self, store: DynamoDBStore) -> None:
        """The same bytes under the same keys."""
        store.put_chunks(CLAIM, [b"1", b"2"], soon(store))
        assert store.get_chunks(CLAIM, 2, soon(store)) == [b"1", b"2"]
        assert store.get_chunks(CLAIM, 1, soon(store)) == [b"1"]


class TestRetries:
    """What passes is waited out, within the deadline."""

    def test_a_throttled_write_is_tried_again(self, scripted: Scripted, time: ManualTime) -> None:
        """Until it is answered."""
        throttled = error("ProvisionedThroughputExceededException")
        store, client, _ = scripted(time, throttled, throttled, answer())
        assert store.create(CLAIM, soon(store)) == Written()
        assert client.operations == ["put_item"] * 3
        assert client.calls[0] == client.calls[1] == client.calls[2]

    def test_pauses_grow_to_a_second(self, scripted: Scripted, time: ManualTime) -> None:
        """Exponentially; the jitter is switched off here."""
        store, _, _ = scripted(time, *[error("ThrottlingException")] * 8, answer())
        store.create(CLAIM, soon(store, 60))
        assert time.slept == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]

    def test_pauses_have_full_jitter(self, scripted: Scripted, time: ManualTime) -> None:
        """Anything from nothing to the bound: a thundering herd is spread out."""
        draws = iter([0.0, 0.5, 1.0])
        store, _, _ = scripted(time, *[error("ThrottlingException")] * 3, answer(), random=lambda: next(draws))
        store.create(CLAIM, soon(store))
        assert time.slept == [0.0, 0.05, 0.2]

    def test_it_gives_up_at_the_deadline(self, scripted: Scripted, time: ManualTime) -> None:
        """No try begins after it, and no pause lasts beyond it."""
        store, client, _ = scripted(time, *[error("ThrottlingException")] * 50)
        with pytest.raises(StoreUnavailable) as raised:
            store.create(CLAIM, store.clock.monotonic() + 3.0)
        assert raised.value.code == "ThrottlingException"
        assert sum(time.slept) <= 3.0
        assert len(client.calls) == len(time.slept) + 1

    def test_a_try_that_would_end_too_late_is_not_begun(self, scripted: Scripted, time: ManualTime) -> None:
        """What took a second and a half last time will again, so the deadline holds for tries that hang, too."""

        def hangs() -> dict[str, Any]:
            time.pass_by(1.4)
            raise read_timeout()

        store, client, _ = scripted(time, *[hangs] * 10)
        began_at = time.ticks
        with pytest.raises(StoreUnavailable, match="ReadTimeoutError"):
            store.create(CLAIM, began_at + 3.0)
        assert len(client.calls) == 2
        assert time.ticks <= began_at + 3.0

    def test_one_try_is_always_made(self, scripted: Scripted, time: ManualTime) -> None:
        """Even where the deadline has passed: a recording must not fail without having been tried."""
        store, client, _ = scripted(time, answer())
        assert store.swap(CLAIM, DONE, store.clock.monotonic() - 1) == Written()
        assert len(client.calls) == 1

    def test_a_failed_condition_is_never_tried_again(self, scripted: Scripted, time: ManualTime) -> None:
        """It is an answer."""
        store, client, events = scripted(time, condition_failed(item_of(CLAIM)))
        assert store.create(pending(PK, owner="x"), soon(store)) == Found(CLAIM)
        assert len(client.calls) == 1
        assert [event.kind.value for event in events] == ["condition_failed"]

    @pytest.mark.parametrize("code", ["AccessDeniedException", "ResourceNotFoundException", "ExpiredTokenException"])
    def test_what_an_operator_must_mend_fails_at_once(self, scripted: Scripted, time: ManualTime, code: str) -> None:
        """Every request would wait for nothing."""
        store, client, _ = scripted(time, error(code))
        with pytest.raises(StoreMisconfigured, match="keys") as raised:
            store.create(CLAIM, soon(store))
        assert len(client.calls) == 1
        assert raised.value.__cause__ is not None
        assert certain(raised.value)

    def test_an_earlier_try_may_have_been_applied_whatever_the_last_one_says(
        self, scripted: Scripted, time: ManualTime
    ) -> None:
        """Credentials that end between a lost reply and the next try: the claim that may stand there is undone."""
        store, _, _ = scripted(time, read_timeout(), error("ExpiredTokenException"))
        with pytest.raises(StoreMisconfigured) as raised:
            store.create(CLAIM, soon(store))
        assert not certain(raised.value)

    def test_a_bug_is_not_hidden(self, scripted: Scripted, time: ManualTime) -> None:
        """What is no failure of a call goes through."""
        store, _, _ = scripted(time, TypeError("bug"))
        with pytest.raises(TypeError, match="bug"):
            store.create(CLAIM, soon(store))

    def test_each_retry_is_told(self, scripted: Scripted, time: ManualTime) -> None:
        """With DynamoDB's code and a digest of the key, never the key."""
        store, _, events = scripted(time, error("ThrottlingException"), read_timeout(), answer())
        store.swap(CLAIM, DONE, soon(store))
        assert [(event.kind, event.dynamo_error_code, event.key_digest, event.seconds) for event in events] == [
            (EventKind.STORE_RETRIED, "ThrottlingException", PK[:12], 0.05),
            (EventKind.STORE_RETRIED, "ReadTimeoutError", PK[:12], 0.1),
        ]

    def test_an_observer_that_fails_harms_nobody(
        self, scripted: Scripted, time: ManualTime, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The call goes on."""
        store, _, _ = scripted(time, error("ThrottlingException"), answer())

        def broken(event: object) -> None:
            raise RuntimeError("broken")

        store.subscribe(broken)
        with caplog.at_level(logging.ERROR, logger="idem_middleware"):
            assert store.create(CLAIM, soon(store)) == Written()
        assert "observer failed" in caplog.text

    def test_an_observer_is_told_once(self, scripted: Scripted, time: ManualTime) -> None:
        """Subscribing twice is not asking twice."""
        store, _, events = scripted(time, error("ThrottlingException"), answer())
        told: list[object] = []
        store.subscribe(told.append)
        store.subscribe(told.append)
        store.create(CLAIM, soon(store))
        assert len(told) == len(events) == 1


class TestWhatStoppedAWrite:
    """An emulator or a proxy may leave the old item out of the failure."""

    def test_a_missing_item_is_read(self, scripted: Scripted, time: ManualTime) -> None:
        """Strongly consistent."""
        store, client, _ = scripted(time, condition_failed(), answer(Item=item_of(CLAIM)))
        assert store.create(pending(PK, owner="x"), soon(store)) == Found(CLAIM)
        assert client.operations == ["put_item", "get_item"]
        assert client.calls[1][1]["ConsistentRead"] is True

    def test_a_swap_that_met_nothing_is_gone(self, scripted: Scripted, time: ManualTime) -> None:
        """Which DynamoDB tells by leaving the item out, too; the read tells the two apart."""
        store, _, _ = scripted(time, condition_failed(), answer())
        assert store.swap(CLAIM, DONE, soon(store)) == Gone()

    def test_a_record_that_vanished_meanwhile_is_created_again(self, scripted: Scripted, time: ManualTime) -> None:
        """The sweeper took it between the write and the read."""
        store, client, _ = scripted(time, condition_failed(), answer(), answer())
        assert store.create(CLAIM, soon(store)) == Written()
        assert client.operations == ["put_item", "get_item", "put_item"]

    def test_a_record_that_vanishes_for_ever_is_an_error(self, scripted: Scripted, time: ManualTime) -> None:
        """Something between us and DynamoDB does not tell the truth; it is not asked for ever."""
        steps: list[Step] = [condition_failed(), answer()]
        store, client, _ = scripted(time, *steps * 3)
        with pytest.raises(StoreUnavailable) as raised:
            store.create(CLAIM, soon(store))
        assert raised.value.code == "ConditionalCheckFailedException"
        assert len(client.calls) == 6


class TestChunkReads:
    """Bodies in pieces, read in few calls."""

    @staticmethod
    def batch(*numbers: int, left: tuple[int, ...] = ()) -> dict[str, Any]:
        """An answer of BatchGetItem with these pieces, and these left over."""
        keys = [{"pk": {"S": chunk_pk(CLAIM, number)}} for number in left]
        return answer(
            Responses={"keys": [chunk_item(CLAIM, number, b"%d" % number) for number in numbers]},
            UnprocessedKeys={"keys": {"Keys": keys, "ConsistentRead": True}} if left else {},
        )

    def test_what_is_left_over_is_asked_for_again(self, scripted: Scripted, time: ManualTime) -> None:
        """16 MB a call: while there is progress, nobody waits."""
        store, client, events = scripted(time, self.batch(2, 0, left=(1, 3)), self.batch(3, 1))
        assert store.get_chunks(CLAIM, 4, soon(store)) == [b"0", b"1", b"2", b"3"]
        asked = client.calls[1][1]["RequestItems"]["keys"]
        assert asked == {
            "Keys": [{"pk": {"S": chunk_pk(CLAIM, 1)}}, {"pk": {"S": chunk_pk(CLAIM, 3)}}],
            "ConsistentRead": True,
        }
        assert time.slept == []
        assert events == []

    def test_without_progress_it_waits(self, scripted: Scripted, time: ManualTime) -> None:
        """That is throttling, and is told."""
        store, _, events = scripted(time, self.batch(left=(0, 1)), self.batch(left=(0, 1)), self.batch(0, 1))
        assert store.get_chunks(CLAIM, 2, soon(store)) == [b"0", b"1"]
        assert time.slept == [0.05, 0.1]
        assert [event.dynamo_error_code for event in events] == ["UnprocessedKeys"] * 2

    def test_without_progress_it_gives_up_at_the_deadline(self, scripted: Scripted, time: ManualTime) -> None:
        """A chunk that could not be read is not a chunk that is missing: the answer may still be there."""
        store, _, _ = scripted(time, *[self.batch(left=(0, 1))] * 50)
        with pytest.raises(StoreUnavailable, match="2 chunks") as raised:
            store.get_chunks(CLAIM, 2, store.clock.monotonic() + 1.0)
        assert raised.value.code == "UnprocessedKeys"

    def test_a_damaged_piece_is_missing(self, scripted: Scripted, time: ManualTime) -> None:
        """As one that is not there."""
        damaged = {"pk": {"S": chunk_pk(CLAIM, 1)}, "data": {"S": "text"}}
        whole = chunk_item(CLAIM, 0, b"0")
        store, _, _ = scripted(time, answer(Responses={"keys": [damaged, whole]}), answer(Item=damaged))
        assert store.get_chunks(CLAIM, 2, soon(store)) == [b"0", None]
        assert store.get_chunks(CLAIM, 1, soon(store)) == [None]


class TestClock:
    """Every answer's `Date` teaches the clock."""

    def test_a_skewed_clock_is_corrected_and_told_once(self, scripted: Scripted, time: ManualTime) -> None:
        """Beyond the margin."""
        store, _, events = scripted(time, *[answer(date=NOW + 100)] * 3)
        for _ in range(3):
            store.load(PK, soon(store))
        assert abs(store.clock.offset_seconds - 100) <= 1
        assert [event.kind for event in events] == [EventKind.CLOCK_SKEWED]
        assert events[0].seconds == pytest.approx(100, abs=1)

    def test_a_clock_within_the_margin_is_not_told(self, scripted: Scripted, time: ManualTime) -> None:
        """Nobody has to do anything about it."""
        store, _, events = scripted(time, answer(date=NOW + 1.5))
        store.load(PK, soon(store))
        assert events == []

    def test_a_clock_that_was_set_right_may_be_told_of_again(self, scripted: Scripted, time: ManualTime) -> None:
        """A new skew is news."""
        store, _, events = scripted(time, answer(date=NOW + 100), answer(date=NOW), answer(date=NOW + 50))
        for _ in range(3):
            store.load(PK, soon(store))
        assert [round(event.seconds or 0) for event in events] == [100, 50]

    def test_errors_teach_it_too(self, scripted: Scripted, time: ManualTime) -> None:
        """A signature that is refused for the clock's sake still has a right Date; so has a failed condition."""
        store, _, _ = scripted(time, error("InvalidSignatureException", date=NOW - 400))
        with pytest.raises(StoreMisconfigured, match="clock"):
            store.load(PK, soon(store))
        assert abs(store.clock.offset_seconds + 400) <= 1

    def test_each_attempt_is_timed_alone(self, scripted: Scripted, time: ManualTime) -> None:
        """A slow attempt before it does not blur what an answer tells."""

        def slow() -> dict[str, Any]:
            time.pass_by(20.0)
            raise read_timeout()

        store, _, _ = scripted(time, slow, lambda: answer(date=time.now + 100))
        store.load(PK, soon(store, 100))
        assert abs(store.clock.offset_seconds - 100) <= 1

    def test_an_answer_that_boto3_retried_for_teaches_nothing(self, scripted: Scripted, time: ManualTime) -> None:
        """With a client of the user's it is not known when that attempt began."""
        store, _, _ = scripted(time, answer(date=NOW + 100, sdk_retries=1))
        store.load(PK, soon(store))
        assert store.clock.offset_seconds == 0.0

    @pytest.mark.parametrize("date", ["", "now", "Thu, 01 Jan 99999 00:00:00 GMT", 7, None])
    def test_a_proxys_date_breaks_nothing(self, scripted: Scripted, time: ManualTime, date: object) -> None:
        """It is not believed."""
        reply = {"ResponseMetadata": {"HTTPHeaders": {"date": date}}}
        store, _, _ = scripted(time, reply)
        assert store.load(PK, soon(store)) == Gone()
        assert store.clock.offset_seconds == 0.0

    @pytest.mark.parametrize(
        "reply", [{}, {"ResponseMetadata": None}, {"ResponseMetadata": {"HTTPHeaders": None}}], ids=str
    )
    def test_an_answer_without_any_date_is_one(
        self, scripted: Scripted, time: ManualTime, reply: dict[str, Any]
    ) -> None:
        """Some emulators send none."""
        store, _, _ = scripted(time, reply)
        assert store.load(PK, soon(store)) == Gone()


class TestTooLarge:
    """What DynamoDB will never take."""

    def test_a_record_beyond_the_limit_has_an_error_of_its_own(self, scripted: Scripted, time: ManualTime) -> None:
        """Not retried, so that the engine can record that the work is done without its answer."""
        too_large = error("ValidationException", "Item size to update has exceeded the maximum allowed size")
        store, client, _ = scripted(time, too_large)
        with pytest.raises(StoreUnavailable, match="larger than DynamoDB takes") as raised:
            store.swap(CLAIM, DONE, soon(store))
        assert raised.value.code == "ItemTooLarge"
        assert len(client.calls) == 1

    @pytest.mark.dynamodb_local
    def test_amazons_own_program_says_the_same(self, local_store: DynamoDBStore) -> None:
        """By create and by swap; the record before stays."""
        claim = pending(new_pk())
        huge = after(claim, response=KeptResponse(status=200, headers=(), body=b"x" * 410_000))
        local_store.create(claim, soon(local_store))
        with pytest.raises(StoreUnavailable) as swapped:
            local_store.swap(claim, huge, soon(local_store))
        with pytest.raises(StoreUnavailable) as created:
            local_store.create(replace(huge, pk=new_pk()), soon(local_store))
        assert (swapped.value.code, created.value.code) == ("ItemTooLarge", "ItemTooLarge")
        assert local_store.load(claim.pk, soon(local_store)) == Found(claim)


@pytest.mark.dynamodb_local
def test_a_body_beyond_sixteen_megabytes_is_read_in_several_calls(dynamodb_local: str) -> None:
    """DynamoDB really leaves keys over; the loop gets them all."""
    client = WatchedClient(boto3.client("dynamodb", region_name="eu-central-1", endpoint_url=dynamodb_local))
    store = DynamoDBStore(f"keys-{new_pk()[:12]}", client=client)
    store.create_table()
    claim = pending(new_pk())
    chunks = [bytes([number]) * (350 * 1024) for number in range(60)]
    store.put_chunks(claim, chunks, soon(store))
    client.operations.clear()
    assert store.get_chunks(claim, 60, soon(store)) == chunks
    assert client.operations.count("batch_get_item") >= 2


def test_a_store_shows_its_table_and_no_more() -> None:
    """In logs and tracebacks."""
    assert repr(DynamoDBStore("my-keys")) == "DynamoDBStore('my-keys')"
