"""Write the parts of the documentation that the code knows better: `python scripts/make_docs.py`.

The pages of docs/reference (but its index), the state diagram, and the sequence of a race, which is drawn from what the
engine really does. What a person has to say about an option, an event or a refusal stands once, in the tables of
README.md and docs/operating.md, and is taken from there. A test says when this has to be run again.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import TypeVar

from idem_middleware import Engine, EventKind, MemoryStore, Options, ProblemType, errors
from idem_middleware.events import level_of
from idem_middleware.options import accepted_values
from idem_middleware.problems import Problem, problem_response
from idem_middleware.records import TRANSITIONS, Record
from idem_middleware.runtime import Runtime
from idem_middleware.stores.base import Found, Gone, Written
from idem_middleware.telemetry.cloudwatch import dimension_name, metric_name
from idem_middleware.telemetry.instruments import INSTRUMENTS, Instrument, source_of
from idem_middleware.telemetry.opentelemetry import attribute_name
from idem_middleware.testing import FaultyStore, ManualClock
from idem_middleware.upkeep import Upkeep

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[1]
_NOTE = "<!-- Made by scripts/make_docs.py: change the code, or the tables that it names, and run that. -->"
_MOST_VALUES = 16


class Table:
    """A table of Markdown under a heading: what its first column names, and the other cells."""

    def __init__(self, path: str, first_heading: str) -> None:
        lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
        start = next(n for n, line in enumerate(lines) if line.startswith(f"| {first_heading} |"))
        self.rows: dict[str, list[str]] = {}
        for line in lines[start + 2 :]:
            if not line.startswith("|"):
                break
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            for name in re.findall(r"`([a-z0-9_-]+)`", cells[0]):
                self.rows[name] = [cell.strip("| ") for cell in cells[1:]]

    def __getitem__(self, name: str) -> list[str]:
        return self.rows.get(name, ["", ""])


def _rows(*rows: tuple[str, ...]) -> Iterator[str]:
    heading, *others = rows
    yield "| " + " | ".join(heading) + " |"
    yield "|" + "---|" * len(heading)
    for row in others:
        yield "| " + " | ".join(row) + " |"


# --- reference --------------------------------------------------------------------------------------------------------


# The README's table has one row for options that belong together, or says the default in a column of its own.
_BY_ITSELF = {
    "mode": '`"observe"` decides and reports, and lets everything run; `"off"` leaves requests alone. The environment variable '
    "`IDEMPOTENCY_MODE` wins",
    "strict_key": "`True` takes only quoted keys (RFC 9651 strings)",
    "key_pattern": 'what a key must look like: `"uuid"` or a regular expression',
    "on_abandoned": 'what a retry of an abandoned attempt gets: `"retry"` runs it again, `"refuse"` answers 409 `outcome-unknown`',
    "max_waiters_per_key": "how many wait at once for one key in one engine; one more gets the 409 at once",
    "max_waiters": "how many wait at once in one engine, for whatever key; one more gets the 409 at once",
    "max_waiting_threads": "how many threads wait at once in one engine; one more gets the 409 at once",
    "tombstone_seconds": "how long an expired key is still known ([late duplicates](docs/tables.md#late-duplicates))",
    "on_expired": 'what a retry under an expired key that is still known gets: `"execute"` runs it, `"refuse"` answers 409 '
    "`key-expired` ([late duplicates](docs/tables.md#late-duplicates))",
    "on_error": 'what a 5xx or an exception means: `"retry"` runs again, `"store"` keeps a 5xx as the answer, `"refuse"` answers '
    "retries with 409 `outcome-unknown`",
    "cipher": "what [encrypts stored answers](docs/security.md#encryption), so that who writes to the table can't forge one",
    "drop_headers": "headers that a replay does not repeat, besides those that it never does",
    "keep_headers": "headers that a replay repeats though it would not by default",
    "claim_items": "a function that gives [items to write together with the claim](docs/transactions.md)",
    "on_claim_refused": "what the client gets where a condition of one of the [claim's items](docs/transactions.md) does not hold",
    "prober": "what is [asked what became of an abandoned claim](docs/transactions.md#asking-what-became-of-an-abandoned-claim)",
    "prober_seconds": "how long the prober is waited for",
}


def options() -> Iterator[str]:
    """Every option with its type and default."""
    described = Table("README.md", "option")
    yield "# Options"
    yield ""
    yield "Keyword arguments of `Options`, of the Starlette middleware and of the Flask extension. In Django's settings"
    yield '`IDEMPOTENCY = {"LEASE_SECONDS": 30}`, in Flask\'s config `IDEMPOTENCY_LEASE_SECONDS`; per view as in'
    yield "[frameworks](../frameworks.md#options-for-one-view). Wrong values and unknown names stop the start, all of them in"
    yield "one error, with the nearest right name."
    for field in fields(Options):
        yield ""
        yield f"## {field.name}"
        yield ""
        yield f"`{_type(field)}`, default {_default(field)}{_accepted(field.name)}."
        meaning = _BY_ITSELF.get(field.name, described[field.name][-1])
        if meaning:
            yield ""
            yield _sentence(meaning.replace("](docs/", "](../"))


def _type(field: Field[object]) -> str:
    return re.sub(r"\b(?:Mode|On[A-Z]\w+)\b", "str", str(field.type)).replace("re.Pattern[str]", "Pattern")


def _default(field: Field[object]) -> str:
    value = field.default_factory() if field.default_factory is not MISSING else field.default
    if isinstance(value, frozenset):
        return ", ".join(f"`{item}`" for item in sorted(value)) or "none"
    return "none" if value in (None, (), "") else f"`{value!r}`"


def _accepted(name: str) -> str:
    values = accepted_values(name)
    return f"; {values.replace(' seconds or more', ' s or more')}" if values else ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!")) else ".")


def _from_below(text: str) -> str:
    """Point the links of a page in docs/ from one in docs/reference/."""
    return re.sub(r"\]\((?=[\w-]+\.md)", "](../", text)


def events() -> Iterator[str]:
    """Every kind of event, its level, its metric."""
    meant = Table("docs/operating.md", "event")
    yield "# Events"
    yield ""
    yield "Every decision is one event: to the logger `idem_middleware` at the level given here, and to each function in"
    yield "`observers`. Its fields are `kind`, `key_digest`, `attempt`, `reason`, `status`, `seconds`, `observed` and"
    yield "`dynamo_error_code`; those that say nothing are `None`. Never a key, a token, a body, or an error's text."
    yield ""
    rows = [("event", "level", "counts in", "it means")]
    for kind in EventKind:
        instrument = next(i for i in INSTRUMENTS if kind in source_of(i))
        link = f"[`{instrument.exposed_name}`](metrics.md#{instrument.name})"
        rows.append((f"`{kind.value}`", level_of(kind), link, _from_below(meant[kind.value][0])))
    yield from _rows(*rows)


def metrics() -> Iterator[str]:
    """Every instrument, on every platform."""
    yield "# Metrics"
    yield ""
    yield "One event is one increment of one metric. Labels take their values from fixed lists; everything else is `other`."
    yield "How to switch them on: [logs, metrics, traces](../how-to/observability.md)."
    for instrument in INSTRUMENTS:
        yield ""
        yield f"## {instrument.name}"
        yield ""
        yield instrument.description
        yield ""
        yield from _rows(
            ("platform", "name", "unit"),
            ("Prometheus", _prometheus_names(instrument), ""),
            ("OpenTelemetry", f"`{instrument.dotted}`", f"`{instrument.unit}`"),
            ("CloudWatch", f"`{metric_name(instrument)}`", "Seconds" if instrument.unit == "s" else "Count"),
        )
        for label in instrument.labels:
            yield ""
            names = f"`{label.name}` (OpenTelemetry `{attribute_name(label.name)}`, CloudWatch `{dimension_name(label.name)}`)"
            shown = ", ".join(f"`{value}`" for value in label.values[:_MOST_VALUES])
            more = len(label.values) - _MOST_VALUES
            yield f"{names}: {shown}{f', and {more} more' if more > 0 else ''}."
        yield ""
        kinds = ", ".join(f"`{kind.value}`" for kind in source_of(instrument))
        yield f"Counts the {'events' if ',' in kinds else 'event'} {kinds}."


def _prometheus_names(instrument: Instrument) -> str:
    if instrument.unit != "s":
        return f"`{instrument.exposed_name}`"
    return ", ".join(f"`{instrument.name}_{ending}`" for ending in ("bucket", "count", "sum"))


def problems() -> Iterator[str]:
    """The index of the pages below."""
    advised = Table("README.md", "answer")
    yield "# Problem types"
    yield ""
    yield "Refusals are `application/problem+json` (RFC 9457). Their `type` is `urn:idem-middleware:problem:` and the name, or a"
    yield "page below `docs_url` where that is set: these pages are made to be served there."
    yield ""
    rows = [("name", "status", "what a client should do")]
    rows += [(f"[`{kind.slug}`]({kind.slug}.md)", str(kind.status), advised[kind.slug][-1]) for kind in ProblemType]
    yield from _rows(*rows)


def problem(kind: ProblemType) -> Iterator[str]:
    """The page of one type."""
    advised = Table("README.md", "answer")[kind.slug]
    retry = 1 if kind in _WITH_RETRY_AFTER else None
    answer = problem_response(Problem(kind, retry_after_seconds=retry))
    yield f"# {kind.title}"
    yield ""
    yield f"`{kind.slug}`, status {kind.status}. {_sentence(kind.detail)}"
    yield ""
    yield f"**What it means.** {_sentence(advised[0])}"
    yield ""
    yield f"**What to do.** {_sentence(advised[-1])}"
    yield ""
    yield "```http"
    yield f"HTTP/1.1 {kind.status}"
    yield from (f"{name}: {value}" for name, value in answer.headers if name != "content-length")
    yield ""
    yield json.dumps(json.loads(answer.body), indent=2)
    yield "```"
    yield ""
    yield "The server never says which key it was, and never stores this answer: the same request may get another one later."


_WITH_RETRY_AFTER = {ProblemType.IN_PROGRESS, ProblemType.RETRY_LATER, ProblemType.STORE_UNAVAILABLE}


def record() -> Iterator[str]:
    """The record, its states, its attributes."""
    stored = Table("docs/operating.md", "attribute")
    yield "# The record"
    yield ""
    yield "Under each key lies one record, written by compare-and-swap only. How it is made and read, permissions and costs:"
    yield "[running it](../operating.md)."
    yield ""
    yield "```mermaid"
    yield from state_diagram()
    yield "```"
    yield ""
    yield from _rows(
        ("transition", "from", "to", "when"),
        *((t.name, "nothing" if t.before is None else t.before.value, t.after.value, t.when) for t in TRANSITIONS),
    )
    yield ""
    yield "## Attributes"
    yield ""
    rows = [("attribute", "in Python", "it holds")]
    rows += [
        (f"`{f.name}`", f"`{str(f.type).replace(' | ', ' or ')}`", _from_below(stored[f.name][-1]))
        for f in fields(Record)
    ]
    rows.append(("`ttl`", "`int`", _from_below(stored["ttl"][-1])))
    yield from _rows(*rows)


def state_diagram() -> Iterator[str]:
    """Mermaid, from the table of transitions."""
    yield "stateDiagram-v2"
    for t in TRANSITIONS:
        yield f"    {'[*]' if t.before is None else t.before.value} --> {t.after.value}: {t.name} ({t.when})"


def raised() -> Iterator[str]:
    """Every exception."""
    yield "# Errors"
    yield ""
    yield "All derive from `IdempotencyError`. Applications behind an adapter see none of them but at the start: requests are"
    yield "answered with [problems](problems/index.md)."
    for name in errors.__all__:
        kind = getattr(errors, name)
        yield ""
        yield f"## {name}"
        yield ""
        bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
        yield f"{inspect.cleandoc(kind.__doc__)}\n\nA subclass of {bases}."


# --- drawn from what the engine does ----------------------------------------------------------------------------------


class Scene:
    """Workers that share a store, and what is said between them, as a sequence diagram."""

    def __init__(self) -> None:
        self.lines = ["sequenceDiagram"]
        self.memory = MemoryStore(clock=ManualClock(margin_seconds=2.0))

    def worker(self, name: str) -> Engine:
        """One of them; what it asks of the store is drawn."""
        store = _Drawn(self.memory, name, self.lines)
        runtime = Runtime(
            store, Options(), upkeep=Upkeep(threads=False), log=lambda event: self._tell(name, event.kind)
        )
        return Engine(store, runtime=runtime)

    def _tell(self, name: str, kind: EventKind) -> None:
        self.lines.append(f"    Note over {name}: {kind.value}")


class _Drawn(FaultyStore):
    """Draws each call and its answer."""

    def __init__(self, store: MemoryStore, name: str, lines: list[str]) -> None:
        super().__init__(store)
        self._name = name
        self._lines = lines

    def create(self, new: Record, deadline: float) -> Written | Found:
        return self._drawn("create PENDING, if nothing is there", super().create(new, deadline))

    def swap(self, old: Record, new: Record, deadline: float) -> Written | Found | Gone:
        what = f"swap to {new.status.value}, if still {old.status.value} of mine, version {old.version}"
        return self._drawn(what, super().swap(old, new, deadline))

    def _drawn(self, what: str, result: T) -> T:
        found = getattr(result, "record", None)
        shown = "written" if found is None else f"{found.status.value} stands there"
        self._lines.append(f"    {self._name}->>DynamoDB: {what}")
        self._lines.append(f"    DynamoDB-->>{self._name}: {shown}")
        return result


def race() -> Iterator[str]:
    """Two workers get the same request; later a retry comes."""
    scene = Scene()
    first, second = scene.worker("Worker 1"), scene.worker("Worker 2")
    lines = scene.lines
    lines += [
        "    participant Client",
        "    participant Worker 1",
        "    participant Worker 2",
        "    participant DynamoDB",
    ]

    def work(_lease: object) -> str:
        lines.append("    Worker 1->>Worker 1: the handler runs")
        lines.append("    Client->>Worker 2: the same request, retried too early")
        try:
            second.run_once("order-7", None, work)
        except errors.RequestRefused as refused:
            lines.append(f"    Worker 2-->>Client: {refused.problem.type.status} {refused.problem.type.slug}")
        return "done"

    lines.append("    Client->>Worker 1: POST, Idempotency-Key order-7")
    first.run_once("order-7", None, work)
    lines.append("    Worker 1--xClient: 201, which gets lost")
    lines.append("    Client->>Worker 2: the same request, retried")
    second.run_once("order-7", None, work)
    lines.append("    Worker 2-->>Client: 201, Idempotent-Replayed: true")
    yield from lines


# --- writing ----------------------------------------------------------------------------------------------------------

_BLOCKS: dict[str, tuple[str, Callable[[], Iterator[str]]]] = {
    "states": ("docs/promise.md", state_diagram),
    "race": ("docs/explanation/exactly-once.md", race),
}


def pages() -> dict[str, str]:
    """Every file that this makes, and what it should hold."""
    made = {
        "docs/reference/options.md": options(),
        "docs/reference/events.md": events(),
        "docs/reference/metrics.md": metrics(),
        "docs/reference/record.md": record(),
        "docs/reference/errors.md": raised(),
        "docs/reference/problems/index.md": problems(),
        **{f"docs/reference/problems/{kind.slug}.md": problem(kind) for kind in ProblemType},
    }
    texts = {path: f"{_NOTE}\n\n" + "\n".join(lines) + "\n" for path, lines in made.items()}
    for name, (path, draw) in _BLOCKS.items():
        text = texts.get(path) or (ROOT / path).read_text(encoding="utf-8")
        block = "```mermaid\n" + "\n".join(draw()) + "\n```\n"
        texts[path] = re.sub(
            rf"(<!-- {name}:[^>]*-->\n).*?(<!-- /{name} -->)",
            lambda found, block=block: found[1] + block + found[2],  # type: ignore[misc]
            text,
            flags=re.DOTALL,
        )
    return texts


def stale() -> list[str]:
    """The files that do not hold what they should."""
    return [path for path, text in pages().items() if not (ROOT / path).is_file() or (ROOT / path).read_text() != text]


if __name__ == "__main__":
    wrong = stale()
    if "--check" in sys.argv:
        sys.exit(f"run scripts/make_docs.py: {', '.join(wrong)}" if wrong else 0)
    texts = pages()
    for path in wrong:
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(texts[path], encoding="utf-8")
        print(path)
