"""Wear one process per framework: `python -m tests.chaos.wear --requests 500000 --store memory`."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from idem_middleware.upkeep import process_upkeep
from tests.chaos.__main__ import set_environment
from tests.chaos.life import Sample, driver, growth, sample
from tests.support.dynamodb_local import DynamoDBLocal, locate
from tests.support.polling import eventually
from tests.support.probes import INSTALLED_FRAMEWORKS
from tests.support.processes import Process

_SAMPLES = 20
# Of the samples, those before it is warm: caches fill, and the memory store reaches its bound.
_WARM_AFTER = 6
_MEMORY = "memory://?max_entries=2000"
# The schedule keeps a renewal for a third of a lease, whether the request has ended or not. Leases are short, and each
# look waits until the schedule is empty: what it holds is a matter of the rate, and would hide what grows.
_OPTIONS = {"lease_seconds": 3}


def main(arguments: Sequence[str] | None = None) -> int:
    """Give 0 if nothing grew, 1 if something did."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.wear", description=__doc__)
    parser.add_argument("--requests", type=int, default=500_000, help="through each framework's process")
    parser.add_argument("--store", choices=("memory", "dynamodb"), default="memory")
    parser.add_argument("--transport", choices=("boto3", "lean"), default="boto3")
    parser.add_argument("--framework", action="append", choices=INSTALLED_FRAMEWORKS, help="default: all")
    parser.add_argument("--seconds", type=float, default=1200.0, help="for each framework, at most")
    parser.add_argument("--inside", metavar="URL", help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    set_environment()
    if parsed.inside is not None:
        _live(parsed.framework[0], parsed.inside, parsed.requests, parsed.seconds)
        return 0
    failed = False
    with _store(parsed.store, parsed.transport) as url:
        for framework in parsed.framework or INSTALLED_FRAMEWORKS:
            failed |= not _wear(framework, url, parsed.requests, parsed.seconds)
    return int(failed)


def _wear(framework: str, url: str, requests: int, seconds: float) -> bool:
    began_at = time.monotonic()
    arguments = ("--framework", framework, "--requests", str(requests), "--seconds", str(seconds), "--inside", url)
    with Process.module("tests.chaos.wear", *arguments) as process:
        process.wait_for_line("done", within_seconds=seconds + 120)
        status = process.wait()
        errors = process.errors
    samples = [Sample(**json.loads(line)) for line in errors.splitlines() if line.startswith('{"requests"')]
    took = time.monotonic() - began_at
    grown = growth(samples[_WARM_AFTER:])
    last = samples[-1].requests if samples else 0
    _print(f"{framework} on {url.partition(':')[0]}: {last} requests in {took:.0f} s, exit status {status}")
    for one in (samples[0], samples[_WARM_AFTER], samples[-1]):
        _print(f"  {one.told()}")
    for what in grown:
        _print(f"  GREW {what}")
    return not grown and status == 0


def _live(framework: str, url: str, requests: int, seconds: float) -> None:
    """Be the process that is worn; samples go to standard error, a line each."""
    logging.disable(logging.CRITICAL)  # planned failures are logged by the frameworks, and their store's own retries
    until = time.monotonic() + seconds
    step = max(1, requests // _SAMPLES)
    with tempfile.TemporaryDirectory() as folder:
        life = driver(framework, url, Path(folder), _OPTIONS)
        for begin in range(0, requests, step):
            life.send(range(begin, begin + step))
            eventually(lambda: not process_upkeep()._due, what="an empty schedule")
            sys.stderr.write(sample(begin + step).told() + "\n")
            if time.monotonic() > until:
                break
        life.close()
    _print("done")


@contextmanager
def _store(kind: str, transport: str) -> Iterator[str]:
    if kind == "memory":
        yield _MEMORY
        return
    from idem_middleware import DynamoDBStore  # noqa: PLC0415  # after the environment is set

    region = "eu-central-1"
    with DynamoDBLocal(locate()) as local:
        DynamoDBStore("wear", region=region, endpoint=local.url).create_table()
        yield f"dynamodb://wear?region={region}&endpoint={local.url}&transport={transport}"


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
