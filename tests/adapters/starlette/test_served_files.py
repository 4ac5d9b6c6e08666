"""Files and generators, as Starlette's own responses send them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from idem_starlette import IdempotencyMiddleware
from tests.adapters.support.asgi import Connection
from tests.adapters.support.worlds import World

pytestmark = pytest.mark.anyio

CONTENT = bytes(range(256)) * 1000


def protected(world: World, answer: Any) -> Starlette:
    """An application whose only view answers this."""

    async def view(request: Request) -> Response:
        made: Response = answer()
        return made

    app = Starlette(routes=[Route("/", view, methods=["POST"])])
    app.add_middleware(IdempotencyMiddleware, engine=world.engine)
    return app


async def twice(app: Any, **request: Any) -> tuple[Connection, Connection]:
    """The same request twice; it is replayed with the same bytes and headers."""
    first, again = await Connection(app, **request).run(), await Connection(app, **request).run()
    assert (again.status, again.body, again.is_replay) == (first.status, first.body, True)
    framing = ("content-length", "idempotent-replayed")
    kept = [pair for pair in first.headers if pair[0] not in framing]
    assert [pair for pair in again.headers if pair[0] not in framing] == kept
    return first, again


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of more than one piece."""
    path = tmp_path / "receipt.bin"
    path.write_bytes(CONTENT)
    return path


@pytest.mark.parametrize("offers", [None, {"http.response.pathsend": {}}], ids=["no offers", "pathsend"])
async def test_a_file_is_replayed_whoever_would_send_it(world: World, file: Path, offers: Any) -> None:
    """A server that offers to send files by itself is not asked to: it would bypass the record."""
    scope = {} if offers is None else {"extensions": offers}
    first, again = await twice(protected(world, lambda: FileResponse(file, filename="receipt.bin")), **scope)
    assert first.body == CONTENT
    assert again.header("content-length") == str(len(CONTENT))


async def test_a_part_of_a_file_is_replayed_as_that_part(world: World, file: Path) -> None:
    """Status and range are those of the first answer."""
    first, _ = await twice(protected(world, lambda: FileResponse(file)), headers=[("range", "bytes=0-99")])
    if first.status == 206:  # Starlette knows ranges since 0.39
        assert first.body == CONTENT[:100]


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_generator_of_either_kind_is_replayed_whole(world: World, kind: str) -> None:
    """In many pieces, some of them empty."""

    async def asynchronous() -> AsyncIterator[bytes]:
        for number in range(100):
            yield b"%d," % number if number % 3 else b""

    def answer() -> Response:
        pieces: Any = asynchronous() if kind == "async" else (b"%d," % n if n % 3 else b"" for n in range(100))
        return StreamingResponse(pieces, media_type="text/csv")

    first, _ = await twice(protected(world, answer))
    assert first.body.startswith(b"1,2,4,")


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_a_redirect_is_replayed_with_its_target(world: World, status: int) -> None:
    """In whatever letters."""
    first, again = await twice(protected(world, lambda: RedirectResponse("/bestätigt?a=1", status)))
    assert again.header("location") == first.header("location")
    assert first.status == status
