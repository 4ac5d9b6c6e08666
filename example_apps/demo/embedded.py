"""A DynamoDB for the demo: moto's server, one request after another.

Moto's tables are not safe under threads: two conditional writes at the same time may both succeed. Its own server
has a thread for each connection; here the same application has one thread for all, so that a condition holds.
"""

from __future__ import annotations

import argparse
import os

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

__all__ = ["main"]


def main() -> None:
    """Serve until it is stopped."""
    parser = argparse.ArgumentParser(prog="python -m example_apps.demo.embedded")
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    os.environ.setdefault("MOTO_PORT", str(port))
    run_simple("127.0.0.1", port, DomainDispatcherApplication(create_backend_app), threaded=False)


if __name__ == "__main__":
    main()
