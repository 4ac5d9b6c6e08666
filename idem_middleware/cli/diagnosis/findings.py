"""What a check says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Circumstances", "Finding", "Light", "worst"]


class Light(StrEnum):
    """How it stands. Grey was not checked, and counts for nothing."""

    GREEN = "green"
    YELLOW = "yellow"
    RED = "red"
    GREY = "grey"


_ORDER = (Light.RED, Light.YELLOW, Light.GREEN, Light.GREY)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the checklist: what was checked, what was found, and how to mend it."""

    check: str
    light: Light
    found: str
    mend: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What neither the table nor the options tell, in seconds; None where it was not given."""

    retry_horizon_seconds: float | None = None
    redrive_seconds: float = 0.0
    server_timeout_seconds: float | None = None
    balancer_timeout_seconds: float | None = None
    production: bool = True
    default_caller: str | None = None


def worst(findings: Iterable[Finding]) -> Light:
    """The light of all of them together."""
    lights = {finding.light for finding in findings}
    return next((light for light in _ORDER if light in lights), Light.GREY)
