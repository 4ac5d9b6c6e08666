"""The plan in the header X-Plan."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.probe.plan import MalformedPlanError, Plan, deterministic_bytes, parse_plan


def test_an_absent_header_is_the_empty_plan() -> None:
    """A request without X-Plan and one with `{}` are answered alike."""
    assert parse_plan(None) == parse_plan("{}") == Plan()


def test_every_member_is_read() -> None:
    """Each member of the contract has its place."""
    plan = parse_plan(
        json.dumps(
            {
                "status": 201,
                "headers": [["Link", "</a>"], ["Link", "</b>"]],
                "cookies": {"a": "1"},
                "body": "{}",
                "content_type": "text/plain",
                "chunks": 3,
                "chunk_delay": 0.5,
                "fail_after_chunk": 1,
                "delay": 2,
                "raise": "boom",
                "abort": 404,
                "exit": True,
                "background": 0.1,
                "background_raise": True,
                "session": {"user": "ann"},
                "read": "form",
                "echo": True,
            }
        )
    )

    assert plan == Plan(
        status=201,
        headers=(("Link", "</a>"), ("Link", "</b>")),
        cookies={"a": "1"},
        body=b"{}",
        content_type="text/plain",
        chunks=3,
        chunk_delay=0.5,
        fail_after_chunk=1,
        delay=2,
        raises="boom",
        abort=404,
        exit=True,
        background=0.1,
        background_raise=True,
        session={"user": "ann"},
        read="form",
        echo=True,
    )


@pytest.mark.parametrize(
    ("members", "body", "content_type"),
    [
        ({"body": "é"}, "é".encode(), "application/json"),
        ({"body_b64": "AP8="}, b"\x00\xff", "application/octet-stream"),
        ({"size": 3}, b"\x00\x01\x02", "application/octet-stream"),
        ({"size": 3, "content_type": "text/csv"}, b"\x00\x01\x02", "text/csv"),
        ({"size": 0}, b"", "application/octet-stream"),
    ],
    ids=["text", "base64", "size", "size with a type", "nothing"],
)
def test_a_body_is_text_or_bytes_or_a_size(members: dict[str, object], body: bytes, content_type: str) -> None:
    """The three ways to name a body, and the media type that goes with each."""
    plan = parse_plan(json.dumps(members))

    assert (plan.body, plan.content_type) == (body, content_type)


def test_a_raising_background_task_needs_no_wait() -> None:
    """`background_raise` alone starts the task."""
    assert parse_plan('{"background_raise": true}').background == 0
    assert parse_plan('{"background_raise": false}').background is None


@given(st.integers(min_value=0, max_value=2000))
def test_the_deterministic_bytes_are_those_of_the_contract(size: int) -> None:
    """The fast way gives what the contract's expression gives."""
    assert deterministic_bytes(size) == bytes(i % 251 for i in range(size))


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        ("{", "no JSON"),
        ("[]", "no JSON object"),
        ('{"stat": 1}', "unknown members: stat"),
        ('{"status": "200"}', "status must be"),
        ('{"status": true}', "status must be"),
        ('{"status": 99}', "from 200 to 599"),
        ('{"delay": -1}', "delay must not be negative"),
        ('{"chunks": 1.5}', "chunks must be a whole number"),
        ('{"chunks": -1}', "chunks must not be negative"),
        ('{"exit": 1}', "exit must be true or false"),
        ('{"headers": [["a"]]}', "headers must be a list of"),
        ('{"headers": [["a", "\\u20ac"]]}', "latin-1"),
        ('{"cookies": {"a": 1}}', "an object of strings"),
        ('{"body": "a", "size": 1}', "only one of"),
        ('{"body_b64": "***"}', "no base64"),
        ('{"read": "all"}', "read must be one of body, stream, form, none"),
    ],
)
def test_a_malformed_plan_is_told_from_its_message(header: str, complaint: str) -> None:
    """A wrong plan is a bug of the test that sent it, so the message says which member is wrong."""
    with pytest.raises(MalformedPlanError, match=complaint):
        parse_plan(header)
