"""The canonical query: order and spelling do not count, everything else does."""

from __future__ import annotations

from itertools import combinations
from random import Random
from urllib.parse import parse_qsl, quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idem_middleware.canonical.query import canonical_query

SAME = [
    ["", "&", "&&"],
    ["a=1&b=2&c=3", "c=3&a=1&b=2", "&a=1&&b=2&c=3&"],
    ["q=a-b&x=~", "q=%61-b&x=%7e", "x=%7E&q=a%2Db"],
    ["q=a+b", "q=a%20b"],
    ["q=a%2Bb", "q=a%2bb"],
    ["a=1&a=2&b=3", "b=3&a=1&a=2", "a=1&b=3&a=2", "%61=1&a=2&b=3"],
    ["q=%C3%BC", "q=%c3%bc", "q=\xc3\xbc"],
    ["q=%zz", "q=%25zz"],
    ["q=%", "q=%25"],
    ["a=b=c", "a=b%3Dc"],
    ["a=/?:@", "a=%2F%3f%3A%40"],
]
DIFFERENT = [
    # A dry run is not the real one, and one payee not another (pathosDev/actor-ts#609, theam/facility#196).
    ["dry=1", "", "dry=0", "dry"],
    ["to=a", "to=b"],
    ["a=1", "a=1&b=2", "a=1&a=1"],
    ["a=1&b=2", "a=2&b=1", "a=1&a=2", "a=2&a=1"],
    ["a=", "a", "", "=a", "="],
    ["a=b&c=d", "a=b%26c=d", "a=b;c=d", "a=b&c%3Dd"],
    ["q=a+b", "q=a%2Bb", "q=ab"],
    ["q=%C3%BC", "q=%FC", "q=u"],
    ["q=A", "q=a", "Q=a"],
    ["q=%00", "q=", "q=%0"],
    ["ab=c", "a=bc"],
    ["q=a/", "q=a"],
]


@pytest.mark.parametrize("queries", SAME)
def test_the_same_parameters_are_one_query(queries: list[str]) -> None:
    """Order of names, percent-encoding and empty pieces do not count."""
    assert len({canonical_query(query) for query in queries}) == 1


@pytest.mark.parametrize(("one", "other"), [pair for group in DIFFERENT for pair in combinations(group, 2)])
def test_other_parameters_are_another_query(one: str, other: str) -> None:
    """A value, a name, a count, or the order within a name that differs makes another request."""
    assert canonical_query(one) != canonical_query(other)


def test_no_parameters_are_nothing() -> None:
    """The empty query has the empty form."""
    assert canonical_query("") == b""


def test_a_text_that_is_not_latin_1_is_no_error() -> None:
    """Some servers decode more than they should."""
    assert canonical_query("q=\u20ac") == canonical_query("q=%e2%82%ac")
    assert canonical_query("q=\ud800") != canonical_query("q=\udfff")


def test_the_form_never_changes() -> None:
    """Fingerprints outlive deployments."""
    assert canonical_query("b&a=1") == b"\0" * 7 + b"\1a\1" + b"\0" * 7 + b"\1" + b"1" + b"\0" * 7 + b"\1b\0"


NAMES = st.sampled_from(["a", "b", "ü", "a=b", "a&b", "%41", " +", ""])
PARAMETERS = st.lists(st.tuples(NAMES, st.text(max_size=3)), max_size=6)


@given(PARAMETERS, st.randoms(use_true_random=False))
def test_moving_and_respelling_changes_nothing(parameters: list[tuple[str, str]], random: Random) -> None:
    """Stable moves among names, and any mixture of percent-encoding, give the same form."""
    names = [name for name, _ in parameters]
    random.shuffle(names)
    moved = sorted(parameters, key=lambda parameter: names.index(parameter[0]))
    spelled = "&".join(f"{_spelled(name, random)}={_spelled(value, random)}" for name, value in moved)
    plain = "&".join(f"{quote(name)}={quote(value)}" for name, value in parameters)
    assert canonical_query(spelled) == canonical_query(plain)


@given(PARAMETERS, PARAMETERS)
def test_equal_forms_mean_equal_parameters(one: list[tuple[str, str]], other: list[tuple[str, str]]) -> None:
    """Two queries have one form exactly if a framework reads the same lists of values from them."""
    queries = ["&".join(f"{quote(name)}={quote(value)}" for name, value in ps) for ps in (one, other)]
    read = [_by_name(query) for query in queries]
    assert (canonical_query(queries[0]) == canonical_query(queries[1])) is (read[0] == read[1])


@given(st.text())
def test_every_text_has_a_form(query: str) -> None:
    """Nothing a client sends is an error here."""
    assert isinstance(canonical_query(query), bytes)


def _spelled(text: str, random: Random) -> str:
    escaped = ("".join(f"%{octet:02x}" for octet in character.encode()) for character in text)
    return "".join(random.choice([quote(c), quote_plus(c), e]) for c, e in zip(text, escaped, strict=True))


def _by_name(query: str) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        values.setdefault(name, []).append(value)
    return values
