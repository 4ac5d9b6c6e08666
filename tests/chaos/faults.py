"""Who breaks things while clients are at work: by chance, the same for each seed, or by a list."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tests.chaos.fleet import KILL, RETIRE, Fleet
from tests.chaos.store import DurableDynamoDB, RunningProxy

Fault = Literal["kill", "retire", "restart", "outage"]

_WEIGHTS: dict[Fault, int] = {"kill": 45, "retire": 20, "restart": 15, "outage": 20}
_LONGEST_OUTAGE_SECONDS = 2.5


@dataclass(frozen=True, slots=True)
class Pace:
    """How long it is quiet between two faults; `script` is what happens, in place of chance."""

    least_seconds: float = 0.5
    most_seconds: float = 2.5
    script: Sequence[Fault] | None = None


class Vandal:
    """Breaks things in a thread until it is told to stop, and leaves everything whole."""

    def __init__(self, fleet: Fleet, dynamodb: DurableDynamoDB, proxy: RunningProxy, pace: Pace, seed: int) -> None:
        self._fleet = fleet
        self._dynamodb = dynamodb
        self._proxy = proxy
        self._pace = pace
        self._chance = random.Random(f"faults/{seed}")  # noqa: S311  # chosen by chance, not secret
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name="vandal", daemon=True)
        self._error: BaseException | None = None
        self.history: list[dict[str, Any]] = []
        self.finished = threading.Event()

    @property
    def counts(self) -> Counter[str]:
        """How often each fault was made."""
        return Counter(entry["fault"] for entry in self.history)

    def start(self) -> None:
        """Begin."""
        self._proxy.rage()
        self._thread.start()

    def stop(self) -> None:
        """Break nothing more, and wait until all that was broken is whole again.

        Raises:
            BaseException: what kept it from doing its work.

        """
        self._stopped.set()
        self._thread.join()
        self._proxy.calm_down()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            for fault in self._faults():
                if self._stopped.wait(self._chance.uniform(self._pace.least_seconds, self._pace.most_seconds)):
                    return
                began_at = time.monotonic()
                detail = self._make(fault)
                self.history.append({"fault": fault, "at": began_at, "over": time.monotonic(), "detail": detail})
            self.finished.set()
        except BaseException as error:  # noqa: BLE001  # it belongs to whoever stops this
            self._error = error
            self.finished.set()

    def _faults(self) -> Iterator[Fault]:
        if self._pace.script is not None:
            yield from self._pace.script
            return
        kinds = tuple(_WEIGHTS)
        while True:
            yield self._chance.choices(kinds, tuple(_WEIGHTS.values()))[0]

    def _make(self, fault: Fault) -> object:
        match fault:
            case "kill":
                return self._fleet.signal_a_worker(KILL, self._chance.random())
            case "retire":
                return self._fleet.signal_a_worker(RETIRE, self._chance.random())
            case "restart":
                machine = self._chance.randrange(self._fleet.size)
                return {"machine": machine, "status": self._fleet.restart(machine)}
            case "outage":
                self._dynamodb.stop()
                self._stopped.wait(self._chance.uniform(0.0, _LONGEST_OUTAGE_SECONDS))
                self._dynamodb.start()
                return None
