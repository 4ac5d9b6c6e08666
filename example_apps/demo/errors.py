"""What keeps the demo from being played at all."""

from __future__ import annotations

__all__ = ["DemoError"]


class DemoError(Exception):
    """The message says what is missing or in the way, and what to do."""
