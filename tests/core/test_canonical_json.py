"""Canonical JSON: layout does not count, and everything that a reader could see does."""

from __future__ import annotations

import copy
import json
import sys
from itertools import combinations
from random import Random

import jmespath
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from idem_middleware.canonical.json import MAX_JSON_BYTES, MAX_JSON_DEPTH, canonical_json, load_json_lossless
from idem_middleware.fingerprint import canonical_value

DEEP_ONE = '{"a":{"b":{"c":1,"d":[{"e":1,"f":2}]},"g":2}}'
DEEP_TWO = '{"a": {"g": 2, "b": {"d": [{"f": 2, "e": 1}], "c": 1}}}'

SAME = [
    # Member order and white space (aws-powertools/powertools-lambda-python#638, apache/fineract#5674).
    ['{"a":1,"b":2}', '{"b":2,"a":1}', ' {\n\t"a" : 1 ,\r\n"b" : 2 } '],
    [DEEP_ONE, DEEP_TWO],
    ['{"a":"\u00fc"}', '{"a":"\\u00fc"}', '{"a":"\\u00FC"}', '{"\\u0061":"ü"}'],
    ['["\U0001f600"]', '["\\ud83d\\ude00"]', '["\\uD83D\\uDE00"]'],
    ['["/"]', '["\\/"]', '["\\u002f"]'],
    ['["\\n\\t\\"\\\\"]', '["\\u000a\\u0009\\u0022\\u005c"]'],
    ["[1,2]", "[ 1 , 2 ]"],
    ["[]", " [ ] "],
    ["1.50", " 1.50\n"],
]
DIFFERENT = [
    [
        '{"a":1}',
        '{"a":1.0}',
        '{"a":1e0}',
        '{"a":1E0}',
        '{"a":1e+0}',
        '{"a":1.00}',
        '{"a":10e-1}',
        '{"a":"1"}',
        '{"a":true}',
    ],
    ["0", "-0", "0.0", "-0.0", "0e1", "false", '""', "null", "[]", "{}"],
    ['{"a":100}', '{"a":1e2}', '{"a":1E2}'],
    ['{"a":0.10}', '{"a":0.1}'],
    # Beyond 64 bits, beyond a double's range and precision.
    ["18446744073709551616", "18446744073709551617", "1.8446744073709551616e19"],
    ["1e400", "1e401", "-1e400"],
    ["0.1", "0.1000000000000000055511151231257827"],
    ["1" * 5000, "1" * 4999 + "2"],
    ["[1,2]", "[2,1]", "[[1,2]]", "[1,[2]]", "[1,2,2]"],
    ['[{"a":1},{"b":2}]', '[{"b":2},{"a":1}]', '[{"a":1,"b":2}]'],
    ["[[]]", "[]", "[[],[]]", "[{}]"],
    ['{"a":null}', "{}", '{"a":""}', '{"a":[]}', '{"a":{}}', '{"a":false}', '{"a":0}'],
    ['{"1":1}', '{"a":1}', '{"A":1}'],
    # Values that look like an inner form of other values.
    ['{"a":["n","1"]}', '{"a":1}', '{"a":{"$n":"1"}}', '{"a":{"n":"1"}}', '{"a":"\\u00001"}', '{"a":"\\\\u00001"}'],
    ["1", '"1"', '"\\u00001"', '"\\\\u00001"', '{"$n":"1"}', '{"\\u0000":"1"}', '["\\u0000","1"]'],
    ['[["a",1]]', '{"a":1}'],
    ['{"a":"[1]"}', '{"a":[1]}'],
    ['{"a":{"b":1}}', '{"a.b":1}'],
    ['["a,b"]', '["a","b"]', '["a\\",\\"b"]'],
    ['["\\ud800"]', '["\\udfff"]', '["?"]', '["\ufffd"]', '["\\ude00\\ud83d"]', '["\\ud83d\\ude00"]', '["\\\\ud800"]'],
    ['{"\\ud800":1}', '{"\\udfff":1}'],
    ['"x y"', '"x  y"', '"x y "'],
    ['"\u00e9"', '"e\u0301"'],
]
AS_WRITTEN = {
    "duplicate members": b'{"a":1,"a":1}',
    "duplicates by an escape": b'{"a":1,"\\u0061":2}',
    "duplicates further inside": b'[{"b":{"a":1,"c":0,"a":2}}]',
    "nothing": b"",
    "white space only": b" \n",
    "cut off": b'{"a":',
    "trailing data": b"{} {}",
    "trailing comma": b"[1,]",
    "single quotes": b"{'a':1}",
    "NaN": b'{"a":NaN}',
    "Infinity": b"[Infinity]",
    "minus Infinity": b"-Infinity",
    "leading zero": b"[01]",
    "plus": b"[+1]",
    "bare fraction": b"[.5]",
    "line break in a string": b'["a\nb"]',
    "NUL in a string": b'["a\x00b"]',
    "escaped NUL in a string": b'["a\\u0000b"]',
    "bad escape": b'["\\x41"]',
    "BOM": b"\xef\xbb\xbf{}",
    "UTF-16": '{"a":"é"}'.encode("utf-16"),
    "Latin-1": '{"a":"é"}'.encode("latin-1"),
    "not UTF-8": b'{"a":"\xff"}',
    "surrogate in UTF-8": b'["\xed\xa0\x80"]',
    "no-break space between": "[1,\u00a02]".encode(),
    "too deep": b"[" * (MAX_JSON_DEPTH + 1) + b"]" * (MAX_JSON_DEPTH + 1),
    "far too deep": b"[" * 100_000 + b"]" * 100_000,
    "too deep, mixed": b'{"a":[' * 200 + b"]}" * 200,
    "too deep, broken": b"[" * 100_000,
    "too large": b'"' + b"a" * MAX_JSON_BYTES + b'"',
}


@pytest.mark.parametrize("documents", SAME)
def test_layout_does_not_count(documents: list[str]) -> None:
    """Documents that differ in member order, white space and escapes only have one form."""
    forms = {canonical_json(document.encode()) for document in documents}
    assert len(forms) == 1
    assert None not in forms


@pytest.mark.parametrize(("one", "other"), [pair for group in DIFFERENT for pair in combinations(group, 2)])
def test_everything_else_counts(one: str, other: str) -> None:
    """Arrays keep their order, types and literals their identity (aws-powertools/powertools-lambda-python#639)."""
    forms = [canonical_json(document.encode()) for document in (one, other)]
    assert forms[0] != forms[1] or forms == [None, None]


@pytest.mark.parametrize("document", AS_WRITTEN.values(), ids=AS_WRITTEN)
def test_what_has_no_single_meaning_is_compared_as_written(document: bytes) -> None:
    """No crash and no guess: parsers disagree about these documents (apache/fineract#5674)."""
    assert canonical_json(document) is None


def test_the_form_never_changes() -> None:
    """Fingerprints outlive deployments."""
    assert canonical_json('{"b":[1,-0.50,true,null],"a":"ü\\u0041"}'.encode()) == (
        b'{"a":"\\u00fcA","b":["\\u00001","\\u0000-0.50",true,null]}'
    )


@pytest.mark.parametrize("filling", ["1", '"]"', '"}\\"}]"', '"[[["', '"\\\\","[","\\\\"'])
def test_only_nesting_counts_as_depth(filling: str) -> None:
    """Many brackets side by side, or inside of strings, are not deep, and do not hide what is."""
    siblings = ",".join(["[[{}]]", '"[[{{\\"[["'] * 200)
    deepest, too_deep = (
        "[" * depth + filling + "]" * (depth - 1) + f",{siblings}]" for depth in (MAX_JSON_DEPTH, MAX_JSON_DEPTH + 1)
    )
    assert canonical_json(deepest.encode()) is not None
    assert canonical_json(too_deep.encode()) is None


def test_the_limits_do_not_depend_on_the_stack() -> None:
    """A document gets its form in a deep call as well: no retry is taken for another request for that."""
    document = b"[" * MAX_JSON_DEPTH + b"]" * MAX_JSON_DEPTH

    def deeper(levels: int) -> bytes | None:
        return deeper(levels - 1) if levels else canonical_json(document)

    frames = sys.getrecursionlimit() // 2
    assert deeper(frames) == canonical_json(document) == document


JSON_TEXT = st.text(st.characters(exclude_characters="\0"))
NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)


class Literal(str):
    """A number, as it stands in the document."""

    __slots__ = ()


LEAVES = st.none() | st.booleans() | NUMBERS.map(Literal) | JSON_TEXT
DOCUMENTS = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(JSON_TEXT, inner, max_size=4), max_leaves=20
)


def spell(value: object, random: Random, *, plain: bool = False) -> str:  # noqa: C901 - a table of types
    """Write a document: plainly, or with members, white space and escapes at random."""

    def space() -> str:
        return "" if plain else "".join(random.choices(" \t\r\n", k=random.choice([0, 0, 1, 2])))

    def text(value: str) -> str:
        return json.dumps(value) if plain else '"' + "".join(map(character, value)) + '"'

    def character(one: str) -> str:
        code = ord(one)
        if random.random() < 0.3 and code < 0x10000:
            return random.choice([f"\\u{code:04x}", f"\\u{code:04X}"])
        surrogate = 0xD800 <= code < 0xE000
        return json.dumps(one, ensure_ascii=surrogate)[1:-1]

    def write(value: object) -> str:
        if isinstance(value, Literal):
            return value
        if isinstance(value, str):
            return text(value)
        if isinstance(value, list):
            return "[" + ",".join(space() + write(item) + space() for item in value) + "]"
        if isinstance(value, dict):
            names = list(value)
            if not plain:
                random.shuffle(names)
            return (
                "{" + ",".join(f"{space()}{text(n)}{space()}:{space()}{write(value[n])}{space()}" for n in names) + "}"
            )
        return json.dumps(value)

    return space() + write(value) + space()


@given(DOCUMENTS, st.randoms(use_true_random=False))
def test_any_other_layout_has_the_same_form(document: object, random: Random) -> None:
    """Shuffled members, white space and escapes leave the form alone, and so does writing the form anew."""
    plain = canonical_json(spell(document, random, plain=True).encode())
    assert plain is not None
    assert canonical_json(spell(document, random).encode()) == plain


@given(DOCUMENTS, DOCUMENTS, st.randoms(use_true_random=False))
def test_another_document_has_another_form(one: object, other: object, random: Random) -> None:
    """Equal forms mean equal documents, literal by literal."""
    forms = [canonical_json(spell(document, random).encode()) for document in (one, other)]
    assert (forms[0] == forms[1]) is (_exact(one) == _exact(other))


@given(DOCUMENTS, st.data(), st.randoms(use_true_random=False))
def test_changing_any_leaf_changes_the_form(document: object, data: st.DataObject, random: Random) -> None:
    """There is no place in a document that the form does not show."""
    changed = copy.deepcopy(document)
    places: list[tuple[dict[object, object], object]] = []
    root = {"document": changed}
    _collect(root, places)
    holder, place = data.draw(st.sampled_from(places))
    leaf = data.draw(LEAVES)
    assume(_exact(leaf) != _exact(holder[place]))
    holder[place] = leaf
    forms = [canonical_json(spell(each, random).encode()) for each in (document, root["document"])]
    assert forms[0] != forms[1]


@given(st.binary() | st.text().map(str.encode) | st.text('[]{}",:\\0 1.eu-').map(str.encode))
def test_no_bytes_are_an_error(document: bytes) -> None:
    """Whatever a client sends has a form or none, always the same."""
    form = canonical_json(document)
    assert form == canonical_json(document)
    if form is not None:
        assert form.isascii()
        json.loads(document)


@pytest.mark.parametrize(("one", "other"), [pair for group in DIFFERENT for pair in combinations(group, 2)])
def test_a_selected_value_is_told_apart_like_the_document(one: str, other: str) -> None:
    """Number literals count in a payload that a JMESPath selected, too."""
    values = [load_json_lossless(document.encode()) for document in (one, other)]
    assert canonical_value(values[0]) != canonical_value(values[1])


@pytest.mark.parametrize("documents", SAME)
def test_a_selected_value_does_not_show_the_layout(documents: list[str]) -> None:
    """What is one document is one payload."""
    assert len({canonical_value(load_json_lossless(document.encode())) for document in documents}) == 1


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(document, id=why)
        for why, document in AS_WRITTEN.items()
        if why not in ("escaped NUL in a string", "too large")
    ],
)
def test_what_cannot_be_compared_cannot_be_selected_from(document: bytes) -> None:
    """Ambiguous documents are refused as a source of keys and payloads; the message holds nothing of them."""
    with pytest.raises(ValueError) as error:  # noqa: PT011 - what counts is that it is no other error
        load_json_lossless(document)
    assert len(str(error.value)) < 100


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("items[?price > `10`].sku", ["b"]),
        ("items[?price == `1.5`].sku", ["a"]),
        ("sum(items[].price)", 101.5),
        ("max_by(items, &price).sku", "b"),
        ("sort_by(items, &price)[0].sku", "a"),
        ("zero == `0`", True),
        ("type(items[1].price)", "number"),
        ("to_string(items[1].price)", "1.5"),
        ("id", 12345678901234567890),
    ],
)
def test_numbers_are_numbers_to_jmespath(path: str, found: object) -> None:
    """Comparisons, filters and functions see plain numbers."""
    document = b'{"id":12345678901234567890,"zero":-0,"items":[{"sku":"b","price":1e2},{"sku":"a","price":1.50}]}'
    assert jmespath.search(path, load_json_lossless(document)) == found


def test_integers_are_python_integers_up_to_a_limit() -> None:
    """A key or a comparison can use them; more digits than any identity has keep their literal only."""
    assert load_json_lossless(b"[0,-7,12345678901234567890]") == [0, -7, 12345678901234567890]
    assert all(type(number) is int for number in load_json_lossless(b"[0,-7]"))  # type: ignore[attr-defined]
    assert type(load_json_lossless(b"1" * 300)) is int
    assert isinstance(load_json_lossless(b"1" * 301), float)


def _exact(value: object) -> object:
    if isinstance(value, list):
        return ("list", tuple(map(_exact, value)))
    if isinstance(value, dict):
        return ("object", frozenset((name, _exact(item)) for name, item in value.items()))
    return (type(value).__name__, value)


def _collect(holder: object, places: list[tuple[dict[object, object], object]]) -> None:
    members = (
        list(holder.items())
        if isinstance(holder, dict)
        else list(enumerate(holder))
        if isinstance(holder, list)
        else []
    )
    for place, value in members:
        places.append((holder, place))  # type: ignore[arg-type]
        _collect(value, places)
