"""The story: what happens, what is promised, and whether it came out so.

Each step says how many charges the provider may really make because of it. Each has keys of its own, so that a step
that goes wrong does not spoil the next; only the steps around the crash belong together.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import httpx

from example_apps.demo.clients import Answer, Control, Customers
from example_apps.demo.record import Item, holds, item_under
from example_apps.demo.servers import Server

__all__ = ["STEPS", "Played", "PromiseBrokenError", "Scene", "Step", "play"]

DUPLICATES = 20
# A provider that takes so long is slow enough for a retry, or a duplicate, to meet the first request.
_SLOW_SECONDS = 0.6
# Longer than any step: who waits for this is killed before.
_ENDLESS_SECONDS = 60


class PromiseBrokenError(Exception):
    """A step came out otherwise; `answered` is what came, the message what is wrong with it."""

    def __init__(self, answered: str, why: str) -> None:
        self.answered = answered
        super().__init__(why)


class Scene:
    """Two servers of one app, as behind a load balancer, and their provider."""

    def __init__(self, servers: tuple[Server, Server], provider: Control, store_url: str) -> None:
        self.customers = Customers()
        self.provider = provider
        self.store_url = store_url
        self.first_server, self.second_server = servers
        self.record: Item = {}
        self._run = uuid.uuid4().hex[:8]
        self._calls = ThreadPoolExecutor(DUPLICATES)

    def close(self) -> None:
        """Leave nobody waiting. The servers are somebody else's."""
        self._calls.shutdown(wait=False, cancel_futures=True)
        self.customers.close()

    def key(self, name: str) -> str:
        """A key that no other run of the demo has used in this table."""
        return f"{self._run}-{name}"

    def later(self, call: Callable[[], Answer]) -> Future[Answer]:
        """Do it in a thread."""
        return self._calls.submit(call)


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the story."""

    title: str
    promise: str
    charges: int
    play: Callable[[Scene], str]
    """Gives what was answered, in words, or raises PromiseBrokenError."""


@dataclass(frozen=True, slots=True)
class Played:
    """How a step came out; `broken` says what differs from the promise."""

    step: Step
    answered: str
    charges: int
    charges_in_all: int
    seconds: float
    broken: str | None


def play(scene: Scene) -> Iterator[tuple[Step, Callable[[], Played]]]:
    """The steps in their order, each with the function that plays it."""
    for step in STEPS:
        yield step, lambda step=step: _played(step, scene)  # type: ignore[misc]


def _played(step: Step, scene: Scene) -> Played:
    before = scene.provider.charges
    began_at = time.perf_counter()
    broken = None
    try:
        answered = step.play(scene)
    except PromiseBrokenError as error:
        answered, broken = error.answered, str(error)
    except httpx.HTTPError as error:
        answered, broken = "no answer", f"the app does not answer ({type(error).__name__})"
    seconds = time.perf_counter() - began_at
    scene.provider.behave_well()
    after = scene.provider.charges
    if after - before != step.charges:
        made = f"the provider really made {_charges(after - before)}, not {step.charges}"
        broken = made if broken is None else f"{made}; {broken}"
    return Played(step, answered, after - before, after, seconds, broken)


def _charges(number: int) -> str:
    return f"{number} charge{'' if number == 1 else 's'}"


# --- the steps --------------------------------------------------------------------------------------------------------


def first_request(scene: Scene) -> str:
    answer = scene.customers.charge(scene.first_server.url, scene.key("first"))
    return _expect(answer, "201")


def lost_answer(scene: Scene) -> str:
    """The client closes its connection while the app waits for the provider, and comes again at once."""
    url, key = scene.first_server.url, scene.key("lost")
    scene.provider.behave(delay_seconds=_SLOW_SECONDS)
    if not scene.customers.charge_and_leave(url, key, lambda: scene.provider.until(lambda it: it.waiting > 0)):
        raise PromiseBrokenError("nothing", "the provider should have got this order")
    answers = scene.customers.charge_patiently(url, key)
    _expect(answers[-1], "201 replayed")
    return ", then ".join(str(answer) for answer in answers)


def duplicates(scene: Scene) -> str:
    """All wait at the line, then start; who is told to come again does so."""
    key = scene.key("duplicates")
    urls = [scene.first_server.url, scene.second_server.url]
    scene.provider.behave(delay_seconds=_SLOW_SECONDS)
    line = threading.Barrier(DUPLICATES)

    def send(number: int) -> Answer:
        line.wait()
        return scene.customers.charge(urls[number % 2], key)

    with ThreadPoolExecutor(DUPLICATES) as senders:
        answers = list(senders.map(send, range(DUPLICATES)))
        again = list(senders.map(lambda number: scene.customers.charge_patiently(urls[number % 2], key), range(2)))
    said = ", ".join(f"{count} x {answer}" for answer, count in sorted(Counter(map(str, answers)).items()))
    ran = [answer for answer in answers if str(answer) == "201"]
    told = {str(answer) for answer in answers} - {"201"}
    if len(ran) != 1 or not told <= {"201 replayed", "409 in-progress"}:
        raise PromiseBrokenError(said, "one of them runs, the others are told to wait or get its answer")
    for answers_later in again:
        _expect(answers_later[-1], "201 replayed")
        if answers_later[-1].body != ran[0].body:
            raise PromiseBrokenError(said, "the answer given again differs from the first")
    return f"{said}; later all 201 replayed"


def other_body(scene: Scene) -> str:
    answer = scene.customers.charge(scene.first_server.url, scene.key("first"), amount=990000)
    return _expect(answer, "422 key-reused")


def other_customer(scene: Scene) -> str:
    answer = scene.customers.charge(scene.second_server.url, scene.key("first"), customer="bob")
    _expect(answer, "201")
    if answer.document["account"] != "bob":
        raise PromiseBrokenError(str(answer), "this is somebody else's charge")
    return str(answer)


def no_key(scene: Scene) -> str:
    return _expect(scene.customers.charge(scene.first_server.url, None), "400 key-missing")


def invalid_key(scene: Scene) -> str:
    return _expect(scene.customers.charge(scene.first_server.url, "k" * 256), "400 key-invalid")


def provider_fails(scene: Scene) -> str:
    scene.provider.behave(failing=True)
    return _expect(scene.customers.charge(scene.first_server.url, scene.key("failure")), "502")


def retry_after_failure(scene: Scene) -> str:
    return _expect(scene.customers.charge(scene.second_server.url, scene.key("failure")), "201")


def server_killed(scene: Scene) -> str:
    """SIGKILL, at a moment that is known: one order not begun with, one charged and not yet answered."""
    url, provider = scene.first_server.url, scene.provider
    provider.behave(delay_seconds=_ENDLESS_SECONDS)
    a = scene.later(lambda: scene.customers.charge(url, scene.key("killed-a")))
    reached = provider.until(lambda it: it.waiting > 0 or a.done())
    before = provider.charges
    provider.behave(delay_seconds=0, answer_delay_seconds=_ENDLESS_SECONDS)
    b = scene.later(lambda: scene.customers.charge(url, scene.key("killed-b")))
    reached = provider.until(lambda it: it.charges > before or b.done()) and reached
    scene.first_server.kill()
    outcomes = [_outcome(a), _outcome(b)]
    if not reached or outcomes != ["no answer", "no answer"]:
        raise PromiseBrokenError(", ".join(outcomes), "both should have been under way when the server was killed")
    return "no answer to A and B"


def retry_at_once(scene: Scene) -> str:
    answers = [scene.customers.charge(scene.second_server.url, scene.key(name)) for name in ("killed-a", "killed-b")]
    for answer in answers:
        _expect(answer, "409 in-progress")
    return f"409 in-progress, retry after {max(answer.retry_after_seconds for answer in answers):g} s"


def retry_of_a(scene: Scene) -> str:
    answer = scene.customers.charge_patiently(scene.second_server.url, scene.key("killed-a"))[-1]
    return _expect(answer, "201")


def retry_of_b(scene: Scene) -> str:
    scene.provider.behave(honours_keys=True)
    answer = scene.customers.charge_patiently(scene.second_server.url, scene.key("killed-b"))[-1]
    return _expect(answer, "201")


def the_record(scene: Scene) -> str:
    key = scene.key("killed-a")
    scene.record = item_under(scene.store_url, caller="anna", key=key)
    if not scene.record:
        raise PromiseBrokenError("no record", "the charge has no record in the table")
    status, attempt = scene.record["status"]["S"], scene.record["attempt"]["N"]
    said = f"{status}, attempt {attempt}"
    if (status, attempt) != ("COMPLETED", "2"):
        raise PromiseBrokenError(said, "charge A was completed by its second attempt")
    if holds(scene.record, key):
        raise PromiseBrokenError(said, "the record shows the key as the client sent it")
    return said


STEPS = (
    Step("first request (1)", "it runs", 1, first_request),
    Step("the answer is lost, the client retries", "told to wait, then the first answer again", 1, lost_answer),
    Step(f"{DUPLICATES} duplicates at once, on two servers", "one runs, all get its answer", 1, duplicates),
    Step("another body under the same key", "refused", 0, other_body),
    Step("another customer has the same key", "a charge of their own", 1, other_customer),
    Step("no key", "refused", 0, no_key),
    Step("an invalid key (256 characters)", "refused", 0, invalid_key),
    Step("the provider fails", "the failure is told", 0, provider_fails),
    Step("... and the retry", "a failure is not kept: it runs", 1, retry_after_failure),
    Step("server killed while A waits for the provider, B is charged (2)", "nobody gets an answer", 1, server_killed),
    Step("... both retried at once on the other server", "the killed server's lease is respected", 0, retry_at_once),
    Step("... A again when the lease is over", "A runs", 1, retry_of_a),
    Step("... B again, provider honours derived keys (3)", "B runs again; the provider knows its key", 0, retry_of_b),
    Step("A's record in the table", "done by the second attempt", 0, the_record),
)


def _expect(answer: Answer, wanted: str) -> str:
    if str(answer) != wanted:
        raise PromiseBrokenError(str(answer), f"this should be {wanted}")
    return str(answer)


def _outcome(call: Future[Answer]) -> str:
    try:
        return str(call.result(timeout=_ENDLESS_SECONDS))
    except httpx.HTTPError:
        return "no answer"
