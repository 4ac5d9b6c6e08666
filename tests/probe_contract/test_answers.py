"""Answers, before a framework gives them their form."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.probe.answers import Execution, Form, PlannedError, body_of, grouped, pieces, principal
from tests.probe.plan import Plan

EXECUTION = Execution(
    run=2,
    name="a",
    method="POST",
    path="/probe/a",
    query="x=1",
    body_sha256="00",
    form=Form(fields={"amount": "12"}, files={"doc": ("a.bin", 1, "ff")}),
    attempt=1,
)


def test_a_plan_without_a_body_answers_which_run_it_was() -> None:
    """That is how a test sees a second run."""
    assert json.loads(body_of(Plan(), EXECUTION)) == {"run": 2, "name": "a"}


def test_an_echo_tells_what_the_handler_saw() -> None:
    """All members of the contract are there."""
    assert json.loads(body_of(Plan(echo=True), EXECUTION)) == {
        "run": 2,
        "name": "a",
        "method": "POST",
        "path": "/probe/a",
        "query": "x=1",
        "body_sha256": "00",
        "form": {"amount": "12"},
        "files": {"doc": ["a.bin", 1, "ff"]},
        "attempt": 1,
    }


@pytest.mark.parametrize("status", [204, 205, 304])
def test_statuses_without_a_body_have_none(status: int) -> None:
    """Servers would take one for a protocol error."""
    assert body_of(Plan(status=status, body=b"text"), EXECUTION) == b""


@pytest.mark.parametrize("chunks", [1, 3, 7, 20])
def test_a_stream_has_as_many_pieces_as_planned(chunks: int) -> None:
    """Together they are the body, and the wait is between them."""
    streamed = list(pieces(Plan(chunks=chunks, chunk_delay=0.5), b"0123456789"))

    assert b"".join(piece.data for piece in streamed) == b"0123456789"
    assert [piece.wait_seconds for piece in streamed] == [0] + [0.5] * (chunks - 1)


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_stream_fails_after_the_planned_piece(after: int) -> None:
    """That many pieces went out before."""
    streamed = pieces(Plan(chunks=3, fail_after_chunk=after), b"abc")

    assert [next(streamed).data for _ in range(after)] == [b"a", b"b", b"c"][:after]
    with pytest.raises(PlannedError):
        next(streamed)


def test_repeated_form_items_become_a_list() -> None:
    """A single one stays itself."""
    assert grouped([("a", "1"), ("b", "2"), ("a", "3")]) == {"a": ["1", "3"], "b": "2"}


@pytest.mark.parametrize(
    ("authorization", "who"),
    [
        ("Bearer good-ann.1", "ann"),
        ("Bearer good-ann.2", "ann"),
        ("bearer good-bob", "bob"),
        ("Bearer bad-ann.1", None),
        ("Basic good-ann", None),
        ("", None),
        (None, None),
    ],
)
def test_a_token_says_who_calls(authorization: str | None, who: str | None) -> None:
    """A refreshed token is the same caller; anything but a good bearer token is nobody."""
    assert principal(authorization) == who


def test_an_unprotected_handler_knows_no_attempt() -> None:
    """Attempts are the product's."""
    assert json.loads(body_of(Plan(echo=True), replace(EXECUTION, attempt=None)))["attempt"] is None
