"""The draft's sequences: they hold on our probe apps, and find what is wrong with servers that break them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from idem_middleware.cli.conformance import SEQUENCES, Target, Verdict
from idem_middleware.cli.conformance import run as send_all
from idem_middleware.wsgi import IdempotencyMiddleware
from tests.cli.conftest import Run, RunJson
from tests.cli.shops import Application, Shop, served, user_of


@pytest.fixture(scope="module")
def good() -> Iterator[str]:
    """A shop under our WSGI middleware."""
    docs = "https://example.com/problems"
    with served(IdempotencyMiddleware(Shop(), store="memory://", caller=user_of, docs_url=docs)) as url:
        yield url


FULL = (
    "--slow-header", "X-Slow=1", "--failing-header", "X-Fail=1", "--other-caller", "X-User=bob", "--yes",
)  # fmt: skip


def test_every_sequence_holds_on_our_own(run_json: RunJson, good: str) -> None:
    """With every header given, nothing is unknown."""
    told = run_json("conformance", f"{good}/orders", *FULL, "--runs-url", f"{good}/runs", "--strict")
    verdicts = {outcome["name"]: outcome["verdict"] for outcome in told["outcomes"]}
    assert verdicts == {sequence.name: "holds" for sequence in SEQUENCES}


def test_it_reads_well(run: Run, good: str) -> None:
    """A table, what is unknown with what to give, and a sum."""
    text = run("conformance", f"{good}/orders", "--yes", "--only", "other*").output
    assert "other payload harms nothing" in text
    assert "give --slow-header" in text
    assert "3 holds, 2 unknown." in text


def test_it_asks_before_it_sends(run: Run, good: str) -> None:
    """It is real work for the server."""
    assert "sends real POST requests" in run("conformance", f"{good}/orders", answer="n\n", status=1).output


def verdicts(application: Application, **given: Any) -> dict[str, Verdict]:
    given.setdefault("slow", {"X-Slow": "1"})
    with served(application) as url:
        return {outcome.name: outcome.verdict for outcome in send_all(Target(url=f"{url}/orders", **given))}


def test_a_server_that_ignores_keys_is_found_out() -> None:
    """Everything runs, every time."""
    found = verdicts(Shop())
    broken = {name for name, verdict in found.items() if verdict is Verdict.BROKEN}
    assert {"retry", "other payload", "at once", "in progress", "bare keys"} <= broken


class Naive:
    """Looks a key up, then works, then keeps the answer: what is written first, and wrong."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._kept: dict[str, tuple[str, list[tuple[str, str]], bytes]] = {}

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        key = environ.get("HTTP_IDEMPOTENCY_KEY")
        if key is None or key not in self._kept:
            started: list[Any] = []
            body = b"".join(self._shop(environ, lambda *given: started.extend(given)))
            status, headers = started
            if key is not None:
                time.sleep(0.05)
                self._kept[key] = (status, headers, body)
        else:
            status, headers, body = self._kept[key]
        start_response(status, headers)
        return [body]


def test_look_then_work_is_found_out() -> None:
    """Retries are fine; what comes at once runs, and another payload gets the first one's answer."""
    found = verdicts(Naive(Shop()))
    assert found["retry"] is Verdict.HOLDS
    assert found["at once"] is Verdict.BROKEN
    assert found["other payload"] is Verdict.BROKEN
    assert found["in progress"] is Verdict.BROKEN
    assert found["replay is told"] is Verdict.DIFFERS


def test_answers_that_are_all_alike_prove_nothing() -> None:
    """Unless the server counts its runs."""

    class Silent(Shop):
        def __call__(self, environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
            body = super().__call__(environ, lambda *given: None)
            start_response("200 OK", [("Content-Length", str(len(b"".join(body)) if self.told(environ) else 2))])
            return body if self.told(environ) else [b"ok"]

        @staticmethod
        def told(environ: dict[str, Any]) -> bool:
            return bool(environ["PATH_INFO"] == "/runs")

    assert verdicts(Silent())["retry"] is Verdict.UNKNOWN
    with served(Silent()) as url:
        target = Target(url=f"{url}/orders", runs_url=f"{url}/runs")
        found = {
            outcome.name: outcome.verdict for outcome in send_all(target, lambda name: name in ("retry", "at once"))
        }
    assert (found["retry"], found["at once"]) == (Verdict.BROKEN, Verdict.BROKEN)


def test_the_rest_is_left_out_where_not_even_one_request_is_taken(run_json: RunJson, good: str) -> None:
    """It would be about nothing."""
    told = run_json("conformance", f"{good}/orders", "--method", "PUT", "--yes", status=1)
    assert [(outcome["name"], outcome["verdict"]) for outcome in told["outcomes"]] == [("fresh key", "broken")]


def test_a_server_that_is_away(run_json: RunJson) -> None:
    """Is told as such."""
    told = run_json("conformance", "http://127.0.0.1:9/orders", "--yes", "--timeout", "1", status=1)
    assert "got no answer" in told["outcomes"][0]["seen"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("ftp://x",), "is no http or https URL"),
        (("http://x", "--only", "nothing like it"), "--only matches none of"),
        (("http://x", "--header", "X"), "NAME=VALUE"),
        (("http://x", "--body", "@/no/such/file"), "can't be read"),
    ],
    ids=["url", "only", "header", "file"],
)
def test_wrong_input_is_a_sentence(run: Run, given: tuple[str, ...], sentence: str) -> None:
    """Before anything is sent."""
    assert sentence in run("conformance", *given, "--yes", status=2).output


@pytest.mark.parametrize(
    "body", ['{"amount": 1, "to": "x"}', '{"to": "x"}', '{"a": null}', "[1]", "a=1", "{}"], ids=str
)
def test_another_body_is_made_up(run_json: RunJson, good: str, tmp_path: Path, body: str) -> None:
    """Whatever the first one is, and wherever it comes from."""
    (tmp_path / "body").write_text(body)
    given = ("--body", f"@{tmp_path / 'body'}", "--only", "other payload", "--yes")
    told = run_json("conformance", f"{good}/orders", *given)
    assert [outcome["verdict"] for outcome in told["outcomes"]] == ["holds", "holds"], json.dumps(told)
