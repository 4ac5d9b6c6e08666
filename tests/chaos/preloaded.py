"""gunicorn with --preload: the application, and its connections to the store, are made before the workers are forked.

`python -m tests.chaos.preloaded FRAMEWORK PORT STORE LOG THREADS`
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.chaos.life import WsgiDriver
from tests.probe.gunicorn_server import GunicornServer
from tests.probe.server import build_app
from tests.probe.settings import Settings

_WORKERS = 2
_BEFORE = 20


def main() -> int:
    """Serve until SIGTERM."""
    framework, port, store, log, threads = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            framework=framework,
            host="127.0.0.1",
            port=int(port),
            workers=_WORKERS,
            store=store,
            log=log,
            options={},
            bare=False,
            state_folder=folder,
        )
        app = build_app(settings)
        # Everything that is made with the first use is made now: connections, threads, renewals.
        driver = WsgiDriver(app, at_once=2)
        driver.send(range(_BEFORE))
        driver.close()
        parent = os.getpid()
        up = Path(folder, "up")

        def worker_is_up(_worker: object) -> None:
            with up.open("a") as file:
                file.write(f"{os.getpid()}\n")
            if len(up.read_text().splitlines()) == _WORKERS:
                sys.stdout.write(f"ready {parent}\n")
                sys.stdout.flush()

        GunicornServer(
            lambda: app,
            bind=f"127.0.0.1:{port}",
            workers=_WORKERS,
            worker_class="gthread",
            threads=int(threads),
            preload_app=True,
            loglevel="warning",
            graceful_timeout=4,
            control_socket_disable=True,
            post_worker_init=worker_is_up,
        ).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
