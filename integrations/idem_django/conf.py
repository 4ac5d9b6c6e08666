"""The setting `IDEMPOTENCY`, and the one engine that a process makes of it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from idem_django.marks import Mark
from idem_middleware.blocking.engine import Engine
from idem_middleware.errors import ConfigurationError
from idem_middleware.options import SHARED_CALLER, Options
from idem_middleware.setup import placement_problems
from idem_middleware.stores.base import Store
from idem_middleware.stores.urls import store_from_url

__all__ = ["SETTING", "Configuration", "configuration", "options_from", "store_from"]

SETTING = "IDEMPOTENCY"
STORE = "STORE"
_EXAMPLE = '"dynamodb://TABLE?region=…", or "memory://" for a single process'

# What settings write as a dotted path: a settings module can't import code that needs the apps.
_FUNCTIONS = ("caller", "claim_items", "on_claim_refused", "prober", "store_if", "before_store", "cipher")


class Configuration:
    """An engine, and its options with the overrides of each view."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.asynchronous = engine.asynchronous
        # Whoever marks a view means that view, wherever it is mounted.
        self._explicit = replace(engine.options, paths=(), exempt_paths=())
        self._merged: dict[tuple[Mark, ...], Options] = {(): engine.options}

    def options_for(self, *marks: Mark) -> Options:
        """The options in force for a view with these marks, the last one winning.

        Raises:
            ImproperlyConfigured: they don't go together with the settings.
        """
        options = self._merged.get(marks)
        if options is None:
            options = self._explicit
            try:
                for mark in marks:
                    options = options.merge(mark.overrides)
                self.engine.check(options)
            except ConfigurationError as error:
                raise ImproperlyConfigured(f"a view's own options: {error}") from error
            self._merged[marks] = options
        return options


def options_from(written: Mapping[str, Any]) -> Options:
    """The options of the setting, its store left out.

    Raises:
        ConfigurationError: all that is wrong, at once.
    """
    problems: list[str] = []
    chosen: dict[str, Any] = {}
    for name, value in written.items():
        if name.upper() == STORE:
            continue
        try:
            chosen[name] = _imported(name.lower(), value)
        except ImportError as error:
            problems.append(f"{name} can't be imported: {error}")
    try:
        options = Options.from_mapping(chosen)
    except ConfigurationError as error:
        raise ConfigurationError([*problems, *error.problems]) from error
    if problems:
        raise ConfigurationError(problems)
    return options


def store_from(written: Mapping[str, Any]) -> Store:
    """The store of the setting.

    Raises:
        ConfigurationError: there is none, or it is wrong.
    """
    given = [value for name, value in written.items() if name.upper() == STORE]
    if not given:
        raise ConfigurationError([f'"{STORE}" is missing: give {_EXAMPLE}'])
    store = given[0]
    if isinstance(store, str):
        return store_from_url(store)
    if not all(callable(getattr(store, name, None)) for name in ("create", "swap", "load")):
        raise ConfigurationError([f'"{STORE}" must be a store or its URL ({_EXAMPLE}), not {type(store).__name__}'])
    return store  # type: ignore[no-any-return]


def written_setting() -> Mapping[str, Any]:
    """The setting as it stands.

    Raises:
        ConfigurationError: there is none, or it is no dictionary.
    """
    written = getattr(settings, SETTING, None)
    if written is None:
        raise ConfigurationError([f'{SETTING} is not set: {SETTING} = {{"{STORE}": {_EXAMPLE}}}'])
    if not isinstance(written, Mapping) or not all(isinstance(name, str) for name in written):
        raise ConfigurationError([f"{SETTING} must be a dictionary of options, not {type(written).__name__}"])
    return written


def configuration() -> Configuration:
    """What the setting says, built once and shared by the process until the setting changes.

    Raises:
        ImproperlyConfigured: all that is wrong with it, at once.
    """
    global _current  # noqa: PLW0603 - the one per process
    with _lock:
        if _current is None or _current[0] is not getattr(settings, SETTING, None):
            _current = (getattr(settings, SETTING, None), _built())
        return _current[1]


_lock = threading.Lock()
_current: tuple[object, Configuration] | None = None


def _built() -> Configuration:
    problems: list[str] = []
    options, store = Options(), None
    try:
        written = written_setting()
    except ConfigurationError as error:
        raise ImproperlyConfigured(str(error)) from error
    try:
        options = options_from(written)
    except ConfigurationError as error:
        problems.extend(error.problems)
    try:
        store = store_from(written)
    except ConfigurationError as error:
        problems.extend(error.problems)
    if store is not None and not problems:
        problems.extend(placement_problems(store, options, default_caller=True))
    if problems or store is None:
        raise ImproperlyConfigured(f"{SETTING}: " + "; ".join(problems))
    return Configuration(Engine(store, options))


def _imported(name: str, value: object) -> object:
    """The value, or what its dotted path names.

    Raises:
        ImportError: it names nothing.
    """
    if name in _FUNCTIONS and isinstance(value, str) and value != SHARED_CALLER:
        return import_string(value)
    if name == "observers" and isinstance(value, (list, tuple)):
        return tuple(import_string(each) if isinstance(each, str) else each for each in value)
    return value


def _forget(*, setting: str, **_: object) -> None:
    """Tests change settings; the next handler reads them anew."""
    global _current  # noqa: PLW0603
    if setting == SETTING:
        with _lock:
            _current = None


setting_changed.connect(_forget, dispatch_uid="idem_django.conf")
