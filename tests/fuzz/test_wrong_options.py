"""Whatever is written as an option works, or is refused at start by a sentence that names it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from idem_middleware import Engine, MemoryStore, Options, store_from_url
from idem_middleware.errors import ConfigurationError
from idem_middleware.messages import Request, Response

VALUES: tuple[Any, ...] = (
    None, "", b"", "x", b"x", 0, -1, 1, 1.5, float("nan"), float("inf"), 10**400, -(10**400), True, False,
    [], {}, set(), (), ["x"], [[]], [None], [1], [b"x"], {"a": 1}, object(), lambda: 0, lambda request: None, int,
    re.compile("a"), re.compile(b"a"), [re.compile("a")], [re.compile(b"a")], "(", "a" * 10_000, "\xe9", "\ud800",
    ["/\ud800"], range(3), "post", ["POST"], ["get"], ["POST\n"], "60", 3 + 4j, memoryview(b"a"),
    "https://docs.example", "https://docs.example/\n", "a\nb", ["a\n"], ["/a"], "uuid", "shared", "fingerprint",
    "refuse",
)  # fmt: skip


@pytest.mark.parametrize("name", Options.names())
def test_a_value_works_or_is_refused_at_start(name: str) -> None:
    """Never another exception than ConfigurationError, and never one that comes only with the first request."""
    for value in VALUES:
        try:
            options = Options.from_mapping({name: value})
            engine = Engine(MemoryStore(), options)
        except ConfigurationError as error:
            assert name in str(error), value  # noqa: PT017 - the others must come out
            continue
        request = Request(method="POST", path="/a", headers=(("idempotency-key", "k"), ("content-type", "a/json")))
        for _ in range(2):
            assert engine.run(request, lambda lease: Response(200)).status < 500, (name, value)


@pytest.mark.parametrize("url", [None, 5, b"memory://", ["memory://"], "", "memory", "redis://x", "dynamodb://\ud800"])
def test_a_store_that_is_none_is_refused_at_start(url: Any) -> None:
    """What should be a URL, and is something else."""
    with pytest.raises(ConfigurationError):
        store_from_url(url)
