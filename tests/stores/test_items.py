"""Records as items, and whatever else may stand in a table."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from hypothesis import given
from hypothesis import strategies as st

from idem_middleware.bodies import MAX_HEADER_LINES, pack
from idem_middleware.decisions import Attempt, Create, Execute, Refuse, Replay, Swap, decide
from idem_middleware.keys import placed
from idem_middleware.messages import Response
from idem_middleware.options import Options
from idem_middleware.problems import ProblemType
from idem_middleware.records import (
    SCHEMA_VERSION,
    Chunks,
    KeptResponse,
    OmittedResponse,
    Record,
    SealedResponse,
    Status,
)
from idem_middleware.stores.dynamodb import items
from idem_middleware.stores.dynamodb.items import (
    OPTIONAL,
    UNREADABLE,
    chunk_data,
    chunk_item,
    chunk_pk,
    item_of,
    item_size,
    record_of,
)
from idem_middleware.stores.dynamodb.layouts import item_key, item_name
from idem_middleware.stores.dynamodb.requests import CLAIM_ITEM_BYTES, INLINE_BYTES
from tests.stores.records import LARGE_ANSWER, NOW, SHAPES, SMALL_ANSWER, after, lives, pending

PK = "0123456789abcdef" * 4

# --- any record that we could write -----------------------------------------------------------------------------------

instants = st.floats(min_value=2.0**30, max_value=2.0**37, allow_nan=False)  # 2004 to the year 6325
counters = st.integers(0, 2**53)
ascii_words = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40)
header_names = st.from_regex(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", fullmatch=True)
header_values = st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0"), max_size=40)
bodies = st.binary(max_size=200)
chunkings = st.builds(
    lambda count, more, digest: Chunks(count=count, size_bytes=count + more, sha256=digest),
    st.integers(1, 100),
    counters,
    st.binary(min_size=32, max_size=32),
)
kept_responses = st.builds(
    KeptResponse,
    status=st.integers(200, 599),
    headers=st.lists(st.tuples(header_names, header_values), max_size=5).map(tuple),
    encoding=st.sampled_from(["identity", "deflate"]),
    body=bodies,
)
responses = st.one_of(
    st.none(),
    kept_responses,
    st.builds(replace, kept_responses, body=st.none(), chunks=chunkings),
    st.builds(OmittedResponse, reason=ascii_words, location=st.none() | header_values),
    st.builds(SealedResponse, bodies),
)


def _record(times: list[float], **fields: Any) -> Record:
    """None ends before it began."""
    return Record(created_at=times[0], expires_at=times[1], bound_until=times[2], **fields)


records = st.builds(
    _record,
    st.tuples(instants, instants, instants).map(sorted),
    pk=st.just(PK),
    status=st.sampled_from(Status),
    version=counters,
    owner=ascii_words,
    attempt=counters,
    fingerprint=bodies,
    caller_digest=st.none() | bodies,
    response=responses,
    checkpoint=st.none() | bodies,
    transaction=st.none() | ascii_words,
)

# --- anything at all --------------------------------------------------------------------------------------------------

junk_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.binary(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
kinds = st.sampled_from(["S", "N", "B", "M", "L", "BOOL", "NULL", "SS", "NS", "BS", "X"])
numbers = st.sampled_from(["NaN", "sNaN", "Infinity", "-1", "1e999999999", "1E-999999999", "9" * 500, "", "0x1", "1.5"])
# What no reader of ours takes for a value of its attribute: a wrong type, or a number out of all bounds.
junk_attributes = st.one_of(
    st.dictionaries(kinds, junk_values, max_size=3).filter(
        # An empty list is a fine list of headers.
        lambda typed: not ({"S", "N", "B", "M"} & typed.keys()) and typed.get("L") != []
    ),
    st.builds(lambda text: {"N": text}, numbers.filter(lambda text: text != "1.5")),
    st.builds(lambda value: {"BOOL": value}, st.booleans()),
    st.just({"S": "\ud800"}),
    st.just({"S": ""}),
    st.just({"NULL": True}),
    st.just({"S": "x" * 400_000}),
    st.just({"B": "text"}),
    st.just({"M": None}),
    # DynamoDB never answers with these; a broken proxy or codec may.
    st.builds(lambda kind, value: {kind: value}, st.sampled_from("SNBM"), st.sampled_from([None, 7, True, ()])),
    st.builds(lambda kind, other: {kind: "1", other: "1"}, st.sampled_from("SN"), st.sampled_from(["BOOL", "NULL"])),
    junk_values.filter(lambda value: not isinstance(value, dict)),
)


class TestRoundTrip:
    """What is written is read."""

    @given(records)
    def test_any_record_is_read_as_it_was_written(self, record: Record) -> None:
        """Every field, exactly; times to the last bit."""
        assert record_of(item_of(record), PK) == record

    @given(records)
    def test_boto3_takes_every_item(self, record: Record) -> None:
        """No value of a user meets DynamoDB's type system (Chainlit/chainlit#2133): what is there are S, N, B, M, L."""
        deserializer: Any = TypeDeserializer()
        serializer = TypeSerializer()
        for value in item_of(record).values():
            assert serializer.serialize(deserializer.deserialize(value))

    @pytest.mark.parametrize("shape", SHAPES)
    def test_every_shape_is_read_as_it_was_written(self, shape: str) -> None:
        """The shapes that really occur, without chance."""
        record = lives(PK)[shape]
        assert record_of(item_of(record), PK) == record

    @pytest.mark.parametrize("normalised", ["1", "1.0", "1E0", "+1", "10E-1"])
    def test_numbers_are_read_in_any_notation(self, normalised: str) -> None:
        """A store may give a number back in another form than it got it in."""
        item = item_of(pending(PK)) | {"version": {"N": normalised}}
        assert record_of(item, PK) == pending(PK)

    def test_attributes_that_are_not_ours_are_left_alone(self) -> None:
        """Operators may tag items."""
        item = item_of(pending(PK)) | {"team": {"S": "payments"}}
        assert record_of(item, PK) == pending(PK)


class TestForm:
    """What is written, literally: items outlive deployments, so that their form may only change with the schema."""

    COMPLETED = Record(
        pk=PK,
        status=Status.COMPLETED,
        version=3,
        owner="me",
        attempt=2,
        fingerprint=b"f",
        caller_digest=b"c",
        created_at=1764000000.5,
        expires_at=1764003600.25,
        bound_until=1764007200.0,
        checkpoint=b"paid",
        transaction="t",
    )

    @pytest.mark.parametrize(
        ("response", "written"),
        [
            (
                KeptResponse(status=201, headers=(("x-a", "b"), ("x-c", "")), body=b"done"),
                {
                    "status": {"N": "201"},
                    "headers": {"L": [{"S": "x-a"}, {"S": "b"}, {"S": "x-c"}, {"S": ""}]},
                    "encoding": {"S": "identity"},
                    "body": {"B": b"done"},
                },
            ),
            (
                replace(LARGE_ANSWER, chunks=Chunks(count=3, size_bytes=10, sha256=b"s" * 32)),
                {
                    "status": {"N": "200"},
                    "headers": {"L": []},
                    "encoding": {"S": "deflate"},
                    "chunks": {"M": {"count": {"N": "3"}, "size": {"N": "10"}, "sha256": {"B": b"s" * 32}}},
                },
            ),
            (OmittedResponse(reason="too-large"), {"omitted": {"M": {"reason": {"S": "too-large"}}}}),
            (
                OmittedResponse(reason="too-large", location="/a"),
                {"omitted": {"M": {"reason": {"S": "too-large"}, "location": {"S": "/a"}}}},
            ),
            (SealedResponse(b"secret"), {"sealed": {"B": b"secret"}}),
        ],
        ids=["kept", "in chunks", "omitted", "omitted, with a location", "sealed"],
    )
    def test_an_item_has_the_form_that_the_schema_says(
        self, response: KeptResponse | OmittedResponse | SealedResponse, written: dict[str, Any]
    ) -> None:
        """Every attribute, its type and its unit."""
        assert item_of(replace(self.COMPLETED, response=response)) == {
            "pk": {"S": PK},
            "status": {"S": "COMPLETED"},
            "version": {"N": "3"},
            "owner": {"S": "me"},
            "attempt": {"N": "2"},
            "fingerprint": {"B": b"f"},
            "caller_digest": {"B": b"c"},
            "created_at": {"N": "1764000000.5000000"},
            "expires_at": {"N": "1764003600.2500000"},
            "bound_until": {"N": "1764007200.0000000"},
            "ttl": {"N": "1764007260"},
            "response": {"M": written},
            "checkpoint": {"B": b"paid"},
            "transaction": {"S": "t"},
            "schema": {"N": "1"},
        }

    def test_a_piece_of_a_body_has_the_form_that_the_schema_says(self) -> None:
        """It outlives its record by an hour."""
        assert chunk_item(self.COMPLETED, 7, b"x") == {
            "pk": {"S": f"{PK}#me#7"},
            "data": {"B": b"x"},
            "ttl": {"N": "1764010860"},
        }
        assert chunk_data(chunk_item(self.COMPLETED, 7, b"x")) == b"x"


class TestBounds:
    """What is just possible is read; what is just not is damage."""

    @pytest.mark.parametrize("name", ["version", "attempt"])
    def test_counters_go_from_zero_to_2_to_the_62(self, name: str) -> None:
        """More than any counter of ours will ever be."""
        for number in (0, 2**62):
            found = record_of(item_of(changed(pending(PK), **{name: number})), PK)
            assert (found.schema, getattr(found, name)) == (SCHEMA_VERSION, number)
        for number in (-1, 2**62 + 1):
            assert record_of(item_of(changed(pending(PK), **{name: number})), PK).schema == UNREADABLE

    def test_times_go_from_the_first_second_to_the_year_9999(self) -> None:
        """In seconds: what lies outside was written in another unit, or not at all."""
        first = replace(pending(PK), created_at=1.0, expires_at=1.0, bound_until=1.0)
        assert record_of(item_of(first), PK) == first
        last = item_of(pending(PK)) | {"bound_until": {"N": "253402300799.9"}}
        assert record_of(last, PK).bound_until == 253402300799.9
        for beyond in ("0.9999999", "253402300800"):
            found = record_of(item_of(pending(PK)) | {"bound_until": {"N": beyond}}, PK)
            assert (found.schema, found.bound_until) == (UNREADABLE, math.inf)

    def test_a_number_has_64_characters_at_most(self) -> None:
        """DynamoDB gives 38 digits, a sign, a point and an exponent."""
        for length, schema in [(64, SCHEMA_VERSION), (65, UNREADABLE)]:
            assert record_of(item_of(pending(PK)) | {"version": {"N": "1".rjust(length, "0")}}, PK).schema == schema

    def test_a_text_has_1024_characters_at_most(self) -> None:
        """Ours have 64 at most; what is longer is not read into logs and conditions."""
        assert record_of(item_of(pending(PK, owner="o" * 1024)), PK) == pending(PK, owner="o" * 1024)
        assert record_of(item_of(pending(PK, owner="o" * 1025)), PK).schema == UNREADABLE

    def test_a_record_may_end_when_it_begins_but_not_before(self) -> None:
        """So do claims that were given back at once. One that ends before would set a key free that is bound."""
        begun_at = pending(PK).created_at
        given_back = after(pending(PK), status=Status.FAILED, expires_at=begun_at, bound_until=begun_at)
        assert record_of(item_of(given_back), PK) == given_back
        for name, end in [("expires_at", given_back.bound_until), ("bound_until", math.inf)]:
            found = record_of(item_of(changed(given_back, **{name: begun_at - 1})), PK)
            assert (found.schema, found.bound_until) == (UNREADABLE, end)

    @pytest.mark.parametrize("status", [200, 599])
    def test_a_status_that_is_just_one_is_given_again(self, status: int) -> None:
        """100 to 199 are no final answers."""
        answer = replace(SMALL_ANSWER, status=status)
        assert answer_of({"response": item_of(after(pending(PK), response=answer))["response"]}) == answer

    @pytest.mark.parametrize(("count", "size"), [(1, 1), (10, 10), (10_000, 10_000), (10_000, 2**62)])
    def test_a_number_of_chunks_that_is_just_possible_is_read(self, count: int, size: int) -> None:
        """None is empty."""
        answer = replace(LARGE_ANSWER, chunks=Chunks(count=count, size_bytes=size, sha256=b"s" * 32))
        assert record_of(item_of(after(pending(PK), response=answer)), PK).response == answer

    def test_an_answer_has_as_many_header_lines_as_are_ever_written(self) -> None:
        """One more was planted, to keep a reader busy."""
        for lines in (MAX_HEADER_LINES, MAX_HEADER_LINES + 1):
            answer = replace(SMALL_ANSWER, headers=(("a", "b"),) * lines)
            found = answer_of({"response": item_of(after(pending(PK), response=answer))["response"]})
            assert found == (answer if lines == MAX_HEADER_LINES else None)


class TestUnits:
    """Each attribute has one unit (powertools-lambda-java#1281), checked on items that were written by hand."""

    ITEM: dict[str, dict[str, Any]] = {  # noqa: RUF012  # read only
        "pk": {"S": PK},
        "status": {"S": "PENDING"},
        "version": {"N": "3"},
        "owner": {"S": "me"},
        "attempt": {"N": "2"},
        "fingerprint": {"B": b"f"},
        "created_at": {"N": "1764000000.5"},
        "expires_at": {"N": "1764000030.5"},
        "bound_until": {"N": "1764003600"},
        "ttl": {"N": "1764003660"},
        "schema": {"N": "1"},
    }

    def test_an_item_written_by_hand_is_read(self) -> None:
        """All times are unix seconds."""
        record = record_of(self.ITEM, PK)
        assert (record.created_at, record.expires_at, record.bound_until) == (1764000000.5, 1764000030.5, 1764003600.0)
        assert (record.status, record.version, record.attempt) == (Status.PENDING, 3, 2)

    @pytest.mark.parametrize(
        ("seconds", "taken"), [(29.0, False), (30.0, False), (32.4, False), (32.5, True), (60.0, True)]
    )
    def test_a_lease_ends_when_the_item_says(self, seconds: float, taken: bool) -> None:  # noqa: FBT001
        """A lease that is over is taken over, one that is not is respected, to the fraction of a second."""
        attempt = Attempt(
            pk=PK, owner="you", fingerprint=b"f", caller_digest=None, options=Options(), margin_seconds=2.0
        )
        step = decide(attempt, record_of(self.ITEM, PK), 1764000000.0 + seconds)
        assert isinstance(step, Swap) is taken

    def test_the_sweepers_time_is_in_whole_seconds_after_everything_else(self) -> None:
        """TTL is a Number of unix seconds; DynamoDB takes milliseconds for a far future (dyndb-mutex#14)."""
        record = pending(PK)
        ttl = item_of(record)["ttl"]
        assert list(ttl) == ["N"]
        assert ttl["N"].isdigit()
        assert record.bound_until < int(ttl["N"]) < record.bound_until + 3600

    @pytest.mark.parametrize("name", ["created_at", "expires_at", "bound_until"])
    def test_milliseconds_are_damage(self, name: str) -> None:
        """A time that was written in another unit is not believed."""
        item = self.ITEM | {name: {"N": "1764000000500"}}
        assert record_of(item, PK).schema == UNREADABLE

    @pytest.mark.parametrize("text", ["0", "-1", "0.5", "1E-9", "1E+99"])
    def test_a_time_that_cannot_be_is_damage(self, text: str) -> None:
        """A zero where an end should stand does not set the key free."""
        found = record_of(self.ITEM | {"bound_until": {"N": text}}, PK)
        assert (found.schema, found.bound_until) == (UNREADABLE, math.inf)

    @pytest.mark.parametrize("instant", [math.nan, math.inf, -math.inf])
    def test_what_is_no_time_is_not_written(self, instant: float) -> None:
        """DynamoDB has no NaN; a record with one is a bug and fails before anything runs."""
        with pytest.raises(ValueError, match="not a time"):
            item_of(replace(pending(PK), expires_at=instant))

    @given(instants)
    def test_a_time_is_written_as_decimal_text(self, instant: float) -> None:
        """Without an exponent, and within DynamoDB's 38 digits."""
        text = item_of(replace(pending(PK), created_at=instant))["created_at"]["N"]
        assert text.replace(".", "", 1).isdigit()
        assert len(text) < 38


class TestPoisonedTable:
    """Whatever stands in a table, reading it never raises, and nothing runs on its account (apache/polaris#5122)."""

    @given(junk_values)
    def test_anything_can_be_read(self, item: object) -> None:
        """Even what is no item at all: nobody's claim, which no write could be fenced by and no request is like."""
        assert record_of(item, PK) == Record(
            pk=PK,
            status=Status.PENDING,
            version=0,
            owner="",
            attempt=0,
            fingerprint=b"",
            caller_digest=None,
            created_at=0.0,
            expires_at=math.inf,
            bound_until=math.inf,
            schema=UNREADABLE,
        )

    @given(st.dictionaries(st.sampled_from(sorted(item_of(pending(PK)))), junk_attributes | junk_values))
    def test_any_attributes_can_be_read(self, item: dict[str, Any]) -> None:
        """Even where all of them are junk."""
        record_of(item, PK)

    @given(records, st.sampled_from(sorted(item_of(pending(PK)).keys() - {"ttl"})), junk_attributes)
    def test_a_damaged_attribute_never_lets_anything_run(self, record: Record, name: str, junk: object) -> None:
        """One attribute is junk: the key is refused as long as it is bound, whatever the rest says."""
        bound = replace(record, bound_until=2.0**37)
        found = record_of(item_of(bound) | {name: junk}, PK)
        assert refusal(found) is ProblemType.RECORD_UNREADABLE

    @given(records, st.sampled_from(sorted(item_of(pending(PK)).keys() - {"ttl", *OPTIONAL})))
    def test_a_missing_attribute_never_lets_anything_run(self, record: Record, name: str) -> None:
        """The same where it is not there."""
        item = item_of(replace(record, bound_until=2.0**37))
        del item[name]
        assert refusal(record_of(item, PK)) is ProblemType.RECORD_UNREADABLE

    @given(st.sampled_from(sorted(OPTIONAL - {"response"})), junk_attributes)
    def test_a_damaged_optional_attribute_is_not_taken_for_a_missing_one(self, name: str, junk: object) -> None:
        """A checkpoint that can't be read is not "nothing done yet"; a digest not "no caller"."""
        found = record_of(item_of(pending(PK)) | {name: junk}, PK)
        assert found.schema == UNREADABLE

    def test_the_sweepers_time_decides_nothing(self) -> None:
        """`ttl` is DynamoDB's; we never read it."""
        assert record_of(item_of(pending(PK)) | {"ttl": {"S": "never"}}, PK) == pending(PK)

    def test_an_item_under_another_key_is_damage(self) -> None:
        """What came for one key is not taken for another's."""
        assert refusal(record_of(item_of(pending("f" * 64)), PK)) is ProblemType.RECORD_UNREADABLE

    @pytest.mark.parametrize("name", ["pk", "status", "version", "owner"])
    def test_where_no_write_could_be_fenced_the_key_stays_bound(self, name: str) -> None:
        """A swap is conditioned on these; without them it would fail for ever, so it is not even begun."""
        item = item_of(replace(pending(PK), bound_until=NOW)) | {name: {"NULL": True}}
        assert record_of(item, PK).bound_until == math.inf

    @pytest.mark.parametrize("name", ["attempt", "fingerprint", "created_at", "expires_at", "schema"])
    def test_where_the_end_can_be_read_the_key_gets_free(self, name: str) -> None:
        """Damage does not lock a key for longer than its retention."""
        item = item_of(replace(pending(PK), bound_until=NOW)) | {name: {"NULL": True}}
        found = record_of(item, PK)
        assert found.bound_until == NOW
        assert isinstance(decide(attempt_like(found), found, NOW), Swap)

    @pytest.mark.parametrize("schema", [0, 2, 99])
    def test_a_newer_record_is_read_as_far_as_it_means_the_same_for_ever(self, schema: int) -> None:
        """Another schema's record has its number and its fence, so that an older worker sees when the key is free."""
        item = item_of(pending(PK)) | {"schema": {"N": str(schema)}, "fingerprint": {"S": "of another type"}}
        found = record_of(item, PK)
        claim = pending(PK)
        assert found.schema == schema
        assert (found.pk, found.status, found.owner, found.version, found.bound_until) == (
            (claim.pk, claim.status, claim.owner, claim.version, claim.bound_until)
        )
        assert refusal(found) is ProblemType.RECORD_UNREADABLE


class TestPoisonedAnswers:
    """A completed record whose answer is missing or damaged (laravel-idempotency#5) is done, and can't be replayed."""

    @given(junk_attributes)
    def test_a_damaged_answer_is_not_stored(self, junk: object) -> None:
        """Neither a crash, nor a run, nor an endless "in progress"."""
        assert answer_of({"response": junk}) is None

    def test_a_missing_answer_is_not_stored(self) -> None:
        """An interrupted write of somebody else's."""
        item = item_of(after(pending(PK), status=Status.COMPLETED))
        found = record_of(item, PK)
        assert found.response is None
        assert refusal(found) is ProblemType.RESPONSE_NOT_STORED

    @pytest.mark.parametrize("part", ["status", "headers", "encoding", "body"])
    @given(junk=junk_attributes)
    def test_a_damaged_part_of_an_answer_is_not_stored(self, part: str, junk: object) -> None:
        """Part by part."""
        assert answer_of(in_answer(SMALL_ANSWER, {part: junk})) is None

    @pytest.mark.parametrize("part", ["count", "size", "sha256"])
    @given(junk=junk_attributes)
    def test_a_damaged_pointer_to_chunks_is_not_stored(self, part: str, junk: object) -> None:
        """Part by part."""
        item = item_of(after(pending(PK), status=Status.COMPLETED, response=LARGE_ANSWER))
        item["response"]["M"]["chunks"]["M"][part] = junk
        assert record_of(item, PK).response is None

    @pytest.mark.parametrize("status", ["0", "99", "199", "600", "200.5", "-200", "1e3", "NaN"])
    def test_a_status_that_is_none_is_not_stored(self, status: str) -> None:
        """200 to 599."""
        assert answer_of(in_answer(SMALL_ANSWER, {"status": {"N": status}})) is None

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("x-a", "b\r\nset-cookie: admin=1"),
            ("x-a", "b\nset-cookie: admin=1"),
            ("x-a", "b\rset-cookie: admin=1"),
            ("x-a", "b\0"),
            ("x-a", "snow \u2603"),
            ("x-a", "\ud800"),
            ("x-a\r\nset-cookie", "b"),
            ("x-a: b", "c"),
            ("", "b"),
        ],
        ids=ascii,
    )
    def test_a_header_that_would_become_two_is_not_stored(self, name: str, value: str) -> None:
        """Somebody who can write to the table can't write header lines."""
        headers = {"headers": {"L": [{"S": name}, {"S": value}]}}
        assert answer_of(in_answer(SMALL_ANSWER, headers)) is None

    @pytest.mark.parametrize(
        "headers",
        [
            [{"S": "x-a"}],
            [{"S": "x-a"}, {"N": "1"}],
            [{"S": "x-a"}, {"S": 1}],
            [{"S": 1}, {"S": "b"}],
            ["x-a", "b"],
            [["x-a", "b"]],
            {"x-a": "b"},
            None,
        ],
        ids=str,
    )
    def test_headers_in_another_form_are_not_stored(self, headers: object) -> None:
        """An even number of texts, and nothing else."""
        assert answer_of(in_answer(SMALL_ANSWER, {"headers": {"L": headers}})) is None

    def test_an_answer_with_a_body_and_chunks_is_not_stored(self) -> None:
        """It is not known which of the two is the answer."""
        chunks = item_of(after(pending(PK), response=LARGE_ANSWER))["response"]["M"]["chunks"]
        assert answer_of(in_answer(SMALL_ANSWER, {"chunks": chunks})) is None

    def test_an_answer_of_which_there_is_no_body_to_write_is_not_stored(self) -> None:
        """It is a bug of the writer's, and no answer to give again."""
        assert answer_of(in_answer(replace(SMALL_ANSWER, body=None), {})) is None

    def test_an_answer_without_body_and_chunks_is_not_stored(self) -> None:
        """An empty body is written, too."""
        written = in_answer(SMALL_ANSWER, {})
        del written["response"]["M"]["body"]
        assert answer_of(written) is None

    @pytest.mark.parametrize(
        ("count", "size"), [(0, 0), (0, 10), (11, 10), (10_001, 10**6), (10**9, 10**12), (1, 2**62 + 1)]
    )
    def test_an_impossible_number_of_chunks_is_not_stored(self, count: int, size: int) -> None:
        """A planted count can't make a reader fetch for hours."""
        response = replace(LARGE_ANSWER, chunks=Chunks(count=count, size_bytes=size, sha256=b"s" * 32))
        assert record_of(item_of(after(pending(PK), response=response)), PK).response is None

    def test_a_digest_of_another_length_is_not_stored(self) -> None:
        """It could not be the digest of anything."""
        response = replace(LARGE_ANSWER, chunks=Chunks(count=1, size_bytes=10, sha256=b"short"))
        assert record_of(item_of(after(pending(PK), response=response)), PK).response is None

    @pytest.mark.parametrize("location", [{"S": "/a\r\nset-cookie: b"}, {"N": "1"}, {"S": "\u2603"}], ids=str)
    def test_a_location_that_is_no_header_value_is_not_given(self, location: dict[str, str]) -> None:
        """It would be one in the refusal."""
        item = item_of(
            after(pending(PK), status=Status.COMPLETED, response=OmittedResponse(reason="response-not-stored"))
        )
        item["response"]["M"]["omitted"]["M"]["location"] = location
        assert record_of(item, PK).response is None

    def test_a_whole_answer_is_replayed(self) -> None:
        """So that the tests above don't pass for another reason."""
        found = record_of(item_of(after(pending(PK), status=Status.COMPLETED, response=SMALL_ANSWER)), PK)
        assert decide(attempt_like(found), found, NOW) == Replay(found, SMALL_ANSWER)


class TestChunks:
    """Pieces of a body."""

    def test_a_chunk_outlives_its_record(self) -> None:
        """The sweeper never takes a piece that a record still points at."""
        record = pending(PK)
        assert int(chunk_item(record, 0, b"x")["ttl"]["N"]) > record.ttl

    @given(junk_values | st.dictionaries(st.just("data"), junk_attributes))
    def test_a_damaged_chunk_is_missing(self, item: object) -> None:
        """Never an error."""
        assert chunk_data(item) is None

    def test_a_chunk_of_the_largest_size_fits_into_an_item(self) -> None:
        """DynamoDB takes 400 KB, names included."""
        assert item_size(chunk_item(pending(PK, owner="o" * 64), 9999, b"x" * 350 * 1024)) < 400 * 1024


class TestSizes:
    """What an item costs."""

    def test_sizes_are_reckoned_as_dynamodb_does(self) -> None:
        """Developer Guide, "DynamoDB item sizes and formats", by hand."""
        assert item_size({"pk": {"S": "caf\xe9"}}) == 2 + 5
        assert item_size({"n": {"N": "-12.50"}}) == 1 + 2 + 1 + 1
        assert item_size({"n": {"N": "12.34"}}) == 1 + 2 + 1
        assert item_size({"n": {"N": "1000"}}) == 1 + 1 + 1
        assert item_size({"b": {"B": b"xyz"}}) == 1 + 3
        assert item_size({"l": {"L": [{"S": "ab"}, {"S": ""}]}}) == 1 + 3 + 1 + 2 + 1
        assert item_size({"m": {"M": {"ab": {"S": "c"}}}}) == 1 + 3 + 1 + 2 + 1

    @pytest.mark.parametrize(
        ("value", "size"),
        [
            ({"SS": ["a", "bc"]}, 3),
            ({"NS": ["1", "23"]}, 4),
            ({"BS": [b"a"]}, 1),
            ({"BOOL": True}, 1),
            ({"NULL": True}, 1),
        ],
    )
    def test_types_that_only_users_write_have_a_size(self, value: dict[str, Any], size: int) -> None:
        """Their items are written together with ours."""
        assert item_size({"b": value}) == 1 + size

    def test_a_type_that_is_none_has_no_size(self) -> None:
        """It is told rather than guessed."""
        with pytest.raises(ValueError, match="type INT"):
            item_size({"b": {"INT": 1}})

    @pytest.mark.parametrize("headers", [(), (("content-type", "application/json"),) * 40], ids=["none", "many"])
    @pytest.mark.parametrize("spare", [0, 1, 100])
    def test_a_claim_with_an_answer_inside_costs_four_units_at_most(
        self, headers: tuple[tuple[str, str], ...], spare: int
    ) -> None:
        """Every failed write is billed by the item's size, so the whole item stays within 4 KB."""
        taken = sum(len(name) + len(value) + 4 for name, value in headers)
        noise = random.Random(17).randbytes(2 * INLINE_BYTES)  # noqa: S311  # what can't be compressed
        body = noise[: INLINE_BYTES - taken - spare]
        kept, chunks = pack(Response(200, headers, body), headers, inline_bytes=INLINE_BYTES)
        record = replace(
            pending(PK), owner="o" * 40, version=10**6, attempt=10**6, status=Status.COMPLETED, response=kept
        )
        assert chunks == []
        assert item_size(item_of(record)) <= CLAIM_ITEM_BYTES == 4 * 1024

    def test_a_claim_costs_one_unit(self) -> None:
        """A new claim, its renewals, and a refusal because of it: 1 write unit each."""
        assert item_size(item_of(replace(pending(PK), version=10**6))) < 1024


def changed(record: Record, **fields: Any) -> Record:
    """A record with other values in some of its fields."""
    return replace(record, **fields)


def attempt_like(found: Record) -> Attempt:
    """Another try with the same request."""
    return Attempt(
        pk=PK, owner="another", fingerprint=found.fingerprint, caller_digest=found.caller_digest, options=Options()
    )


def refusal(found: Record) -> ProblemType:
    """Why a retry is refused; it must be."""
    step = decide(attempt_like(found), found, NOW)
    assert not isinstance(step, (Create, Swap, Execute))
    assert isinstance(step, Refuse)
    return step.problem.type


def in_answer(response: KeptResponse, parts: dict[str, Any]) -> dict[str, Any]:
    """The `response` attribute of an answer, with some parts replaced."""
    written = item_of(after(pending(PK), response=response))["response"]["M"]
    return {"response": {"M": written | parts}}


def answer_of(attributes: dict[str, Any]) -> KeptResponse | OmittedResponse | SealedResponse | None:
    """What is read of a completed record with these attributes. If nothing, it is refused as not stored."""
    found = record_of(item_of(after(pending(PK), status=Status.COMPLETED)) | attributes, PK)
    assert found.schema == SCHEMA_VERSION
    if found.response is None:
        assert refusal(found) is ProblemType.RESPONSE_NOT_STORED
    return found.response


class TestSchemas:
    """Older items are read, newer ones are not."""

    OLDER = 0

    @pytest.fixture
    def older_is_known(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As in a deployment whose predecessor had neither attempts nor digests."""

        def read(attributes: Any, record: Record) -> Record:
            return replace(record, attempt=1, fingerprint=attributes["print"]["B"], expires_at=record.bound_until)

        monkeypatch.setitem(items._MEANINGS, self.OLDER, read)

    def older_item(self) -> dict[str, Any]:
        """An item of that predecessor's."""
        item = item_of(pending(PK)) | {"schema": {"N": str(self.OLDER)}, "print": {"B": b"f"}}
        for name in ("attempt", "fingerprint", "caller_digest", "expires_at"):
            del item[name]
        return item

    @pytest.mark.usefixtures("older_is_known")
    def test_an_older_item_is_read_as_one_of_ours(self) -> None:
        """So that no retry across a deployment is refused."""
        found = record_of(self.older_item(), PK)
        assert (found.schema, found.attempt, found.fingerprint) == (SCHEMA_VERSION, 1, b"f")
        assert isinstance(decide(attempt_like(found), found, NOW + 86400), Swap)

    @pytest.mark.usefixtures("older_is_known")
    def test_the_next_write_makes_it_one_of_ours(self) -> None:
        """Attribute by attribute."""
        found = record_of(self.older_item(), PK)
        assert item_of(after(found))["schema"] == {"N": str(SCHEMA_VERSION)}

    def test_an_item_whose_version_nobody_here_knows_is_refused(self) -> None:
        """A newer deployment wrote it; what it means is not guessed."""
        item = item_of(replace(pending(PK), schema=SCHEMA_VERSION + 1))
        assert refusal(record_of(item, PK)) is ProblemType.RECORD_UNREADABLE

    def test_every_version_up_to_ours_has_a_reader(self) -> None:
        """Whoever raises the version keeps the old reader."""
        assert sorted(items._MEANINGS) == list(range(1, SCHEMA_VERSION + 1))


class TestNames:
    """How a record's name becomes a key."""

    @pytest.mark.parametrize("name", [PK, placed(PK, "0" * 32)])
    def test_a_name_is_read_from_the_key_that_it_gives(self, name: str) -> None:
        """In either layout."""
        assert item_name(item_key(name)) == name
        assert record_of(item_of(pending(name)), name) == pending(name)

    def test_an_item_of_another_partition_is_damage(self) -> None:
        """What came for one caller is not taken for another's."""
        ours, theirs = placed(PK, "0" * 32), placed(PK, "1" * 32)
        assert record_of(item_of(pending(theirs)), ours).schema == UNREADABLE
        assert record_of(item_of(pending(PK)), ours).schema == UNREADABLE

    def test_a_piece_of_a_body_lies_beside_its_record(self) -> None:
        """In the same partition."""
        key = item_key(chunk_pk(pending(placed(PK, "0" * 32)), 3))
        assert key == {"pk": {"S": "0" * 32}, "sk": {"S": f"{PK}#{'a' * 32}#3"}}
