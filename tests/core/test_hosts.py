"""Servers in which leases could not be renewed are refused when the engine is made."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from idem_middleware import ConfigurationError, Engine
from idem_middleware.hosts import check_host


def uwsgi(monkeypatch: pytest.MonkeyPatch, /, patch: int = 26, **options: Any) -> None:
    """Be in it."""
    opt = {name.replace("_", "-").encode(): value for name, value in options.items()}
    module = SimpleNamespace(opt=opt, version_info=(2, 0, patch, 0, b""))
    monkeypatch.setitem(sys.modules, "uwsgi", module)


def gevent(monkeypatch: pytest.MonkeyPatch, *patched: str) -> None:
    """Have patched these."""
    monkeypatch.setitem(sys.modules, "gevent.monkey", SimpleNamespace(is_module_patched=patched.__contains__))


def test_uwsgi_without_threads_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the option to set."""
    uwsgi(monkeypatch, master=True)
    with pytest.raises(ConfigurationError, match="--enable-threads"):
        Engine("memory://")


@pytest.mark.parametrize("options", [{"enable_threads": True}, {"threads": b"8"}])
def test_uwsgi_with_threads_will_do(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of requests bring the others with them."""
    uwsgi(monkeypatch, **options)
    check_host()


@pytest.mark.parametrize("patch", [27, 31])
def test_a_newer_uwsgi_has_threads_without_being_asked(patch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Since 2.0.27."""
    uwsgi(monkeypatch, patch, master=True)
    check_host()


def test_a_package_of_the_same_name_is_not_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no options."""
    monkeypatch.setitem(sys.modules, "uwsgi", SimpleNamespace())
    check_host()


def test_green_sockets_without_green_threads_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waits would stop them all."""
    gevent(monkeypatch, "socket")
    with pytest.raises(ConfigurationError, match="patch_all"):
        Engine("memory://")


@pytest.mark.parametrize("patched", [(), ("socket", "threading")])
def test_all_or_nothing_will_do(patched: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Gevent may be loaded without having patched anything."""
    gevent(monkeypatch, *patched)
    check_host()
