"""The client of the page for clients' authors does what the page says."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from idem_middleware import Problem, ProblemType
from idem_middleware.problems import problem_response
from tests.support.processes import ROOT

PAGE = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
Answers = list[httpx.Response | Exception]
Send = Callable[[Answers], httpx.Response]
LOOK_UP = [ProblemType.OUTCOME_UNKNOWN, ProblemType.KEY_EXPIRED, ProblemType.CREDENTIALS_CHANGED]


def problem(kind: ProblemType, retry_after_seconds: int | None = None, docs_url: str | None = None) -> httpx.Response:
    answer = problem_response(Problem(kind, retry_after_seconds=retry_after_seconds), docs_url)
    return httpx.Response(answer.status, headers=list(answer.headers), content=answer.body)


class Sent:
    """What the client sent, and how long it paused in between."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.pauses: list[float] = []


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
def send(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> Send:
    """Send one piece of work to a server that gives these answers."""
    names: dict[str, Any] = {}
    exec(re.findall(r"^```py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[0], names)  # noqa: S102 - our own page
    monkeypatch.setattr(names["time"], "sleep", sent.pauses.append)
    monkeypatch.setattr(names["random"], "uniform", lambda low, high: high)

    def run(answers: Answers) -> httpx.Response:
        def answer(request: httpx.Request) -> httpx.Response:
            sent.keys.append(request.headers["idempotency-key"])
            given = answers.pop(0)
            if isinstance(given, Exception):
                raise given
            return given

        with httpx.Client(transport=httpx.MockTransport(answer)) as client:
            response: httpx.Response = names["send"](client, "http://api/payments", b"{}", names["new_key"]())
            return response

    return run


def test_it_retries_with_one_key_until_there_is_an_answer(send: Send, sent: Sent) -> None:
    """After lost answers, failures and refusals that say when."""
    lost, busy = httpx.ReadTimeout("no answer"), problem(ProblemType.IN_PROGRESS, 3)
    assert send([lost, httpx.Response(502), busy, httpx.Response(204)]).status_code == 204
    assert len(set(sent.keys)) == 1
    assert sent.pauses == [0.5, 1, 3]


@pytest.mark.parametrize("status", [200, 303, 401, 402, 404, 409, 410, 422])
def test_it_takes_an_answer_that_is_final(status: int, send: Send) -> None:
    """Good or bad."""
    assert send([httpx.Response(status)]).status_code == status


@pytest.mark.parametrize(
    "kind", [ProblemType.OUTCOME_UNKNOWN, ProblemType.KEY_EXPIRED, ProblemType.CREDENTIALS_CHANGED]
)
@pytest.mark.parametrize("docs_url", [None, "https://api.example/problems", "https://api.example/problems#"])
def test_it_does_not_retry_what_may_have_been_done(
    kind: ProblemType, docs_url: str | None, send: Send, sent: Sent
) -> None:
    """It says that the result has to be looked up, whether the type is a name or a page."""
    with pytest.raises(LookupError, match=kind.slug):
        send([problem(kind, docs_url=docs_url)])
    assert len(sent.keys) == 1


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
def test_it_retries_what_is_no_answer(status: int, send: Send) -> None:
    """Whatever Retry-After says: it may be a date."""
    again = httpx.Response(status, headers={"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"})
    assert send([again, httpx.Response(201)]).status_code == 201


def test_it_gives_up_after_some_tries(send: Send, sent: Sent) -> None:
    """And says that the key is to be kept."""
    with pytest.raises(TimeoutError, match="same key"):
        send([httpx.Response(503)] * 6)
    assert len(sent.pauses) == 5
