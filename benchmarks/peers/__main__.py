"""What protecting a request costs: bare, by us, by others and by hand, in one interleaved run.

    python -m benchmarks.peers [--requests N] [--rounds N] [--in-flight N …] [--only TEXT …] [--delay-ms N] [--save]

Each variant is a process of its own, in a virtual environment of its own (made under `.benchmarks/` when it is first
needed), without a server: the application is called as a server would. All of them live through the whole run and take
turns at each question, so that whatever else the machine does hits all alike. The cost is the CPU time of the variant's
whole process. DynamoDB is the stub, which remembers what is written and reckons capacity units from the items' sizes,
those of failed writes included; with --dynamodb-local it is Amazon's, and nothing is counted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.request import urlopen

from benchmarks.measuring import add_run_options, hardware, load, save, stub, today
from benchmarks.peers.environments import ROOT, installed, interpreter, variables
from benchmarks.peers.questions import QUESTIONS
from benchmarks.peers.results import Cell, Results, tables
from benchmarks.peers.variants import VARIANTS, Variant

IN_FLIGHT = (1, 16, 64)


class Worker:
    """One variant in its process."""

    def __init__(self, variant: Variant, url: str, stack: ExitStack) -> None:
        self.variant = variant
        command = [interpreter(variant.environment), "-m", "benchmarks.peers.worker", variant.name, url]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=variables()
        )
        stack.callback(self._process.wait, 10)
        stack.callback(self._process.terminate)
        self._line()

    def carry_out(
        self, question: str, requests: int, in_flight: int, counted: str | None
    ) -> tuple[dict[str, Any], dict[str, int]]:
        """Send an order; its cost, and what it asked of DynamoDB."""
        url = counted if self.variant.on_table else None
        self._order("prepare", question=question, requests=requests)
        before = counts(url)
        cost = self._order("measure", in_flight=in_flight)
        after = counts(url)
        self._order("put_away")
        return cost, {name: after[name] - before[name] for name in after}

    def _order(self, part: str, **given: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([part, given]) + "\n")
        self._process.stdin.flush()
        return self._line()

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.variant.name} has ended; look at what it said")
        found: dict[str, Any] = json.loads(line)
        return found


def counts(url: str | None) -> dict[str, int]:
    """What the stub was asked so far; nothing of a DynamoDB that does not tell."""
    if url is None:
        return {}
    with urlopen(f"{url}/counts") as answer:  # noqa: S310  # loopback
        found: dict[str, Any] = json.load(answer)
    return {name: found[name] for name in ("calls", "write_units", "read_units")}


def measure(
    workers: Sequence[Worker], widths: Sequence[int], requests: int, rounds: int, counted: str | None
) -> Results:
    """Let them take turns at each question; the order changes from round to round."""
    cells: dict[tuple[str, int, str], Cell] = {}
    for number in range(-1, rounds):  # the first is to warm up
        for question in QUESTIONS.values():
            able = [worker for worker in workers if question.name in worker.variant.questions]
            first = number % max(1, len(able))
            for width in widths:
                asked = max(width, requests // question.share)
                for worker in (*able[first:], *able[:first]):
                    cost, taken = worker.carry_out(question.name, asked, width, counted)
                    if number >= 0:
                        cells.setdefault((question.name, width, worker.variant.name), Cell()).note(cost, asked, taken)
    results: Results = {}
    for (asked_for, width, variant), cell in cells.items():
        results.setdefault(asked_for, {}).setdefault(str(width), {})[variant] = cell.as_json()
    return results


@contextmanager
def dynamodb_local() -> Iterator[str]:
    """Amazon's own, with the tables of all variants; its URL."""
    import boto3  # noqa: PLC0415  # where it is asked for

    from benchmarks.dynamodb.tables import KEYS  # noqa: PLC0415
    from idem_middleware.testing.dynamodb_local import DynamoDBLocal  # noqa: PLC0415

    with DynamoDBLocal.find() as server:
        client = boto3.client(
            "dynamodb",
            endpoint_url=server.url,
            region_name="eu-central-1",
            aws_access_key_id="stub",
            aws_secret_access_key="stub",  # noqa: S106  # opens nothing
        )
        for table, key in zip(("keys", "powertools", "idemkit"), KEYS, strict=True):
            client.create_table(
                TableName=table,
                KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
            )
        yield server.url


def chosen(only: Sequence[str]) -> list[Variant]:
    """The variants whose name has one of these texts in it."""
    return [variant for variant in VARIANTS.values() if not only or any(text in variant.name for text in only)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a report, and keep it if asked."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_run_options(parser, requests=32, rounds=11)
    parser.add_argument("--in-flight", type=int, nargs="+", default=list(IN_FLIGHT), help="at a time")
    parser.add_argument("--only", nargs="+", default=[], help="variants whose name has this in it")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="how long the stub takes for an answer")
    parser.add_argument("--dynamodb-local", action="store_true", help="instead of the stub")
    given = parser.parse_args(arguments)
    variants = chosen(given.only)
    environments = sorted({variant.environment for variant in variants})
    told = "; ".join(f"{name}: {installed(name)}" for name in environments)
    began = load()
    with ExitStack() as stack:
        delay = f"{given.delay_ms:g}"
        url = stack.enter_context(dynamodb_local() if given.dynamodb_local else stub("--delay-ms", delay, "--remember"))
        workers = [Worker(variant, url, stack) for variant in variants]
        counted = None if given.dynamodb_local else url
        results = measure(workers, given.in_flight, given.requests, given.rounds, counted)
    command = f"--requests {given.requests} --rounds {given.rounds}"
    command += f" --in-flight {' '.join(map(str, given.in_flight))} --delay-ms {delay}"
    command += " --dynamodb-local" * given.dynamodb_local
    lines = [
        f"# Peers, {today()}",
        "",
        f"- {hardware()}; {began}",
        f"- {told}",
        f"- `python -m benchmarks.peers {command}`",
        "- Calls and capacity units are per request, from the stub: reckoned from the sizes of items, those of failed",
        "  writes by what stands there, as Amazon bills them.",
        *tables(results, VARIANTS),
    ]
    print("\n".join(lines))
    if given.save:
        save("peers" + "-local" * given.dynamodb_local, lines, results)


if __name__ == "__main__":
    os.chdir(ROOT)
    main()
