"""A body that can't be kept, because the folder for temporary files is full: nothing is claimed, and nothing runs."""

from __future__ import annotations

import errno
from typing import BinaryIO

import pytest

from idem_middleware import body
from tests.isolation.homes import HOMES, Home

LARGE = b"x" * (body.SPOOL_BYTES + 1)


@pytest.mark.parametrize("home", HOMES.values(), ids=HOMES)
def test_without_room_for_its_body_a_request_is_refused(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a 4xx or 5xx, in whatever way the framework says that a request can't be read."""

    def no_room() -> BinaryIO:
        raise OSError(errno.ENOSPC, "No space left on device")

    with home() as house:
        assert house.send("ann-1", body=LARGE).status == 201
        monkeypatch.setattr(body, "TemporaryFile", no_room)
        house.calls  # noqa: B018 - forgets them
        try:
            status = house.send("ann-1", key="another", body=LARGE).status
        except OSError:
            status = 500  # what the server makes of it
        assert status >= 400
        assert (house.runs, house.calls) == (["ann-1"], [])
        monkeypatch.undo()
        assert house.send("ann-1", key="another", body=LARGE).status == 201
