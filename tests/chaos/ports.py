"""Ports for servers that stop and start again while others try to reach them."""

from __future__ import annotations

import random
import socket
from contextlib import closing

from tests.support.ports import LOOPBACK

# Below the range from which the kernel takes ports for outgoing connections: while the server is down none of these
# can take its port away, nor can a client that tries to reach it be connected to itself.
_LEAST, _MOST = 12000, 30000
_TRIES = 200


def lasting_port() -> int:
    """Give a port that was free a moment ago.

    Raises:
        OSError: there is none.

    """
    for _ in range(_TRIES):
        port = random.randint(_LEAST, _MOST)  # noqa: S311  # any will do
        with closing(socket.socket()) as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return port
    raise OSError("no free port")
