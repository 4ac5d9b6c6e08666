"""What is asked of each application, and with which requests."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

__all__ = ["BODY", "QUESTIONS", "Keys", "Question", "Sent", "unexpected"]

BODY = json.dumps({"amount": 1200, "currency": "EUR", "reference": "order-4711", "note": "x" * 120}).encode()
_OTHER_BODY = BODY.replace(b"1200", b"1300")


@dataclass(frozen=True, slots=True)
class Sent:
    """One request."""

    method: str
    path: str
    key: str | None
    body: bytes


@dataclass(frozen=True, slots=True)
class Question:
    """A kind of request."""

    name: str
    path: str = "/charges"
    method: str = "POST"
    body: bytes = BODY
    is_first: bool = False
    """Each has a key of its own; otherwise all have one that was used before."""
    is_held: bool = False
    """The first request with that key is still at work."""
    statuses: frozenset[int] = frozenset({201})
    """What it is answered, where it is protected."""
    share: int = 1
    """It is asked so many times less often than the others."""


QUESTIONS = {
    question.name: question
    for question in (
        Question("new", is_first=True),
        Question("replay"),
        Question("conflict", path="/held", is_held=True, statuses=frozenset({409, 423})),
        Question("mismatch", body=_OTHER_BODY, statuses=frozenset({422})),
        Question("uncovered", method="GET"),
        Question("new, 100 KB", path="/exports", is_first=True, share=8),
        Question("replay, 100 KB", path="/exports", share=8),
    )
}


class Keys:
    """Makes the requests of a question: first the one that it presupposes, if any, then as many as are wanted."""

    def __init__(self) -> None:
        self._numbers = count(secrets.randbits(40))

    def new(self) -> str:
        """A key that nobody has used."""
        return f"8e03978e-40d5-43e8-bc93-{next(self._numbers):012x}"

    def requests(self, question: Question, number: int, *, protected: bool) -> tuple[Sent | None, list[Sent]]:
        """The one before, and so many more. Nothing is held in an application that protects nothing: it runs."""
        path = question.path if protected or not question.is_held else "/charges"
        if question.method == "GET":
            return None, [Sent("GET", path, None, b"")] * number
        if question.is_first or not protected:
            return None, [Sent("POST", path, self.new(), question.body) for _ in range(number)]
        key = self.new()
        return Sent("POST", path, key, BODY), [Sent("POST", path, key, question.body)] * number


def unexpected(question: Question, statuses: Iterable[int], *, protected: bool) -> int:
    """How many were answered otherwise than they should be: some may time out on a busy machine."""
    wanted = question.statuses if protected else {201}
    return sum(status not in wanted for status in statuses)
