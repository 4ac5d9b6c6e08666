"""Free ports on loopback."""

from __future__ import annotations

import socket
from contextlib import closing

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """Give a port that was free a moment ago; whoever binds it must be ready to lose the race."""
    with closing(socket.socket()) as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def accepts_connections(port: int) -> bool:
    """Whether something listens there."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True
