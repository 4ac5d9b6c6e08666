"""Both ends of the app: its customers, and the provider's control."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import httpx

__all__ = ["API_KEYS", "Answer", "Control", "Customers"]

API_KEYS = {"anna": "key-of-anna", "bob": "key-of-bob"}

_TIMEOUT_SECONDS = 15
_PATIENCE_SECONDS = 15
_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Answer:
    """What a customer got."""

    status: int
    replayed: bool
    problem: str | None
    """The end of the `type` of a refusal: `in-progress`."""
    retry_after_seconds: float
    body: bytes

    def __str__(self) -> str:
        return " ".join([str(self.status), *([self.problem] if self.problem else []), *(["replayed"] * self.replayed)])

    @property
    def document(self) -> Any:
        """Its body; None if that is no JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


class Customers:
    """They send charges. May be used by several threads."""

    def __init__(self) -> None:
        # What the environment says about proxies is not meant for loopback.
        self._http = httpx.Client(timeout=_TIMEOUT_SECONDS, trust_env=False, limits=httpx.Limits(max_connections=None))

    def close(self) -> None:
        """Hang up."""
        self._http.close()

    def charge(self, url: str, key: str | None, *, amount: int = 1200, customer: str = "anna") -> Answer:
        """Send one request to the app at `url`.

        Raises:
            httpx.HTTPError: there was no answer, or not in time; the connection is closed then.

        """
        body, headers = _order(key, amount, customer)
        return _answer(self._http.post(f"{url}/charges", content=body, headers=headers))

    def charge_and_leave(self, url: str, key: str, leave: Callable[[], bool]) -> bool:
        """Send one request and hang up, without having read a byte, when `leave` returns; gives what that gave."""
        body, headers = _order(key)
        with closing(http.client.HTTPConnection(url.removeprefix("http://"), timeout=_TIMEOUT_SECONDS)) as connection:
            connection.request("POST", "/charges", body, headers)
            return leave()

    def charge_patiently(self, url: str, key: str) -> list[Answer]:
        """Do what a 409 with Retry-After asks for, until there is another answer; all answers, in order."""
        give_up_at = time.monotonic() + _PATIENCE_SECONDS
        answers = [self.charge(url, key)]
        while answers[-1].problem == "in-progress" and time.monotonic() < give_up_at:
            time.sleep(answers[-1].retry_after_seconds or 1)
            answers.append(self.charge(url, key))
        return answers


class Control:
    """How the provider behaves, and what it has done."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=_TIMEOUT_SECONDS, trust_env=False)

    def close(self) -> None:
        """Hang up."""
        self._http.close()

    def behave(self, **changes: float) -> None:
        """Change some fields of its `Behaviour`."""
        self._http.put("/control", json=changes).raise_for_status()

    def behave_well(self) -> None:
        """Be quick and reliable again."""
        self.behave(delay_seconds=0, answer_delay_seconds=0, failing=False, honours_keys=False)

    @property
    def charges(self) -> int:
        """How many charges it has really made, for whomever."""
        return self._seen("charges")

    @property
    def waiting(self) -> int:
        """How many orders it has not begun with."""
        return self._seen("waiting")

    def until(self, look: Callable[[Control], bool]) -> bool:
        """Look again until it is so; False if it does not come to that."""
        give_up_at = time.monotonic() + _PATIENCE_SECONDS
        while not look(self):
            if time.monotonic() > give_up_at:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def _seen(self, name: str) -> int:
        return int(self._http.get("/control").raise_for_status().json()[name])


def _order(key: str | None, amount: int = 1200, customer: str = "anna") -> tuple[bytes, dict[str, str]]:
    """The body and the headers of a request."""
    headers = {"Authorization": f"Bearer {API_KEYS[customer]}", "Content-Type": "application/json"}
    if key is not None:
        headers["Idempotency-Key"] = key
    return json.dumps({"amount": amount, "currency": "eur"}).encode(), headers


def _answer(response: httpx.Response) -> Answer:
    problem = None
    if response.headers.get("content-type") == "application/problem+json":
        problem = response.json()["type"].replace("/", ":").rpartition(":")[2]
    retry_after = response.headers.get("retry-after", "")
    return Answer(
        status=response.status_code,
        replayed=response.headers.get("idempotent-replayed") == "true",
        problem=problem,
        retry_after_seconds=float(retry_after) if retry_after.isdecimal() else 0,
        body=response.content,
    )
