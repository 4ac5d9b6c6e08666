"""One application behind a real server, in one process.

    python -m benchmarks.serving.server VARIANT URL CORE [--plain]

ASGI applications are served by uvicorn, WSGI applications by gunicorn with threads. It says `serving PID PORT`, with
the process that answers, and serves until it is ended. A CORE of -1 is any.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from typing import Any

from benchmarks.peers.variants import VARIANTS

THREADS = 64
"""As many as requests are in flight at most."""
_KEEP_ALIVE_SECONDS = 3600
"""Connections are kept from round to round."""


def _say(port: int) -> None:
    print(f"serving {os.getpid()} {port}", flush=True)


def _by_uvicorn(app: Any, *, plain: bool) -> None:
    import uvicorn

    quick: dict[str, Any] = {"loop": "asyncio", "http": "h11"} if plain else {"loop": "uvloop", "http": "httptools"}
    config = uvicorn.Config(
        app, access_log=False, log_level="error", timeout_keep_alive=_KEEP_ALIVE_SECONDS, ws="none", **quick
    )
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        _say(listener.getsockname()[1])
        uvicorn.Server(config).run(sockets=[listener])


def _by_gunicorn(app: Any) -> None:
    from gunicorn.app.base import BaseApplication

    def ready(worker: Any) -> None:
        _say(worker.sockets[0].getsockname()[1])

    class Application(BaseApplication):  # type: ignore[misc]
        def load_config(self) -> None:
            chosen = {
                "bind": "127.0.0.1:0",
                "workers": 1,
                "worker_class": "gthread",
                "threads": THREADS,
                "keepalive": _KEEP_ALIVE_SECONDS,
                "timeout": 0,
                "loglevel": "error",
                "post_worker_init": ready,
            }
            for name, value in chosen.items():
                self.cfg.set(name, value)

        def load(self) -> Any:
            return app()

    Application().run()


def main() -> None:
    """Serve."""
    logging.disable(logging.ERROR)
    name, url, core = sys.argv[1:4]
    if int(core) >= 0:
        os.sched_setaffinity(0, {int(core)})
    variant = VARIANTS[name]
    if variant.on_a_loop:
        _by_uvicorn(variant.make(url), plain="--plain" in sys.argv)
    else:
        _by_gunicorn(lambda: variant.make(url))


if __name__ == "__main__":
    main()
