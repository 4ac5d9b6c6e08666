"""Finding the configuration of a service in its own code, whatever framework it uses. None is imported for that."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from idem_middleware.engine_base import BaseEngine
from idem_middleware.errors import ConfigurationError
from idem_middleware.options import Options
from idem_middleware.setup import build
from idem_middleware.stores.base import Store
from idem_middleware.stores.urls import store_from_url

__all__ = ["Configured", "application"]

_DJANGO = "the authenticated user (Django's default)"
_STORE = "store"


@dataclass(frozen=True, slots=True)
class Configured:
    """What a service is set to. `default_caller` says who is the caller where none is configured."""

    store: Store
    options: Options
    default_caller: str | None = None


def application(path: str) -> Configured:
    """Import `MODULE`, `MODULE:NAME` or `MODULE:NAME()`, and find what is configured there.

    A module is Django's settings (with IDEMPOTENCY), or has exactly one thing that is configured. A name is an
    application of Starlette, FastAPI, Flask or WSGI with the middleware on it, an engine, or a dictionary of options.

    Raises:
        ConfigurationError: it can't be imported, nothing is configured there, or that is wrong.

    """
    module_name, _, attribute = path.partition(":")
    # As servers do: the service's own code is where the command is run.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module: Any = import_module(module_name)
    except ConfigurationError:
        raise
    except Exception as error:
        raise ConfigurationError([f"{module_name} can't be imported: {type(error).__name__}: {error}"]) from error
    value = _named(module, module_name, attribute) if attribute else module
    found = next(_found(value), None)
    if found is None and not attribute:
        each = (next(_found(member), None) for name, member in vars(module).items() if not name.startswith("_"))
        found = next((configured for configured in each if configured is not None), None)
    if found is None:
        raise ConfigurationError(
            [f"nothing of idem-middleware is configured in {path}: name an application, an engine or Django's settings"]
        )
    return found


def _named(module: Any, module_name: str, attribute: str) -> Any:
    name = attribute.removesuffix("()")
    try:
        value = getattr(module, name)
    except AttributeError:
        raise ConfigurationError([f"{module_name} has no {name}"]) from None
    return value() if attribute.endswith("()") else value


def _found(value: Any) -> Iterator[Configured]:
    """What this object is set to, by every way in which it may tell."""
    if isinstance(value, BaseEngine):
        yield Configured(value.store, value.options)
    settings = getattr(value, "IDEMPOTENCY", None)
    if isinstance(settings, Mapping):
        yield _of_mapping(settings, _DJANGO)
    if isinstance(value, Mapping) and any(str(name).lower() == _STORE for name in value):
        yield _of_mapping(value, None)
    engine, options = getattr(value, "engine", None), getattr(value, "options", None)
    if isinstance(engine, BaseEngine) and isinstance(options, Options):
        yield Configured(engine.store, options)
    extensions = getattr(value, "extensions", None)  # Flask
    if isinstance(extensions, Mapping):
        for extension in extensions.values():
            yield from _found(extension)
    for middleware in _listed(value):  # Starlette, FastAPI
        if issubclass_of_ours(middleware.cls):
            given = dict(middleware.kwargs)
            engine, options = build(given.pop(_STORE, None), given.pop("engine", None), given)
            yield Configured(engine.store, options)
    inner = getattr(value, "wsgi_app", None)  # what is wrapped around a Flask application
    if inner is not None and not callable(getattr(value, "init_app", None)):
        with suppress(RecursionError):
            yield from _found(inner)


def _listed(value: Any) -> list[Any]:
    listed = getattr(value, "user_middleware", None)
    return [each for each in listed if hasattr(each, "kwargs")] if isinstance(listed, list) else []


def issubclass_of_ours(kind: object) -> bool:
    """Whether this is one of our adapters' classes."""
    return isinstance(kind, type) and any(base.__module__.startswith("idem_") for base in kind.__mro__)


def _of_mapping(settings: Mapping[Any, Any], default_caller: str | None) -> Configured:
    """A dictionary as Django's setting is; dotted paths stay what they are, and stand for the functions they name."""
    written = {str(name).lower(): value for name, value in settings.items()}
    store = written.pop(_STORE, None)
    for name in ("caller", "store_if", "before_store"):
        if isinstance(written.get(name), str) and "." in written[name]:
            written[name] = _Named(written[name])
    written.pop("observers", None)
    if store is None:
        raise ConfigurationError(["STORE is missing in the dictionary of options"])
    options = Options.from_mapping(written)
    return Configured(store_from_url(store) if isinstance(store, str) else store, options, default_caller)


class _Named:
    """A function that is known by its path alone."""

    def __init__(self, path: str) -> None:
        self.__qualname__ = path

    def __call__(self, *_: object) -> object:
        raise AssertionError(f"{self.__qualname__} is not called here")
