"""The sequences, in the order in which they are sent. Each says what the draft says, sends, and judges what came back.

A server need not do what the draft only recommends, and may choose where it is silent: `differs` tells of that.
`broken` is what no choice explains: work that ran twice, an answer that is not the first one's, an error that stuck.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum

from idem_middleware.cli.conformance.exchange import Answer, Server, Target, Unreachable

__all__ = ["SEQUENCES", "Outcome", "Sequence", "Verdict", "run"]

_BAD_REQUEST, _CONFLICT, _UNPROCESSABLE = 400, 409, 422
_SERVER_ERROR = 500
_CROWD = 10
_HEAD_START_SECONDS = 0.3
"""Between a slow request and what is sent while it runs: it must have been claimed by then."""
_PATIENCE_SECONDS = 30.0
_POLL_SECONDS = 0.25


class Verdict(StrEnum):
    """What a sequence found."""

    HOLDS = "holds"
    DIFFERS = "differs"
    BROKEN = "broken"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A verdict, and what was seen."""

    name: str
    section: str
    says: str
    verdict: Verdict
    seen: str


_Judged = tuple[Verdict, str]
_Judge = Callable[["Server"], "_Judged"]


@dataclass(frozen=True, slots=True)
class Sequence:
    """One sequence; `says` is what the draft asks for, or, with the section "practice", what good servers do."""

    name: str
    section: str
    says: str
    judge: Callable[[Server], _Judged]

    def run(self, server: Server) -> Outcome:
        """Send it."""
        try:
            verdict, seen = self.judge(server)
        except Unreachable as error:
            verdict, seen = Verdict.BROKEN, str(error)
        return Outcome(self.name, self.section, self.says, verdict, seen)


SEQUENCES: list[Sequence] = []


def _sequence(
    name: str, section: str, says: str
) -> Callable[[Callable[[Server], _Judged]], Callable[[Server], _Judged]]:
    def add(judge: Callable[[Server], _Judged]) -> Callable[[Server], _Judged]:
        SEQUENCES.append(Sequence(name, section, says, judge))
        return judge

    return add


def run(target: Target, wanted: Callable[[str], bool] = lambda name: True) -> Iterator[Outcome]:  # noqa: ARG005
    """Send the wanted sequences. The first one, a fresh key, is always sent: without it nothing can be told."""
    server = Server(target)
    for number, sequence in enumerate(SEQUENCES):
        if number and not wanted(sequence.name):
            continue
        outcome = sequence.run(server)
        yield outcome
        if number == 0 and outcome.verdict is not Verdict.HOLDS:
            return


def _seen(*answers: Answer) -> str:
    return ", then ".join(map(str, answers))


def _is_replay_of(first: Answer, other: Answer) -> bool:
    return (first.status, first.body, first.values("location")) == (other.status, other.body, other.values("location"))


def _runs_differ(server: Server, first: Answer) -> bool:
    """Whether an answer tells one run from another: otherwise equal answers prove nothing."""
    other = server.quoted(server.fresh())
    return not _is_replay_of(first, other)


# --- first request and retries ----------------------------------------------------------------------------------------


@_sequence("fresh key", "2.6", "the first request with a key is processed as usual")
def _fresh(server: Server) -> _Judged:
    answer = server.quoted(server.fresh())
    if answer.ok:
        return Verdict.HOLDS, _seen(answer)
    return Verdict.BROKEN, f"{_seen(answer)}: is the request as it should be? (--body, --header)"


@_sequence("retry", "2.6", "a retry gets the result of the first request")
def _retry(server: Server) -> _Judged:
    key = server.fresh()
    before = server.runs()
    answers = [server.quoted(key) for _ in range(3)]
    after = server.runs()
    if not all(_is_replay_of(answers[0], answer) for answer in answers):
        return Verdict.BROKEN, _seen(*answers)
    if before is not None and after is not None:
        if after - before != 1:
            return Verdict.BROKEN, f"the same answer three times, but {after - before} runs"
        return Verdict.HOLDS, "the same answer three times, one run"
    if not _runs_differ(server, answers[0]):
        return Verdict.UNKNOWN, "all answers are alike, whatever the key: give --runs-url"
    return Verdict.HOLDS, "the same answer three times"


@_sequence("two keys", "2.2", "another key is another request, even with the same payload")
def _two_keys(server: Server) -> _Judged:
    before = server.runs()
    first, second = server.quoted(server.fresh()), server.quoted(server.fresh())
    after = server.runs()
    if server.target.replay_header and second.values(server.target.replay_header):
        return Verdict.BROKEN, f"the second key's answer is marked as a replay: {second}"
    if before is not None and after is not None:
        return (Verdict.HOLDS if after - before == 2 else Verdict.BROKEN), f"{after - before} runs"  # noqa: PLR2004
    if _is_replay_of(first, second):
        return Verdict.UNKNOWN, "both answers are alike: give --runs-url"
    return Verdict.HOLDS, _seen(first, second)


@_sequence("replay is told", "practice", "a replay can be told from a first answer")
def _marked(server: Server) -> _Judged:
    key = server.fresh()
    name = server.target.replay_header
    first, second = server.quoted(key), server.quoted(key)
    if first.values(name):
        return Verdict.BROKEN, f"the first answer has {name}"
    return (
        Verdict.HOLDS if second.values(name) else Verdict.DIFFERS
    ), f"{name}: {', '.join(second.values(name)) or 'not there'}"


@_sequence("key is not echoed", "IANA", "the field is for requests only")
def _echo(server: Server) -> _Judged:
    answer = server.quoted(server.fresh())
    found = answer.values(server.target.key_header)
    return (Verdict.DIFFERS, "the answer has it, too") if found else (Verdict.HOLDS, "not in the answer")


# --- another payload --------------------------------------------------------------------------------------------------


@_sequence("other payload", "2.7", "a key that comes with another payload is refused with 422")
def _other_payload(server: Server) -> _Judged:
    key = server.fresh()
    first = server.quoted(key)
    other = server.quoted(key, body=server.target.other_body)
    if other.ok:
        what = "it got the first one's answer" if _is_replay_of(first, other) else "it ran"
        return Verdict.BROKEN, f"{what}: {_seen(first, other)}"
    return (Verdict.HOLDS if other.status == _UNPROCESSABLE else Verdict.DIFFERS), _seen(other)


@_sequence("other payload harms nothing", "2.7", "after that, a retry still gets the first result")
def _other_payload_harmless(server: Server) -> _Judged:
    key = server.fresh()
    first = server.quoted(key)
    refused = server.quoted(key, body=server.target.other_body)
    again = server.quoted(key)
    refused_again = server.quoted(key, body=server.target.other_body)
    if not _is_replay_of(first, again):
        return Verdict.BROKEN, f"the first result is lost: {_seen(first, again)}"
    if refused.status != refused_again.status:
        return Verdict.BROKEN, f"the other payload got {_seen(refused, refused_again)}"
    return Verdict.HOLDS, f"{first.status}, {refused.status}, {again.status}, {refused_again.status}"


# --- missing and malformed keys ---------------------------------------------------------------------------------------


@_sequence("missing key", "2.7", "where a key is required, a request without one is refused with 400")
def _missing(server: Server) -> _Judged:
    answer = server.send()
    if answer.ok:
        return Verdict.DIFFERS, f"{answer.status}: a key is optional here, and the request ran unprotected"
    return (Verdict.HOLDS if answer.status == _BAD_REQUEST else Verdict.DIFFERS), _seen(answer)


@_sequence("missing key is explained", "2.7", "that answer leads to documentation, by its body or a Link header")
def _missing_explained(server: Server) -> _Judged:
    answer = server.send()
    if answer.ok:
        return Verdict.UNKNOWN, "a key is optional here"
    if answer.links:
        return Verdict.HOLDS, "a link is there"
    return Verdict.DIFFERS, f"no link{'; problem details' if answer.is_problem else f': {answer}'}"


_MALFORMED = {
    "empty": [""],
    "empty string": ['""'],
    "without its end": ['"abc'],
    "bad escape": ['"a\\nb"'],
    "a list": ['"a", "b"'],
    "two lines": ['"a"', '"b"'],
    "not ASCII": ['"caf\xe9"'],
    "a control character": ['"a\x01b"'],
    "single quotes": ["'abc'"],
}


@_sequence("malformed keys", "2.1", "what is no string of structured fields is refused with 400")
def _malformed(server: Server) -> _Judged:
    passed = {}
    for name, lines in _MALFORMED.items():
        answer = server.send(*lines)
        if answer.status != _BAD_REQUEST:
            passed[name] = str(answer.status)
    if not passed:
        return Verdict.HOLDS, f"400 for each of {len(_MALFORMED)}: {', '.join(_MALFORMED)}"
    told = ", ".join(f"{name} ({status})" for name, status in passed.items())
    return Verdict.DIFFERS, f"not refused with 400: {told}"


@_sequence("parameters", "2.1", "parameters after the string are no part of the key")
def _parameters(server: Server) -> _Judged:
    key = server.fresh()
    first, second = server.quoted(key), server.send(f'"{key}";v=1')
    if second.ok and not _is_replay_of(first, second):
        return Verdict.BROKEN, f"with a parameter it ran again: {_seen(first, second)}"
    return (Verdict.HOLDS if second.ok else Verdict.DIFFERS), _seen(first, second)


@_sequence("bare keys", "practice", "a key without quotes is refused, or the same key as with them")
def _bare(server: Server) -> _Judged:
    key = server.fresh()
    first, second = server.send(key), server.quoted(key)
    if not first.ok:
        return Verdict.HOLDS, f"refused: {_seen(first)}"
    if not _is_replay_of(first, second):
        return Verdict.BROKEN, f"a client that mends its quoting runs twice: {_seen(first, second)}"
    return Verdict.HOLDS, "one key"


@_sequence("case", "practice", "keys that differ in case are different keys")
def _case(server: Server) -> _Judged:
    key = server.fresh()
    first, second = server.quoted(f"a{key}"), server.quoted(f"A{key}")
    if second.values(server.target.replay_header):
        return Verdict.DIFFERS, "they are one key here"
    return Verdict.HOLDS, _seen(first, second)


@_sequence("long keys", "practice", "255 characters are a key; what is refused is refused with 400")
def _long(server: Server) -> _Judged:
    base = server.fresh()
    fits, long = server.quoted(base.ljust(255, "x")), server.quoted(base.ljust(5000, "x"))
    if not fits.ok:
        return Verdict.DIFFERS, f"255: {fits}"
    if long.ok or long.status in (_BAD_REQUEST, 413, 431):
        return Verdict.HOLDS, f"255: {fits.status}, 5000: {long.status}"
    return Verdict.DIFFERS, f"5000: {long}"


@_sequence("errors are not kept", "2.7", "the answer to a malformed or missing key is no result that sticks")
def _errors_not_kept(server: Server) -> _Judged:
    first, second = server.send('"abc'), server.send('"abc')
    marked = second.values(server.target.replay_header)
    return (Verdict.BROKEN, f"{second} is marked as a replay") if marked else (Verdict.HOLDS, _seen(first, second))


@_sequence("safe methods", "2.5.1", "a key on a request that needs none is ignored, even a malformed one")
def _safe(server: Server) -> _Judged:
    plain, keyed = server.send(method="GET"), server.send('"abc', method="GET")
    if plain.status == keyed.status:
        return Verdict.HOLDS, f"GET: {plain.status} with and without"
    return Verdict.DIFFERS, f"GET without a key {plain.status}, with a malformed one {keyed.status}"


@_sequence("preflight", "practice", "an OPTIONS request needs no key")
def _preflight(server: Server) -> _Judged:
    cors = {"Origin": "https://example.com", "Access-Control-Request-Method": server.target.method}
    answer = server.send(method="OPTIONS", headers=cors)
    if answer.status == _BAD_REQUEST and answer.is_problem:
        return Verdict.BROKEN, f"browsers can't ask: {answer}"
    return Verdict.HOLDS, str(answer.status)


# --- at once ----------------------------------------------------------------------------------------------------------


@_sequence("at once", "2.6", f"of {_CROWD} requests at once under one key, one runs")
def _at_once(server: Server) -> _Judged:
    key = server.fresh()
    before = server.runs()
    answers = server.at_once(_CROWD, key)
    last = _settled(server, key)
    after = server.runs()
    done = [answer for answer in answers if answer.ok]
    counted = Counter(answer.status for answer in answers)
    told = ", ".join(f"{count} × {status}" for status, count in sorted(counted.items()))
    if before is not None and after is not None and after - before != 1:
        return Verdict.BROKEN, f"{after - before} runs: {told}"
    if not done:
        return Verdict.DIFFERS, f"nobody got a result: {told}"
    if not all(_is_replay_of(last, answer) for answer in done):
        return Verdict.BROKEN, f"different results: {_seen(*done[:3], last)}"
    if before is None and not _runs_differ(server, last):
        return Verdict.UNKNOWN, f"{told}; all answers are alike, whatever the key: give --runs-url"
    return Verdict.HOLDS, told


def _settled(server: Server, key: str) -> Answer:
    """The result, once it is there."""
    give_up_at = time.monotonic() + _PATIENCE_SECONDS
    while True:
        answer = server.quoted(key)
        if answer.status != _CONFLICT or time.monotonic() > give_up_at:
            return answer
        time.sleep(_POLL_SECONDS)


@_sequence("in progress", "2.7", "a retry while the first request runs is refused with 409")
def _in_progress(server: Server) -> _Judged:
    if server.target.slow is None:
        return Verdict.UNKNOWN, "give --slow-header: a header that makes the request take a second"
    key = server.fresh()
    first, meanwhile, was_done = _while_running(server, key, server.target.body)
    if meanwhile.ok:
        if was_done:
            return Verdict.UNKNOWN, "the request was over too soon: make --slow-header slower"
        if _is_replay_of(first, meanwhile):
            return Verdict.DIFFERS, f"it waited for the first one's result: {meanwhile.status}"
        return Verdict.BROKEN, f"it ran: {_seen(first, meanwhile)}"
    later = _settled(server, key)
    if not _is_replay_of(first, later):
        return Verdict.BROKEN, f"the refusal stuck: {_seen(first, meanwhile, later)}"
    wait = ", ".join(meanwhile.values("retry-after"))
    told = f"{meanwhile}, {f'Retry-After {wait}' if wait else 'no Retry-After'}, then the result"
    return (Verdict.HOLDS if meanwhile.status == _CONFLICT else Verdict.DIFFERS), told


def _while_running(server: Server, key: str, body: bytes) -> tuple[Answer, Answer, bool]:
    """A slow request, what is answered to another one under its key meanwhile, and whether it was over by then."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(server.quoted, key, headers=server.target.slow)
        time.sleep(_HEAD_START_SECONDS)
        was_done = running.done()
        meanwhile = server.quoted(key, body=body)
        return running.result(), meanwhile, was_done


@_sequence("other payload in progress", "2.7", "another payload gets 422 even while the first request runs")
def _other_in_progress(server: Server) -> _Judged:
    if server.target.slow is None:
        return Verdict.UNKNOWN, "give --slow-header"
    _, other, _ = _while_running(server, server.fresh(), server.target.other_body)
    if other.ok:
        return Verdict.BROKEN, f"it was carried out: {other}"
    return (Verdict.HOLDS if other.status == _UNPROCESSABLE else Verdict.DIFFERS), _seen(other)


# --- failures and callers ---------------------------------------------------------------------------------------------


@_sequence("failures", "2.7", "what a retry after a 5xx gets is the server's choice, and should be documented")
def _failures(server: Server) -> _Judged:
    if server.target.failing is None:
        return Verdict.UNKNOWN, "give --failing-header: a header that makes the request answer 5xx"
    key = server.fresh()
    failed = server.quoted(key, headers=server.target.failing)
    if failed.status < _SERVER_ERROR:
        return Verdict.UNKNOWN, f"it did not fail: {failed}"
    second, third = server.quoted(key), server.quoted(key)
    if second.ok and _is_replay_of(second, third):
        return Verdict.HOLDS, f"{failed.status}, then it ran again, once"
    if _is_replay_of(failed, second):
        return Verdict.HOLDS, f"{failed.status} is kept, and given again"
    if second.status == _CONFLICT:
        return Verdict.HOLDS, f"{failed.status}, then refused: {second}"
    return Verdict.BROKEN, _seen(failed, second, third)


@_sequence("other caller", "Security", "a key is its caller's: nobody gets another's result")
def _other_caller(server: Server) -> _Judged:
    if server.target.other_caller is None:
        return Verdict.UNKNOWN, "give --other-caller: another caller's header, such as Authorization=Bearer …"
    key = server.fresh()
    first = server.quoted(key)
    other = server.quoted(key, headers=server.target.other_caller)
    if other.values(server.target.replay_header) or (_is_replay_of(first, other) and _runs_differ(server, first)):
        return Verdict.BROKEN, f"it got the first caller's: {other}"
    return Verdict.HOLDS, f"its own, or none: {other}"
