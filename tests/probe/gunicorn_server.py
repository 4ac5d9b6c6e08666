"""gunicorn, set up by code instead of a command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gunicorn.app.base import BaseApplication


class GunicornServer(BaseApplication):  # type: ignore[misc]  # gunicorn ships no types
    """Serves the app that `build` gives; it is called in each worker, after the fork."""

    def __init__(self, build: Callable[[], Any], **settings: Any) -> None:
        self._build = build
        self._settings = settings
        super().__init__()

    def load_config(self) -> None:
        """Take the settings that this gunicorn knows: some exist in newer releases only."""
        for name, value in self._settings.items():
            if name in self.cfg.settings:
                self.cfg.set(name, value)

    def load(self) -> Any:
        """Build the app; gunicorn asks for it in each worker."""
        return self._build()
