"""Where the time of a request goes: one framework, a MemoryStore, one small JSON body, sampled by a timer.

    python -m benchmarks.profiling [--framework NAME] [--question new] [--requests N]

Every 0.7 ms of CPU time the running function is noted (POSIX only). What the standard library or Starlette does on our
account is told apart from what it does in the bare application by measuring that, too.
"""

from __future__ import annotations

import argparse
import signal
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Self

from benchmarks.measuring import hardware, versions
from benchmarks.pairs import FRAMEWORKS, Pair
from benchmarks.peers.questions import QUESTIONS, Keys

_EVERY_SECONDS = 0.0007
_WARM_UP = 2000
_SHOWN = 40


class Sampler:
    """Counts samples by function: those in which it ran itself, and those in which it was on the stack."""

    def __init__(self) -> None:
        self.samples = 0
        self.own: Counter[str] = Counter()
        self.whole: Counter[str] = Counter()

    def __enter__(self) -> Self:
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, _EVERY_SECONDS, _EVERY_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _sample(self, _signal: int, frame: FrameType | None) -> None:
        self.samples += 1
        stack: list[str] = []
        while frame is not None:
            stack.append(_named(frame))
            frame = frame.f_back
        self.own[stack[0]] += 1
        self.whole.update(set(stack))


def _named(frame: FrameType) -> str:
    """The module's file, without where it is installed, and the function in it."""
    code = frame.f_code
    parts = Path(code.co_filename).with_suffix("").parts
    for package in (
        "idem_middleware",
        "idem_starlette",
        "idem_django",
        "idem_flask",
        "starlette",
        "flask",
        "django",
        "benchmarks",
    ):
        if package in parts:
            place = ".".join(parts[len(parts) - parts[::-1].index(package) - 1 :])
            break
    else:
        place = parts[-1]
    return f"{place}:{code.co_qualname}"


def profiled(pair: Pair, question: str, requests: int, *, protected: bool) -> tuple[float, Sampler]:
    """CPU microseconds for each request, and where they went."""
    keys = Keys()
    pair.ask(question, _WARM_UP, keys, protected=protected)()
    ask = pair.ask(question, requests, keys, protected=protected)
    with Sampler() as sampler:
        began = time.process_time_ns()
        ask()
        took = time.process_time_ns() - began
    return took / requests / 1000, sampler


def main() -> None:
    """Print two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framework", default="starlette", choices=FRAMEWORKS)
    parser.add_argument("--question", default="new", choices=[name for name in QUESTIONS if name != "conflict"])
    parser.add_argument("--requests", type=int, default=60_000)
    given = parser.parse_args()
    pair, requests = Pair.of(given.framework), given.requests
    bare, _ = profiled(pair, given.question, requests, protected=False)
    took, sampler = profiled(pair, given.question, requests, protected=True)
    asked = f"{given.framework}, {given.question}, {requests} requests"
    print(f"- {hardware()}; {versions('starlette', 'flask', 'django')}; {asked}, {sampler.samples} samples")
    print(f"- bare {bare:.1f} µs, protected {took:.1f} µs: {took - bare:.1f} µs are added\n")
    for title, counts in (("with all that it calls", sampler.whole), ("itself", sampler.own)):
        print(f"| function, {title} | µs |\n|---|---:|")
        ours = [(name, count) for name, count in counts.most_common() if title == "itself" or name.startswith("idem_")]
        for name, count in ours[:_SHOWN]:
            print(f"| `{name}` | {count / sampler.samples * took:.1f} |")
        print()


if __name__ == "__main__":
    main()
