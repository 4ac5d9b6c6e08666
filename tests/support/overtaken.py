"""What happens to whoever comes second, without any chance in it."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

__all__ = ["Overtaken"]


class Overtaken:
    """Stands in for a lock; whoever takes it first finds that somebody else was quicker, who has done this."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self._meanwhile: Callable[[], object] | None = meanwhile
        self.seen: object = None

    def __enter__(self) -> None:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            self.seen = meanwhile()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Nothing is held."""
