"""Copies of `path()` entries, lists of them and `include()`, with their views marked."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import ModuleType
from typing import Any

from django.urls import URLPattern, URLResolver

from idem_django.marks import ATTRIBUTE, DEFAULT_ATTRIBUTE, View

__all__ = ["is_route", "remade"]

_INCLUDE = 3  # include() gives a module or list of routes, an app name and a namespace


def is_route(target: object) -> bool:
    """Whether this stands in URL patterns rather than being called."""
    return isinstance(target, (URLPattern, URLResolver, list, tuple))


def remade(target: Any, protect: Callable[[View, str], View]) -> Any:
    """The same routes to protected views; the routes given stay as they are, since others may use them.

    `protect` gets a view, and the attribute that its mark belongs to. One entry means its view. Several mean those
    of their views that have no marks themselves.
    """
    if isinstance(target, URLPattern):
        return _pattern(target, protect, ATTRIBUTE)
    if isinstance(target, URLResolver):
        return _resolver(target, protect)
    if isinstance(target, tuple) and len(target) == _INCLUDE and not is_route(target[1]):
        routes, *names = target
        return (_several(routes, protect), *names)
    return type(target)(_several(target, protect))


def _several(routes: Any, protect: Callable[[View, str], View]) -> list[Any]:
    if isinstance(routes, ModuleType):
        routes = routes.urlpatterns
    return [
        _pattern(route, protect, DEFAULT_ATTRIBUTE) if isinstance(route, URLPattern) else _resolver(route, protect)
        for route in routes
    ]


def _pattern(pattern: URLPattern, protect: Callable[[View, str], View], attribute: str) -> URLPattern:
    if hasattr(pattern.callback, attribute) and attribute == DEFAULT_ATTRIBUTE:
        return pattern  # routes among routes: the inner ones are nearer
    made = copy.copy(pattern)
    vars(made).pop("lookup_str", None)  # cached by the original
    made.callback = protect(pattern.callback, attribute)
    return made


def _resolver(resolver: URLResolver, protect: Callable[[View, str], View]) -> URLResolver:
    return URLResolver(
        resolver.pattern,
        _several(resolver.url_patterns, protect),
        resolver.default_kwargs,
        resolver.app_name,
        resolver.namespace,
    )
