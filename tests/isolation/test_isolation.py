"""A stored answer goes to the caller who made the request, after authorisation, and to nobody else: everywhere."""

from __future__ import annotations

import unicodedata
from typing import Any
from uuid import UUID

import pytest

from tests.fuzz.wire import Answer
from tests.isolation.homes import ANSWER, GUARDED, HOMES, OPEN, Home

every_home = pytest.mark.parametrize("home", HOMES.values(), ids=HOMES)
every_guarded_home = pytest.mark.parametrize("home", GUARDED.values(), ids=GUARDED)
every_open_home = pytest.mark.parametrize("home", OPEN.values(), ids=OPEN)

ON_A_LOOP = ("starlette", "fastapi", "django-asgi")
NEVER_ALIKE = {"date", "content-length"}


def seen(answer: Answer) -> object:
    """All that a client can tell of an answer."""
    headers = sorted((n.lower(), v) for n, v in answer.headers if n.lower() not in NEVER_ALIKE)
    return answer.status, headers, answer.body


@every_home
@pytest.mark.parametrize("foreigner", ["bob-1", "other-ann", "support-as-ann"])
def test_a_foreign_caller_learns_nothing_that_a_fresh_key_would_not_tell(home: Home, foreigner: str) -> None:
    """Of the same tenant, of another one, or who looks as somebody: the same answer, by the same calls to the store."""
    with home() as house:
        first = house.send("ann-1")
        assert (first.status, house.calls) == (201, ["create", "swap"])
        foreign, foreign_calls = house.send(foreigner), house.calls
        fresh, fresh_calls = house.send(foreigner, key="fresh"), house.calls
        assert seen(foreign) == seen(fresh)
        assert foreign_calls == fresh_calls == ["create", "swap"]
        assert house.runs == ["ann-1", foreigner, foreigner]
        assert house.send("ann-1").is_replay
        assert house.send(foreigner).is_replay


@pytest.mark.parametrize("home", [HOMES[name] for name in HOMES if not name.startswith(ON_A_LOOP)])
def test_while_it_runs_a_foreign_caller_learns_nothing_either(home: Home) -> None:
    """Its key is not in use, for all that another caller is told."""
    inner: list[Answer] = []
    with home() as house:
        work = house.work

        def busy(token: str | None) -> str:
            if token == "ann-1":
                inner.extend(house.send(who) for who in ("bob-1", "ann-2"))
            return work(token)

        house.work = busy  # type: ignore[method-assign]
        house.send("ann-1")
        assert [answer.status for answer in inner] == [201, 409]
        assert inner[1].problem == "in-progress"


@every_home
def test_a_refreshed_token_of_the_same_user_gets_the_answer(home: Home) -> None:
    """Tokens are refreshed between retries; users are not."""
    with home() as house:
        first = house.send("ann-1")
        again = house.send("ann-2")
        assert again.is_replay
        assert again.body == first.body
        assert house.runs == ["ann-1"]


@every_home
@pytest.mark.parametrize("token", [None, "", "nobody's", "ann-1 ", "Ann-1"])
def test_without_credentials_nothing_is_told_and_nothing_asked(home: Home, token: str | None) -> None:
    """A key that is taken looks like one that is not."""
    with home() as house:
        house.send("ann-1")
        assert house.calls
        taken, free = house.send(token), house.send(token, key="fresh")
        assert taken.status in {401, 403}
        assert seen(taken) == seen(free)
        assert house.calls == []
        assert house.runs == ["ann-1"]
        assert ANSWER.encode() not in taken.body


@every_home
def test_a_revoked_token_gets_no_answer_any_more(home: Home) -> None:
    """Not even one that it was given before."""
    with home() as house:
        house.send("ann-1")
        assert house.send("ann-1").is_replay
        del house.directory.accounts["ann-1"]
        refused = house.send("ann-1")
        assert refused.status in {401, 403}
        assert ANSWER.encode() not in refused.body
        assert house.send("ann-2").is_replay


@every_guarded_home
def test_whoever_may_not_do_it_any_more_gets_no_answer(home: Home) -> None:
    """The guard decides each time; when it opens again, the answer is still there."""
    with home() as house:
        house.send("ann-1")
        house.directory.forbidden.add("acme/ann")
        refused, fresh = house.send("ann-1"), house.send("ann-1", key="fresh")
        assert refused.status == 403
        assert seen(refused) == seen(fresh)
        house.directory.forbidden.clear()
        assert house.send("ann-1").is_replay
        assert house.runs == ["ann-1"]


@every_open_home
def test_a_refusal_of_the_view_is_not_kept(home: Home) -> None:
    """Outside of the guard, a 401 or 403 is no outcome: who may do it later, does it."""
    with home() as house:
        house.directory.forbidden.add("acme/ann")
        assert house.send("ann-1").status == 403
        house.directory.forbidden.clear()
        assert house.send("ann-1").status == 201
        assert house.runs == ["ann-1"]


# --- a caller's function that fails -----------------------------------------------------------------------------------


class _Odd:
    def __str__(self) -> str:
        return "acme/ann"


def _raises(token: str | None) -> str:
    raise LookupError(token)


ODD: dict[str, Any] = {
    "raises": _raises,
    "nothing": lambda token: None,
    "empty": lambda token: "",
    "blank": lambda token: " \t\n",
    "bytes": lambda token: b"acme/ann",
    "a bool": lambda token: True,
    "a float": lambda token: 1.0,
    "a list": lambda token: ["acme", "ann"],
    "a tuple": lambda token: ("acme", "ann"),
    "a mapping": lambda token: {"user": "ann"},
    "an object": lambda token: _Odd(),
    "a function": lambda token: lambda: "acme/ann",
    "a type": lambda token: str,
}


@every_home
@pytest.mark.parametrize("asks", ODD.values(), ids=ODD)
def test_a_caller_that_can_not_be_named_is_refused(home: Home, asks: Any) -> None:
    """It never falls into a bucket with others, and nothing runs."""
    with home(asks=asks) as house:
        refused = house.send("ann-1")
        assert (refused.status, refused.problem) == (403, "caller-unknown")
        assert (house.runs, house.calls) == ([], [])


@every_home
@pytest.mark.parametrize("name", [7, 0, -1, UUID(int=7), "7"])
def test_a_number_or_a_uuid_names_a_caller(home: Home, name: object) -> None:
    """As primary keys are."""
    with home(asks=lambda token: name) as house:
        assert house.send("ann-1").status == 201
        assert house.send("bob-1").is_replay


# --- names and keys that are built to collide -------------------------------------------------------------------------

COLLIDING = [
    ("a", "bc"), ("ab", "c"), ("a:b", "c"), ("a", "b:c"), ("a/b", "c"), ("a", "b/c"), ("a\0", "b"), ("a", "0b"),
    ("a|b", "c"), ("a", "b|c"), ("a\n", "b"), ("a", "b "), ("a ", "b"), (" a", "b"), ("A", "b"), ("a", "B"), ("a", "b"),
    ("\N{CYRILLIC SMALL LETTER A}", "b"), ("\N{FULLWIDTH LATIN SMALL LETTER A}", "b"), ("a\u200b", "b"),
    (unicodedata.normalize("NFC", "\xe9"), "b"), (unicodedata.normalize("NFD", "\xe9"), "b"), ("\xc3\xa9", "b"),
    ("a" * 300, "b"), ("a" * 299, "ab"), ("a" * 299, "b"), ("1", "1"), ("11", "1"), ("1", "11"), ("None", "b"),
    ("shared", "b"), ("null", "b"), ("0", "b"), ("00", "b"), ("\x01a", "b"), ("a'--", "b"), ("a%00", "b"),
    ("a%20", "b"),
]  # fmt: skip


@every_home
def test_no_name_and_key_can_be_built_to_meet_anothers(home: Home) -> None:
    """By separators, look-alikes, case, white space or length: each pair is a record of its own."""
    with home() as house:
        for number, (name, _) in enumerate(COLLIDING):
            house.directory.accounts[f"t{number}"] = name
        for number, (_, key) in enumerate(COLLIDING):
            first = house.send(f"t{number}", key=key)
            assert (first.status, first.is_replay) == (201, False), COLLIDING[number]
        assert house.records == len(house.runs) == len(COLLIDING)


# --- routes without a caller ------------------------------------------------------------------------------------------


@every_home
def test_on_an_anonymous_route_the_credentials_tell_clients_apart(home: Home) -> None:
    """Who comes with others learns that the key is taken, and not the answer."""
    with home(caller=None, checks=False) as house:
        house.send("ann-1")
        stranger, nobody = house.send("bob-1"), house.send(None)
        assert (stranger.status, stranger.problem) == (422, "credentials-changed")
        assert (nobody.status, nobody.problem) in {(422, "credentials-changed"), (401, None), (403, None)}
        assert ANSWER.encode() not in stranger.body + nobody.body
        assert house.send("ann-1").is_replay
        assert house.runs == ["ann-1"]


@every_open_home
def test_on_a_shared_route_the_key_is_all_that_counts(home: Home) -> None:
    """It is meant like this: whoever knows the key and the request gets the answer."""
    with home(caller="shared", checks=False) as house:
        house.send("ann-1")
        assert house.send("bob-1").is_replay
        assert house.send("bob-1", body=b"[]").problem == "key-reused"


@every_home
def test_the_key_alone_is_worth_nothing(home: Home) -> None:
    """The owner of a key gets nothing for another request under it, not even a hint at the answer."""
    with home() as house:
        house.send("ann-1", body=b'{"amount": 1}')
        other = house.send("ann-1", body=b'{"amount": 2}')
        assert (other.status, other.problem) == (422, "key-reused")
        assert ANSWER.encode() not in other.body
