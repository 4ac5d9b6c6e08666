"""Answers under a cipher, and what is kept back: whoever changes the table gets no forged answer and no second run.

Every test runs with the driver of threads and with that of event loops.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idem_middleware import EventKind, Options, Response, StoreUnavailable
from idem_middleware.ciphers import AesGcm, Unauthentic
from idem_middleware.probing import Done
from idem_middleware.problems import ProblemType
from idem_middleware.records import Chunks, KeptResponse, OmittedResponse, Record, SealedResponse
from idem_middleware.sealing import (
    Rejected,
    _read,
    _written,
    open_response,
    opens_at_once,
    prepare_to_seal,
    reserved_bytes,
    seals_at_once,
)
from idem_middleware.settling import plan_completion, plan_omission
from idem_middleware.stores.dynamodb.items import item_of, item_size, record_of
from idem_middleware.stores.dynamodb.requests import CLAIM_ITEM_BYTES, INLINE_BYTES
from idem_middleware.testing import ManualClock
from tests.core.support.records import record_of as a_record
from tests.core.support.stores import ChunkStore, NarrowStore
from tests.core.support.worlds import CREATED, AsyncWorld, SyncWorld, World, request

KEY = b"k" * 32
CIPHER = AesGcm({"now": KEY})
LARGE = Response(
    201, (("location", "/secret/1"), ("x-secret", "yes")), bytes(range(256)) * 4000
)  # incompressible enough


@pytest.fixture(params=[SyncWorld, AsyncWorld], ids=["threads", "loop"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A process whose store keeps large bodies beside the records, driven in one of two ways."""
    made: World = request.param(ChunkStore(clock=ManualClock(margin_seconds=2.0)))
    yield made
    made.close()


def chunks_of(world: World) -> dict[tuple[str, int], bytes]:
    """What lies beside the records."""
    assert isinstance(world.memory, ChunkStore)
    return world.memory.chunks


def put(world: World, record: Record) -> None:
    """Write into the table, as somebody could who has the right to."""
    world.memory._records[record.pk] = record


def done(world: World, answer: Response = CREATED, *, key: str = "k", **options: Any) -> Record:
    """A request, carried out; its record."""
    world.settle(world.lease(request(key=key), **{"cipher": CIPHER, **options}), answer)
    return world.record()


# --- as usual ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [CREATED, LARGE, Response(204), Response(200, (("x", "caf\xe9"),), b"")])
def test_a_sealed_answer_is_replayed(world: World, answer: Response) -> None:
    """Byte for byte, wherever it lies."""
    done(world, answer)
    assert world.replay(cipher=CIPHER) == answer
    assert world.kinds() == ["claimed", "completed", "replayed"]


def test_nothing_of_it_is_in_the_table(world: World) -> None:
    """Neither status nor headers nor body nor where it lies."""
    record = done(world, LARGE)
    assert isinstance(record.response, SealedResponse)
    everything = repr(item_of(record)) + repr(chunks_of(world))
    assert "secret" not in everything
    assert bytes(range(64, 128)) not in b"".join(chunks_of(world).values())


@pytest.mark.parametrize("size", [1, 500, 3000, INLINE_BYTES, INLINE_BYTES + 1])
@pytest.mark.parametrize("headers", [1, 40])
def test_a_small_answer_stays_in_a_small_item(size: int, headers: int) -> None:
    """A retry storm is billed by its size."""
    body = b"".join(bytes((n * n * 31 % 251, n % 256)) for n in range(size // 2))
    answer = Response(201, tuple((f"x-{n}", "v") for n in range(headers)), body)
    cipher = AesGcm({"k" * 64: KEY})
    claimed = replace(a_record(), owner="o" * 32, pk="p" * 64, fingerprint=b"f" * 33, caller_digest=b"c" * 16)
    plan = plan_completion(answer, Options(cipher=cipher), inline_bytes=INLINE_BYTES, claimed=claimed)
    item = item_of(plan.make(claimed, claimed.created_at))
    assert item_size(item) <= CLAIM_ITEM_BYTES
    assert record_of(item, claimed.pk).response == plan.make(claimed, claimed.created_at).response


def test_keys_are_rotated_under_living_answers(world: World) -> None:
    """An answer under the last key is replayed as long as it is in the ring."""
    done(world)
    assert world.replay(cipher=AesGcm({"now": KEY, "next": b"n" * 32}, current="next")) == CREATED
    assert world.problem(cipher=AesGcm({"next": b"n" * 32})) == "record-unreadable"
    assert world.last(EventKind.RECORD_REJECTED).reason == "unknown-key"


def test_the_location_of_an_answer_that_is_not_kept_is_sealed_too(world: World) -> None:
    """It leads whoever asks again to what was done; nobody else may put one there, or read it."""
    answer = Response(201, (("location", "/orders/7"),), b"x" * 11)
    record = done(world, answer, max_response_bytes=10)
    assert isinstance(record.response, SealedResponse)
    world.acquire(cipher=CIPHER)
    assert world.outcomes[-1] == "refused response-not-stored None"
    assert open_response(record, Options(cipher=CIPHER)) == OmittedResponse(
        reason="response-not-stored", location="/orders/7"
    )
    put(world, replace(record, response=OmittedResponse(reason="response-not-stored", location="//evil.example")))
    outcome: Any = world.acquire(cipher=CIPHER)
    assert outcome.response.header("location") is None
    outcome = world.acquire()
    assert outcome.response.header("location") == "//evil.example"  # who has no cipher believes the table


# --- attacks ----------------------------------------------------------------------------------------------------------


def _response(record: Record) -> bytes:
    assert isinstance(record.response, SealedResponse)
    return record.response.data


def _flip(data: bytes, place: int) -> bytes:
    changed = bytearray(data)
    changed[place] ^= 1
    return bytes(changed)


FORGERIES: dict[str, Callable[[Record, Record], Record]] = {
    "an answer of the forger's own": lambda mine, _: replace(
        mine, response=KeptResponse(status=200, headers=(), body=b"forged")
    ),
    "another record's answer": lambda mine, other: replace(mine, response=other.response),
    "another record, moved whole": lambda mine, other: replace(other, pk=mine.pk),
    "another attempt's": lambda mine, _: replace(mine, attempt=mine.attempt + 1),
    "another owner's": lambda mine, other: replace(mine, owner=other.owner),
    "a changed octet": lambda mine, _: replace(mine, response=SealedResponse(_flip(_response(mine), 60))),
    "a changed salt": lambda mine, _: replace(mine, response=SealedResponse(_flip(_response(mine), 8))),
    "a cut": lambda mine, _: replace(mine, response=SealedResponse(_response(mine)[:-1])),
    "nothing": lambda mine, _: replace(mine, response=SealedResponse(b"")),
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_a_forged_record_is_never_replayed_and_never_run(
    world: World, forge: Callable[[Record, Record], Record]
) -> None:
    """It is refused, and an operator is told."""
    other = done(world, Response(200, (), b"another's"), key="other")
    mine = done(world)
    put(world, forge(mine, other))
    world.events.clear()
    for _ in range(2):
        assert world.problem(cipher=CIPHER) == "record-unreadable"
    assert world.kinds() == ["record_rejected", "refused"] * 2
    put(world, mine)
    assert world.replay(cipher=CIPHER) == CREATED


def test_an_answer_is_not_to_be_given_to_another_request_or_caller(world: World) -> None:
    """Who changes in the table whom and what it was for, gets nothing."""
    mine = done(world)
    theirs = request(b"another body", headers=(("idempotency-key", "k"), ("authorization", "another")))
    world.acquire(theirs, cipher=CIPHER)
    found = world.record()
    identity = Options(cipher=CIPHER)
    stolen = world.engine.identify(
        theirs,
        world.engine.admit(identity, "POST", "/orders", ["k"]),  # type: ignore[arg-type]
        None,
    )
    put(
        world,
        replace(found, fingerprint=stolen.fingerprint, caller_digest=stolen.caller_digest),  # type: ignore[union-attr]
    )
    assert world.problem(theirs, cipher=CIPHER) == "record-unreadable"
    put(world, replace(mine, fingerprint=stolen.fingerprint, caller_digest=stolen.caller_digest))  # type: ignore[union-attr]
    assert world.last(EventKind.RECORD_REJECTED).reason == "authentication"
    world.acquire(theirs)
    assert world.outcomes[-1] == "refused record-unreadable None"  # without a cipher, too: it can't read it


ATTACKS_ON_CHUNKS: dict[str, Callable[[list[bytes], list[bytes]], list[bytes | None]]] = {
    "swapped": lambda mine, _: [mine[1], mine[0], *mine[2:]],
    "doubled": lambda mine, _: [mine[0], mine[0], *mine[2:]],
    "another body's": lambda mine, other: [other[0], *mine[1:]],
    "missing": lambda mine, _: [*mine[:-1], None],
    "cut": lambda mine, _: [*mine[:-1], mine[-1][:-1]],
    "changed": lambda mine, _: [_flip(mine[0], 200), *mine[1:]],
    "in the clear": lambda mine, _: [b"x" * len(mine[0]), *mine[1:]],
}


@pytest.mark.parametrize("attack", ATTACKS_ON_CHUNKS.values(), ids=ATTACKS_ON_CHUNKS)
def test_no_chunk_can_be_moved_swapped_or_cut(
    world: World, attack: Callable[[list[bytes], list[bytes]], list[bytes | None]]
) -> None:
    """What comes is what was written, or nothing."""
    noise = Random(7).randbytes(800_000)  # noqa: S311 - what can't be compressed
    other, mine = (done(world, Response(200, (), noise[shift:]), key=key) for shift, key in ((1, "other"), (0, "k")))
    chunks = chunks_of(world)
    pieces = {
        record.owner: [data for (owner, _), data in sorted(chunks.items()) if owner == record.owner]
        for record in (other, mine)
    }
    assert len(pieces[mine.owner]) > 1
    for number, data in enumerate(attack(pieces[mine.owner], pieces[other.owner])):
        chunks.pop((mine.owner, number))
        if data is not None:
            chunks[mine.owner, number] = data
    assert world.problem(cipher=CIPHER) in {"record-unreadable", "response-not-stored"}


def test_an_answer_from_before_the_cipher_is_refused_unless_it_is_allowed(world: World) -> None:
    """While encryption is being switched on, and no longer: until then the table is believed."""
    world.settle(world.lease(), CREATED)
    assert world.problem(cipher=CIPHER) == "record-unreadable"
    assert world.last(EventKind.RECORD_REJECTED).reason == "plain"
    assert world.replay(cipher=AesGcm({"now": KEY}, reads_plain=True)) == CREATED


def test_a_worker_without_the_cipher_refuses_what_is_sealed(world: World) -> None:
    """As during a deployment that switches it on."""
    done(world)
    assert world.problem() == "record-unreadable"
    assert world.last(EventKind.RECORD_REJECTED).reason == "no-cipher"


# --- a cipher that fails ----------------------------------------------------------------------------------------------


class Failing:
    """A cipher of a user's own; each of its calls does what it is told."""

    overhead_bytes = 100
    reads_plain = False

    def __init__(self, error: Exception | None = None, *, ready: bool = True) -> None:
        self.error = error
        self.ready = ready
        self.threads: list[str] = []

    def is_ready(self, sealed: bytes | None) -> bool:
        return self.ready

    def prepare(self, sealed: bytes | None) -> None:
        self._act()

    def seal(self, plain: bytes, associated: bytes) -> bytes:
        self._act()
        return CIPHER.seal(plain, associated)

    def open(self, sealed: bytes, associated: bytes) -> bytes:
        self._act()
        return CIPHER.open(sealed, associated)

    def _act(self) -> None:
        self.threads.append(threading.current_thread().name)
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("error", [StoreUnavailable("away"), ValueError("secret"), Unauthentic("malformed")])
@pytest.mark.parametrize("ready", [True, False])
def test_what_can_not_be_sealed_is_not_kept_in_the_clear(
    world: World, caplog: pytest.LogCaptureFixture, error: Exception, *, ready: bool
) -> None:
    """The work is done, so it does not run again either; and the log does not tell what was to be sealed."""
    record = done(world, cipher=Failing(error, ready=ready))
    assert record.response == OmittedResponse(reason="response-not-stored")
    assert world.last(EventKind.COMPLETED_WITHOUT_ANSWER).reason == "cipher"
    assert world.problem(cipher=CIPHER) == "response-not-stored"
    assert "could not seal" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (StoreUnavailable("away"), "store-unavailable"),
        (ValueError("secret"), "record-unreadable"),
        (Unauthentic("malformed"), "record-unreadable"),
    ],
)
@pytest.mark.parametrize("answer", [CREATED, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("ready", [True, False])
def test_what_can_not_be_opened_is_refused(
    world: World, caplog: pytest.LogCaptureFixture, error: Exception, problem: str, answer: Response, *, ready: bool
) -> None:
    """For now, where the key service is away; for good, where it is not to be opened."""
    done(world, answer)
    assert world.problem(cipher=Failing(error, ready=ready)) == problem
    assert world.problem(cipher=Failing(error, ready=ready), on_store_error="bypass") == problem
    assert world.replay(cipher=CIPHER) == answer
    assert "secret" not in caplog.text


def test_a_service_is_not_asked_on_an_event_loop() -> None:
    """It would stand still for everybody."""
    world = AsyncWorld(ChunkStore(clock=ManualClock(margin_seconds=2.0)))
    cipher = Failing(ready=False)
    done(world, LARGE, cipher=cipher)
    prepared, *sealed = cipher.threads
    assert prepared.startswith("idempotency-cipher")
    assert set(sealed) == {threading.current_thread().name}
    cipher.threads.clear()
    assert world.replay(cipher=cipher) == LARGE
    assert all(name.startswith("idempotency-cipher") for name in cipher.threads)
    lease = world.lease(request(key="another"), cipher=cipher)
    world.do(lease, "omit", "/somewhere")
    assert world.do(lease, "omit").__class__.__name__ == "Recorded"
    world.close()


def test_a_service_is_not_asked_on_an_event_loop_for_a_probers_answer() -> None:
    """Which is sealed by whoever asked for it."""
    world = AsyncWorld(ChunkStore(clock=ManualClock(margin_seconds=2.0)))
    cipher = Failing(ready=False)
    world.lease(cipher=cipher)
    world.freeze(100)
    assert world.replay(cipher=cipher, prober=lambda _: Done(LARGE)) == LARGE
    assert cipher.threads[0].startswith("idempotency-cipher")
    world.close()


def test_a_cipher_that_can_not_say_whether_it_is_ready_is_asked() -> None:
    """What goes wrong then is told like everything else."""

    class Broken(Failing):
        def is_ready(self, sealed: bytes | None) -> bool:
            raise ValueError

    options = Options(cipher=Broken())
    assert seals_at_once(options)
    assert opens_at_once(replace(a_record(), response=SealedResponse(b"")), (), options)


@pytest.mark.parametrize("cipher", [None, CIPHER])
def test_an_item_that_is_too_large_is_not_kept(cipher: Any) -> None:
    """Its location is, sealed where there is a cipher."""

    class Narrow(NarrowStore):
        def swap(self, old: Record, new: Record, deadline: float) -> Any:
            if isinstance(new.response, SealedResponse) and len(new.response.data) > 150:
                raise StoreUnavailable("the item is too large", code="ItemTooLarge")
            return super().swap(old, new, deadline)

    for world_type in (SyncWorld, AsyncWorld):
        world = world_type(Narrow(clock=ManualClock(margin_seconds=2.0)))
        done(world, Response(201, (("location", "/1"),), b"x" * 200), cipher=cipher)
        outcome: Any = world.acquire(cipher=cipher)
        assert (outcome.problem.type, outcome.problem.location) == (ProblemType.RESPONSE_NOT_STORED, "/1")
        assert world.last(EventKind.COMPLETED_WITHOUT_ANSWER).reason == "too-large"
        world.close()


def test_the_winners_answer_is_given_only_if_it_is_authentic(world: World) -> None:
    """To a handler that lost its lease, and finds another answer recorded."""
    other = world.another()
    for forged in (False, True):
        key = str(forged)
        lease = world.lease(request(key=key), cipher=CIPHER, lease_seconds=3)
        world.freeze(10)
        other.settle(other.lease(request(key=key), cipher=CIPHER), Response(200, (), b"the winner's"))
        if forged:
            put(world, replace(other.record(), response=KeptResponse(status=200, headers=(), body=b"forged")))
        settled: Any = world.do(lease, "settle", CREATED)
        assert (settled.response is None) is forged
        assert ("record_rejected" in world.kinds()) is forged


# --- what is inside ---------------------------------------------------------------------------------------------------

_TEXT = st.text(st.characters(max_codepoint=255), max_size=20)
_HEADERS = st.lists(st.tuples(_TEXT, _TEXT), max_size=4).map(tuple)
_INSIDE = (
    st.builds(OmittedResponse, reason=_TEXT, location=st.none() | _TEXT)
    | st.builds(KeptResponse, status=st.integers(200, 599), headers=_HEADERS, encoding=_TEXT, body=st.binary())
    | st.builds(
        KeptResponse,
        status=st.integers(200, 599),
        headers=_HEADERS,
        chunks=st.builds(Chunks, st.integers(1, 10_000), st.integers(1, 2**40), st.binary(min_size=32, max_size=32)),
    )
)


@given(_INSIDE)
def test_what_is_written_is_read(response: KeptResponse | OmittedResponse) -> None:
    """Whatever it is."""
    assert _read(_written(response)) == response


@given(st.binary(max_size=100))
def test_what_is_not_written_like_this_is_malformed(data: bytes) -> None:
    """Never an error, although only who holds a key could put it there."""
    assert isinstance(_read(data), (KeptResponse, OmittedResponse, Rejected))


@pytest.mark.parametrize(
    "data", [b"", b"\1", b"\3\0\0\0\0", b"\1\0\xc8\0\0\0\0", b"\4\0\xc8\0\0\0\1\0\0\0\0", b"\2" * 9]
)
def test_a_piece_that_ends_early_is_malformed(data: bytes) -> None:
    """Or of a kind that is none."""
    assert _read(data) == Rejected("malformed")


def test_without_the_claim_nothing_is_sealed_and_nothing_kept() -> None:
    """A plan that does not say for whom can't be bound to anybody."""
    options = Options(cipher=CIPHER)
    record = a_record()
    for plan in (
        plan_completion(CREATED, options, inline_bytes=None),
        plan_omission(ProblemType.RESPONSE_NOT_STORED, "/1", options),
    ):
        assert plan.make(record, record.created_at).response == OmittedResponse(reason="response-not-stored")


def test_a_record_without_an_answer_has_none_under_a_cipher() -> None:
    """Damage is damage."""
    for cipher in (None, CIPHER):
        assert open_response(a_record(), Options(cipher=cipher)) == Rejected("damaged")


# --- before_store -----------------------------------------------------------------------------------------------------


def test_an_answer_is_kept_as_it_was_redacted(world: World) -> None:
    """Its first client has the true one."""

    def redact(response: Response) -> Response:
        assert ("date", "now") not in response.headers  # it sees what would be kept
        return replace(
            response, body=response.body.replace(b"4111", b"****"), headers=(*response.headers, ("date", "x"))
        )

    answer = Response(201, (("date", "now"), ("location", "/1")), b"card 4111")
    assert world.run(lambda lease: answer, before_store=redact) == answer
    assert world.replay() == Response(201, (("location", "/1"),), b"card ****")


def test_an_answer_may_be_kept_back(world: World) -> None:
    """The work is done all the same: it does not run again."""
    record = done(world, before_store=lambda response: None, cipher=None)
    assert record.response == OmittedResponse(reason="response-not-stored")
    assert world.last(EventKind.COMPLETED_WITHOUT_ANSWER).reason == "before-store"
    assert world.problem() == "response-not-stored"


@pytest.mark.parametrize("given", ["a text", 5, True, b"bytes", ValueError("card 4111"), KeyError("4111")])
def test_what_fails_keeps_nothing_and_runs_nothing_again(
    world: World, caplog: pytest.LogCaptureFixture, given: object
) -> None:
    """Not even its location; and the log does not tell the answer."""

    def review(response: Response) -> Any:
        if isinstance(given, Exception):
            raise given
        return given

    record = done(world, Response(201, (("location", "/4111"),), b"card 4111"), before_store=review, cipher=None)
    assert record.response == OmittedResponse(reason="response-not-stored")
    assert world.last(EventKind.COMPLETED_WITHOUT_ANSWER).reason == "before-store-failed"
    assert world.problem() == "response-not-stored"
    assert "before_store" in caplog.text
    assert "4111" not in caplog.text


def test_only_what_would_be_kept_is_reviewed(world: World) -> None:
    """Not what is too large anyway, nor what is not final."""
    seen: list[int] = []

    def review(response: Response) -> Response:
        seen.append(len(response.body))
        return replace(response, body=b"x" * 20)

    done(world, Response(200, (), b"x" * 11), before_store=review, max_response_bytes=10, cipher=None)
    world.settle(world.lease(request(key="2"), before_store=review), Response(500))
    assert seen == []
    done(world, Response(200, (), b"x"), key="3", before_store=review, max_response_bytes=10, cipher=None)
    assert seen == [1]
    assert world.last(EventKind.COMPLETED_WITHOUT_ANSWER).reason == "too-large"


def test_a_function_that_reviews_and_a_cipher_go_together(world: World) -> None:
    """What is sealed is what was redacted."""
    done(world, before_store=lambda response: Response(200, (), b"redacted"))
    assert world.replay(cipher=CIPHER) == Response(200, (), b"redacted")


def test_an_answer_with_more_header_lines_than_any_server_sends_is_not_kept(world: World) -> None:
    """Whoever asks again need not be sent them either."""
    done(world, Response(200, tuple((f"x{n}", "") for n in range(1001)), b""), cipher=None)
    assert world.problem() == "response-not-stored"


@pytest.mark.parametrize("options", [{"before_store": lambda response: response}, {"drop_headers": ["Location"]}])
def test_where_an_answer_points_is_not_kept_unseen(world: World, options: dict[str, Any]) -> None:
    """It may hold what is not to be kept: of one that is too large, or that was cut off."""
    options = {**options, "cipher": None}
    large = Response(201, (("location", "/reset/4111"),), b"x" * 11)
    assert done(world, large, max_response_bytes=10, **options).response == OmittedResponse(
        reason="response-not-stored"
    )
    lease = world.lease(request(key="torn"), **options)
    world.do(lease, "omit", "/reset/4111")
    assert world.record().response == OmittedResponse(reason="response-not-stored")


def test_without_a_cipher_sealing_needs_no_room_and_no_preparation() -> None:
    """An answer may be as large as the record lets it."""
    assert reserved_bytes((("a", "b"),), Options()) == 0
    assert reserved_bytes((("a", "b"),), Options(cipher=CIPHER)) > CIPHER.overhead_bytes
    prepare_to_seal(Options())
    cipher = Failing()
    prepare_to_seal(Options(cipher=cipher))
    assert len(cipher.threads) == 1
