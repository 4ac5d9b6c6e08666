"""Judges a history by the promises alone: a pure function that knows nothing of how the product works.

What the product says of itself (its events) never acquits it of a second run too early, and of none at all where the
options refuse second runs; it only tells a lost lease from a run without any reason.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.chaos.history import End, Gone, History, Run, Told, Try

# The product's words for: this attempt's lease, or the record of its answer, may be lost.
_LOST_LEASE = frozenset({"lease_lost", "abandoned", "executed_not_recorded"})

_TEMPORARY = frozenset({(409, "in-progress"), (409, "retry-later"), (503, "store-unavailable")})
_UNKNOWN = (409, "outcome-unknown")
_NOT_STORED = (409, "response-not-stored")
_SHOWN_LINES = 12
_LAST_MOMENT_SECONDS = 1.0  # between the end of the last handler and that of its process


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise, and the lines of the histories that show it."""

    promise: str
    subject: tuple[str | None, str]
    what: str
    evidence: tuple[object, ...] = ()

    def __str__(self) -> str:
        lines = "".join(f"\n    {line}" for line in self.evidence[:_SHOWN_LINES])
        return f"{self.promise}: key {self.subject[1]} of caller {self.subject[0]}: {self.what}{lines}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found. `reasons` counts second runs by their reason, `exceptions` what the documents name as limits."""

    violations: tuple[Violation, ...]
    reasons: Counter[str] = field(default_factory=Counter)
    exceptions: Counter[str] = field(default_factory=Counter)


def check(history: History) -> Verdict:
    """Judge a whole history."""
    return _Judge(history).verdict()


@dataclass(frozen=True, slots=True)
class _Case:
    """All that is known of one caller's key."""

    subject: tuple[str | None, str]
    tries: Sequence[Try]
    runs: Sequence[Run]
    told: Sequence[Told]


class _Judge:
    def __init__(self, history: History) -> None:
        self._history = history
        self._policy = history.policy
        self._tries = {one.id: one for one in history.tries}
        self._ends: dict[str, End] = {end.id: end for end in history.ends}
        self._gone: dict[int, Gone] = {gone.pid: gone for gone in history.gone}
        self._ran = {run.id for run in history.runs}
        self._reasons: Counter[str] = Counter()
        self._exceptions: Counter[str] = Counter()

    def verdict(self) -> Verdict:
        found = list(self._whole())
        for case in self._cases():
            for rule in (
                self._one_request_runs,
                self._runs_are_bounded,
                self._one_answer,
                self._answers_are_ones_own,
                self._replays_are_marked,
                self._answers_are_explained,
                self._nothing_is_stuck,
                self._nothing_is_lost,
            ):
                found.extend(rule(case))
        return Verdict(tuple(found), self._reasons, self._exceptions)

    def _cases(self) -> Iterator[_Case]:
        tries: defaultdict[tuple[str | None, str], list[Try]] = defaultdict(list)
        runs: defaultdict[tuple[str | None, str], list[Run]] = defaultdict(list)
        told: defaultdict[str, list[Told]] = defaultdict(list)
        for one in self._history.tries:
            tries[one.subject].append(one)
        for run in self._history.runs:
            if run.id in self._tries:
                runs[self._tries[run.id].subject].append(run)
        for event in self._history.told:
            if event.digest is not None:
                told[event.digest].append(event)
        for subject, every in tries.items():
            yield _Case(subject, every, runs[subject], told[every[0].digest])

    # --- of the whole history ---

    def _whole(self) -> Iterator[Violation]:
        nobody = (None, "-")
        for run in self._history.runs:
            if run.id not in self._tries:
                yield Violation("what runs was asked for", nobody, "a handler ran for no request", (run,))
        for identity, times in Counter(run.id for run in self._history.runs).items():
            if times > 1 and identity in self._tries:
                one = self._tries[identity]
                yield Violation("bounded runs", one.subject, f"one request ran its handler {times} times", (one,))
        began = Counter(run.name for run in self._history.runs)
        for name, times in self._history.logged.items():
            if times > began[name]:
                what = f"{name} ran {times} times by the log and {began[name]} times by the trail"
                yield Violation("what runs was asked for", nobody, what)
        for event in self._history.told:
            if event.event == "internal_error":
                yield Violation("no errors of its own", nobody, "the product logged an exception", (event,))

    # --- of one key ---

    def _one_request_runs(self, case: _Case) -> Iterator[Violation]:
        """Under one key only one request runs, whatever else comes with that key."""
        if len({(self._tries[run.id].request, run.body) for run in case.runs}) > 1:
            yield _violation("one request a key", case, "different requests ran", case.runs)
        for run in case.runs:
            if run.body != self._tries[run.id].body:
                yield _violation("one request a key", case, "the handler saw another body", [run, self._tries[run.id]])

    def _runs_are_bounded(self, case: _Case) -> Iterator[Violation]:
        """Each run but the first needs a reason of its own, which is that of the run before."""
        for earlier, later in pairwise(case.runs):
            reason, what = self._reason(case, earlier, later)
            if reason is None:
                evidence = [earlier, self._ends.get(earlier.id), self._gone.get(earlier.pid), later, *case.told]
                yield _violation("bounded runs", case, what, [line for line in evidence if line is not None])
            else:
                self._reasons[reason] += 1

    def _reason(self, case: _Case, earlier: Run, later: Run) -> tuple[str | None, str]:
        if self._policy.on_error == "retry" and self._failed(earlier):
            return "failed", ""
        if self._policy.on_abandoned == "refuse":
            return None, f"run {len(case.runs)} times, although second runs are refused"
        lost = [event for event in case.told if event.pid == earlier.pid and self._tells_of_loss(event, earlier)]
        crashed = self._crashed(earlier) and not self._is_recorded(case, earlier)
        if not lost and not crashed:
            return None, "ran again without a crash, a lost lease or a failure of the run before"
        after = later.at - earlier.arrived_at
        if after < self._policy.lease_seconds:
            return None, f"ran again {after:.3f} s after a request whose lease was longer than that"
        return ("crashed" if crashed else "lost lease"), ""

    def _failed(self, run: Run) -> bool:
        end = self._ends.get(run.id)
        if end is not None:
            return end.status is None or end.status >= 500
        # Its process ended before it could tell; the handler had time to fail, and its failure may be recorded.
        gone, one = self._gone.get(run.pid), self._tries[run.id]
        return one.fails and (gone is None or gone.at >= run.at + one.delay)

    def _crashed(self, run: Run) -> bool:
        gone = self._gone.get(run.pid)
        return gone is not None and gone.at >= run.at

    def _is_recorded(self, case: _Case, run: Run) -> bool:
        """Whether the application finished this run, and nothing was said against its record."""
        end = self._ends.get(run.id)
        return end is not None and end.status is not None and not self._is_unrecorded(case, run)

    @staticmethod
    def _tells_of_loss(event: Told, run: Run) -> bool:
        loses = event.event in _LOST_LEASE or (event.event == "store_failed" and event.reason == "recording")
        return loses and event.at >= run.arrived_at

    @staticmethod
    def _is_unrecorded(case: _Case, run: Run) -> bool:
        """Whether its process said that the answer of this run is not, or not yet, recorded."""
        return any(
            event.pid == run.pid
            and event.at >= run.at
            and (
                event.event == "executed_not_recorded"
                or (event.event == "store_failed" and event.reason == "recording")
            )
            for event in case.told
        )

    def _one_answer(self, case: _Case) -> Iterator[Violation]:
        """All who got a successful answer got the same one."""
        answers = {(one.answer_of, one.status, one.answer): one for one in case.tries if one.succeeded}
        makers = {maker for maker, _, _ in answers}
        if len(answers) > len(makers):
            yield _violation("one answer", case, "one run has answers that differ", answers.values())
        if len(makers) <= 1:
            return
        unrecorded = [run for run in case.runs if run.id in makers and self._is_unrecorded(case, run)]
        if self._policy.on_abandoned == "retry" and len(unrecorded) >= len(makers) - 1:
            # The documented limit: executed, shown, and impossible to record; then it runs again.
            self._exceptions["answered before it could be recorded, and run again"] += 1
            return
        yield _violation("one answer", case, f"{len(makers)} different successful answers", answers.values())

    def _answers_are_ones_own(self, case: _Case) -> Iterator[Violation]:
        """An answer is that of the same caller's same request, and of a handler that ran."""
        for one in case.tries:
            if not one.succeeded:
                continue
            maker = self._tries.get(one.answer_of or "")
            if maker is None or maker.id not in self._ran:
                yield _violation("one's own answer", case, "an answer that no handler made", [one])
            elif (maker.subject, maker.request) != (one.subject, one.request):
                yield _violation("one's own answer", case, "an answer for another caller or request", [one, maker])

    @staticmethod
    def _replays_are_marked(case: _Case) -> Iterator[Violation]:
        for one in case.tries:
            if one.succeeded and one.replayed != (one.answer_of != one.id):
                what = "a first answer is marked as a replay" if one.replayed else "a replay is not marked"
                yield _violation("replays are marked", case, what, [one])

    def _answers_are_explained(self, case: _Case) -> Iterator[Violation]:
        for one in case.tries:
            if one.outcome == "answered" and not one.succeeded and not self._is_explained(case, one):
                yield _violation("every answer has its reason", case, f"{one.status} {one.problem}", [one])

    def _is_explained(self, case: _Case, one: Try) -> bool:
        kind = (one.status or 0, one.problem or "")
        if kind in _TEMPORARY:
            return True
        if kind == _UNKNOWN:
            return "refuse" in (self._policy.on_abandoned, self._policy.on_error)
        if kind == _NOT_STORED:
            return one.streams and any(other.outcome != "answered" for other in case.tries)
        others = [other for other in case.tries if other.sent_at < one.ended_at]
        if kind == (422, "key-reused"):
            return any(other.request[:2] != one.request[:2] for other in others)
        if kind == (422, "credentials-changed"):
            return any(other.credentials != one.credentials for other in others)
        of_handler = one.status == 500 and one.problem is None and one.id in self._ran
        return of_handler and (one.fails or self._was_cut_off(case, one))

    def _was_cut_off(self, case: _Case, one: Try) -> bool:
        """Whether its server, which was leaving, cancelled the handler and answered for it: a documented limit."""
        end = self._ends.get(one.id)
        if end is None or end.status is not None:
            return False
        gone = self._gone.get(end.pid)
        if gone is None or gone.at - end.at > _LAST_MOMENT_SECONDS:
            return False
        told = any(event.event == "abandoned" and event.pid == end.pid and event.at <= end.at for event in case.told)
        if told:
            self._exceptions["cancelled by a server that was leaving"] += 1
        return told

    def _nothing_is_stuck(self, case: _Case) -> Iterator[Violation]:
        """When all is quiet and the last lease is over, every request gets a final answer."""
        last = self._last_quiet(case)
        if not last:
            yield _violation("nothing is stuck", case, "never asked for when all was quiet", case.tries[-1:])
        for one in last.values():
            if one.outcome == "answered" and (one.status or 0, one.problem or "") not in _TEMPORARY:
                continue
            if (one.status, one.problem) == (409, "in-progress") and self._was_locked_by_a_wrong_clock(case):
                self._exceptions["claimed by a wrong clock, in a process that was killed before it knew"] += 1
                continue
            yield _violation("nothing is stuck", case, "no final answer when all was quiet", [one, *case.runs])

    def _was_locked_by_a_wrong_clock(self, case: _Case) -> bool:
        """Whether a process asked for this key that was ahead by more than a lease, never heard so, and is gone."""
        ahead = {machine for machine, offset in self._history.clocks.items() if offset > self._policy.lease_seconds}
        corrected = {event.pid for event in self._history.told if event.event == "clock_skewed"}
        wrong = {up.pid for up in self._history.ups if up.machine in ahead} - corrected
        return any(event.pid in wrong and event.pid in self._gone for event in case.told)

    def _nothing_is_lost(self, case: _Case) -> Iterator[Violation]:
        """What was acknowledged is there in the end."""
        last = self._last_quiet(case)
        for request in {one.request for one in case.tries if one.succeeded}:
            at_last = last.get(request)
            if at_last is None or at_last.succeeded:
                continue
            acknowledged = [one for one in case.tries if one.succeeded and one.request == request]
            makers = {one.answer_of for one in acknowledged}
            if all(self._is_unrecorded(case, run) for run in case.runs if run.id in makers):
                self._exceptions["answered before it could be recorded, and not known later"] += 1
                continue
            yield _violation("nothing acknowledged is lost", case, "gone in the end", [*acknowledged, at_last])

    @staticmethod
    def _last_quiet(case: _Case) -> dict[tuple[str, str, str | None], Try]:
        return {one.request: one for one in case.tries if one.quiet}


def _violation(promise: str, case: _Case, what: str, evidence: Iterable[Any]) -> Violation:
    return Violation(promise, case.subject, what, tuple(evidence))
