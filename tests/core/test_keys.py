"""The idempotency key: what the header may hold, and the name that the store knows a key by."""

from __future__ import annotations

import re
import uuid
from enum import IntEnum
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from idem_middleware.errors import IdempotencyError
from idem_middleware.keys import (
    KeyInvalid,
    caller_partition,
    derived_key,
    parse_key,
    placed,
    record_pk,
    short_digest,
    validate_key,
)

UUID = "8e03978e-40d5-43e8-bc93-6894a57f9324"
UUID_BY_LETTER = "a1b2c3d4-0000-4000-8000-000000000000"
PRINTABLE = "".join(map(chr, range(0x20, 0x7F)))

# Value as it stands in the header, and the key that it is.
QUOTED = [
    (f'"{UUID}"', UUID),
    ('"x"', "x"),
    ('"a b"', "a b"),
    ('" abc "', " abc "),
    ('  "abc"  ', "abc"),
    ('\t"abc"\t', "abc"),
    (r'"a\"b"', 'a"b'),
    (r'"a\\b"', r"a\b"),
    (r'"\\"', "\\"),
    (r'"\"\""', '""'),
    ('"a;b,c"', "a;b,c"),
    ('"%41"', "%41"),
    ('"' + "a" * 255 + '"', "a" * 255),
    ('"' + r"\"" * 255 + '"', '"' * 255),
    ('"' + PRINTABLE.replace("\\", r"\\").replace('"', r"\"") + '"', PRINTABLE),
]
PARAMETERS = [
    ";p",
    ";p=1",
    "; p=1",
    ";   p=1",
    ';a=1;b="x"',
    ";a=-1",
    ";a=123456789012345",
    ";a=1.5;a=-123456789012.123",
    ';a="";a="x\\"y;z"',
    ";a=token/1:2;a=*;a=T",
    ";a=:aGVsbG8=:;a=::;a=:aGVsbG8:;a=:YQ==:;a=:YQ:",
    ";a=?0;a=?1",
    ";a=@1659578233;a=@-1",
    ';a=%"f%c3%bc";a=%"";a=%"\\"',
    ";*a_b-c.d*1=1",
]
BARE = [
    UUID,
    UUID_BY_LETTER,
    "KG5LxwFBepaKHyUD",
    "123",
    "1.5",
    "x",
    "XOX",
    "order_1.2~a:/b+c=@d|e-",
    f"urn:uuid:{UUID}",
    "QUJD==",
    "a" * 255,
]
INVALID = {
    "empty": ["", " ", "\t", " \t ", '""', '"'],
    "only spaces": ['" "', '"   "'],
    "other structured types": ["?1", "@1659578233", ":aGVsbG8=:", '("a")', "*abc", '%"caf%c3%a9"', "-1"],
    "bare, with a space": ["a b", "abc\tdef"],
    "bare, with a forbidden character": ["abc;p=1", "a#b", "a%b", "a\\b", "_a", ".a", "{a}", "a,b", "a, b", "'abc'"],
    "bad escapes": [r'"a\nb"', '"abc\\', r'"abc\"', r'"abc\x"', r'"abc\u0041"'],
    "unbalanced quotes": ['"abc', 'abc"', 'abc"def', '"abc"def"'],
    "data after the string": ['"a", "b"', '"a","a"', '"a","b"', '"x" "y"', '"x"junk', '"x","y";p=1'],
    "bad parameters": [
        '"abc" ;p=1',
        '"abc";P=1',
        '"abc";',
        '"abc"; ',
        '"abc";;a',
        '"abc";\tp=1',
        '"abc";p =1',
        '"abc";p= 1',
        '"abc";p=',
        '"abc";1=1',
        '"abc";p=1.',
        '"abc";p=1.2345',
        '"abc";p=1234567890123456',
        '"abc";p=1234567890123.1',
        '"abc";p=--1',
        '"abc";p="x',
        '"abc";p="\\x"',
        '"abc";p=:a:',
        '"abc";p=:YQ===:',
        '"abc";p=:Y_==:',
        '"abc";p=?2',
        '"abc";p=@1.5',
        '"abc";p=%"%C3%BC"',
        '"abc";p=%"%ff"',
        '"abc";p=%"%2"',
        '"abc";p=("a")',
        '"abc";p=1,q',
        '"abc";p=é',
    ],
    "control characters": [
        '"a\x01b"',
        '"a\x7fb"',
        '"a\tb"',
        '"a\x00b"',
        '"a\rb"',
        '"a\nb"',
        "a\x02b",
        "abc\n",
        '"abc"\n',
    ],
    "not ASCII": ['"café"', '"caf\xc3\xa9"', "café", "caf\xc3\xa9", "٣", "\uff41", '"a\x80"'],
    "too long": ["a" * 256, '"' + "a" * 256 + '"', "k" * 3000, '"' + "k" * 6000 + '"', '"' + r"\\" * 256 + '"'],
}
ALL_INVALID = [
    pytest.param(value, id=f"{why}-{n}") for why, values in INVALID.items() for n, value in enumerate(values)
]


def test_without_a_line_the_key_is_missing_not_invalid() -> None:
    """No header is no key: nothing is hashed for it (aws-powertools/powertools-lambda-python#2465)."""
    assert parse_key([]) is None


@pytest.mark.parametrize(("value", "key"), QUOTED)
def test_a_quoted_key_is_the_string_it_says(value: str, key: str) -> None:
    """A string of RFC 9651, spaces and escapes included, is taken in both modes."""
    assert parse_key([value]) == parse_key([value], strict=True) == key


@pytest.mark.parametrize("parameters", PARAMETERS)
def test_parameters_do_not_change_the_key(parameters: str) -> None:
    """Parameters of every bare type of RFC 9651 are read over."""
    assert parse_key([f'"abc"{parameters}']) == "abc"


@pytest.mark.parametrize("value", BARE)
def test_a_bare_key_is_the_same_as_the_quoted_one(value: str) -> None:
    """A client that mends its quoting between two tries does not run twice."""
    assert parse_key([value]) == parse_key([f'"{value}"']) == parse_key([f" {value}\t"]) == value


@pytest.mark.parametrize("value", BARE)
def test_strict_refuses_a_bare_key(value: str) -> None:
    """Strict takes strings only, also where the value would be another structured type, such as a token."""
    with pytest.raises(KeyInvalid, match="double quotes"):
        parse_key([value], strict=True)


@pytest.mark.parametrize("strict", [False, True], ids=["tolerant", "strict"])
@pytest.mark.parametrize("value", ALL_INVALID)
def test_anything_else_is_refused_without_an_echo(value: str, *, strict: bool) -> None:
    """A malformed or huge key never reaches the store, nor the answer (granit-fx/granit-dotnet#1151)."""
    with pytest.raises(KeyInvalid) as refusal:
        parse_key([value], strict=strict)
    assert len(refusal.value.reason) < 200
    assert str(refusal.value) == refusal.value.reason
    assert len(value) < 3 or value not in refusal.value.reason


@pytest.mark.parametrize(("first", "second"), list(product(['"a"', "a", "", '"foo', 'bar"'], repeat=2)))
def test_two_lines_are_refused_even_if_equal(first: str, second: str) -> None:
    """Which of two keys is meant nobody can know; two halves of a string are no string, either."""
    with pytest.raises(KeyInvalid, match="more than one"):
        parse_key([first, second])


def test_two_lines_that_a_server_joined_are_refused() -> None:
    """WSGI servers join lines by a comma, with or without a space; the empty ones leave the comma."""
    for left, right, comma in product(['"a"', "a", ""], ['"b"', "b", ""], [",", ", "]):
        with pytest.raises(KeyInvalid):
            parse_key([left + comma + right])


def test_keys_are_case_sensitive() -> None:
    """No letter is folded."""
    assert parse_key(["ABC"]) != parse_key(["abc"])


def test_a_pattern_has_to_match_the_whole_decoded_key() -> None:
    """The pattern sees what the quotes hold, and a part is not enough."""
    digits = re.compile("[0-9]+")
    assert parse_key(['"123"'], pattern=digits) == parse_key(["123"], pattern=digits) == "123"
    for value in ("123a", "a123", '"123 "'):
        with pytest.raises(KeyInvalid, match="form that this service asks for"):
            parse_key([value], pattern=digits)


def test_an_invalid_key_is_an_error_of_this_package() -> None:
    """One root catches all."""
    assert issubclass(KeyInvalid, IdempotencyError)
    assert issubclass(KeyInvalid, ValueError)


def test_an_error_says_its_reason_however_it_was_made() -> None:
    """What a log shows of it is the sentence for the client."""
    assert str(KeyInvalid("Too long.")) == str(KeyInvalid(reason="Too long.")) == "Too long."


@given(st.text(st.characters(max_codepoint=0xFF)), st.booleans())
@example(value='"', strict=False)
def test_every_value_gives_a_usable_key_or_is_refused(value: str, strict: bool) -> None:  # noqa: FBT001
    """Whatever a server hands over, the outcome is 1 to 255 printable characters or KeyInvalid."""
    try:
        key = parse_key([value], strict=strict)
    except KeyInvalid:
        return
    assert key is not None
    assert 1 <= len(key) <= 255
    assert set(key) <= set(PRINTABLE)
    assert validate_key(key) == key


@given(st.text(PRINTABLE, min_size=1, max_size=255).filter(str.strip))
def test_every_printable_text_can_be_a_key_if_quoted(key: str) -> None:
    """Serialising as RFC 9651 says and parsing are inverse."""
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    assert parse_key([f'"{escaped}"']) == parse_key([f'"{escaped}";q=1']) == key


class Order(IntEnum):
    """An integer under a name."""

    FIRST = 7


@pytest.mark.parametrize(
    ("given_key", "key"),
    [
        ("order-1", "order-1"),
        (" a#b ", " a#b "),
        ("a" * 255, "a" * 255),
        (0, "0"),
        (-12, "-12"),
        (Order.FIRST, "7"),
        (10**254, "1" + "0" * 254),
        (10**255 - 1, "9" * 255),
    ],
)
def test_a_key_from_a_body_or_function_is_a_string_or_an_integer(given_key: object, key: str) -> None:
    """A business identity counts by its digits, whether the client sent a number or a string."""
    assert validate_key(given_key) == key


@pytest.mark.parametrize(
    "given_key",
    [
        None,
        True,
        False,
        1.0,
        b"a",
        uuid.UUID(UUID),
        [],
        ["a"],
        {},
        "",
        " ",
        "   ",
        "a\tb",
        "a\n",
        "é",
        "\ud800",
        "a" * 256,
        10**255,
        -(10**254),
        10**5000,
    ],
    ids=lambda given_key: repr(given_key)[:20] if not isinstance(given_key, int) else hex(given_key)[:12],
)
def test_any_other_key_from_a_body_or_function_is_refused(given_key: object) -> None:
    """Nothing falls into a shared bucket as "None" or "True", and nothing unprintable gets through."""
    with pytest.raises(KeyInvalid):
        validate_key(given_key)


def test_the_pattern_holds_for_keys_from_elsewhere_too() -> None:
    """`key_pattern` is one rule for all sources."""
    pattern = re.compile("order-[0-9]+")
    assert validate_key("order-1", pattern=pattern) == "order-1"
    with pytest.raises(KeyInvalid):
        validate_key("order-1 ", pattern=pattern)


FIELDS = st.text(max_size=4)


@given(*[st.tuples(FIELDS, st.none() | FIELDS, FIELDS)] * 2)
@example(("ab", "c", "d"), ("a", "bc", "d"))
@example(("a", None, "b"), ("a", "", "b"))
@example(("", None, "\ud800"), ("", None, "\udfff"))
def test_records_are_shared_only_if_namespace_caller_and_key_are(
    one: tuple[str, str | None, str], other: tuple[str, str | None, str]
) -> None:
    """No separator within a field imitates another split, and no caller is no string."""
    assert (record_pk(*one) == record_pk(*other)) is (one == other)


def test_a_record_s_name_has_a_fixed_form_and_never_changes() -> None:
    """Records outlive deployments: the digest of these fields is what it was in the first release."""
    pk = record_pk("payments", "acct_1", "order-1")
    assert pk == "1066360056adcb5a3eb754d1ecffeb98353068c8ce148f3e6206e84048f6944f"
    assert short_digest(pk) == pk[:12]


def test_a_caller_s_partition_has_a_fixed_form_and_never_changes() -> None:
    """As the records in it."""
    partition = caller_partition("payments", "acct_1")
    assert partition == "bf385e368b7b81f233821d71242e60b4"
    assert placed("a" * 64, partition) == f"{'a' * 64}@{partition}"
    assert short_digest(placed("a" * 64, partition)) == "a" * 12


def test_callers_share_no_partition() -> None:
    """No caller, the empty one, and the same one in another namespace are others."""
    places = [("", None), ("", ""), ("", "ann"), ("n", "ann"), ("nann", None), ("", "nann")]
    assert len({caller_partition(*place) for place in places}) == len(places)


@pytest.mark.parametrize("line", ['"a"' + ";b=1" * 2000, "a" * 5000, " " * 5000 + "a", '"' + '\\"' * 3000])
def test_a_line_that_no_key_needs_is_not_even_read(line: str) -> None:
    """What a server lets in may be 64 KB, and is sent by whoever likes to."""
    with pytest.raises(KeyInvalid, match=r"^The idempotency key is longer than 255 characters\.$"):
        parse_key([line])


def test_a_line_of_the_greatest_length_is_read() -> None:
    """4096 characters, whatever they are; one more is too many."""
    assert parse_key([" " * 4095 + "a"]) == "a"
    with pytest.raises(KeyInvalid, match="longer than 255"):
        parse_key([" " * 4096 + "a"])


def test_a_derived_key_has_a_fixed_form_and_never_changes() -> None:
    """The next service must know it again when the request is tried by another release of this one."""
    pk = record_pk("payments", "acct_1", "order-1")
    assert derived_key(pk, "charge") == "c32d3329-a3b7-8abf-99a2-62c8c6c5fceb"
    assert derived_key(pk, "refund") != derived_key(pk, "charge") != derived_key(pk[::-1], "charge")


@given(st.text(), st.text())
@example("a", "b:c")
def test_a_derived_key_is_a_uuid_of_version_8(pk: str, label: str) -> None:
    """Services that judge their keys as UUIDs take it: its version and its variant are those of RFC 9562."""
    key = derived_key(pk, label)
    number = uuid.UUID(key)
    assert (str(number), number.variant, key[14]) == (key, uuid.RFC_4122, "8")
