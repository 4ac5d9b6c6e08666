"""Whether the server that this process runs in lets background threads work.

Leases are renewed, and late answers recorded, beside the requests. Where that can't happen, a long request loses its
lease and may run twice; so such a process must not start.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from idem_middleware.errors import ConfigurationError

__all__ = ["check_host"]

_UWSGI_WITH_THREADS = (2, 0, 27)
"""The first release that enables threads by default (its changelog); in it `--enable-threads` changes nothing."""


def check_host() -> None:
    """Refuse a server in which leases could not be renewed.

    Raises:
        ConfigurationError: an old uWSGI without threads; gevent that has patched sockets but not threads.
    """
    problems = [*_uwsgi_problems(), *_gevent_problems()]
    if problems:
        raise ConfigurationError(problems)


def _uwsgi_problems() -> Iterator[str]:
    """Its own module is loaded before any application, and has its version and options."""
    uwsgi = sys.modules.get("uwsgi")
    options, version = getattr(uwsgi, "opt", None), getattr(uwsgi, "version_info", (0,))
    if not isinstance(options, dict) or version[:3] >= _UWSGI_WITH_THREADS:
        return
    names = {name.decode() if isinstance(name, bytes) else name for name in options}
    if not names & {"enable-threads", "threads"}:
        yield "uWSGI runs no background threads, so no lease would be renewed: start it with --enable-threads"


def _gevent_problems() -> Iterator[str]:
    """With native locks one green thread that waits for another stops all of them, for ever."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is None:
        return
    is_patched = monkey.is_module_patched
    if is_patched("socket") and not is_patched("threading"):
        yield "gevent has patched sockets but not threads: call gevent.monkey.patch_all() as it is, before all imports"
