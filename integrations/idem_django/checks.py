"""System checks: mistakes in the settings and in the routes, told before the first request meets them.

E001  the setting is missing, or no dictionary        W001  the app is installed, the middleware is not
E002  an option that does not exist                   W002  the middleware is listed twice
E003  an option with a wrong value                    W003  it stands before what decides who may call a view
E004  the store is missing or wrong                   W004  it stands outside of compression
E005  a view is protected without the middleware      W005  something behind it may answer in a view's place
E006  a view's options don't fit the settings'        W006  the admin asks for keys that browsers don't send
                                                      W007  the login page does
                                                      W008  a store in memory is deployed
                                                      W009  nothing tells one caller from another
                                                      W010  REST framework's permissions come after a replay
                                                      W011  whoever reads the table can guess bodies
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.exceptions import ImproperlyConfigured
from django.shortcuts import resolve_url
from django.urls import NoReverseMatch, Resolver404, URLPattern, URLResolver, get_resolver, get_script_prefix, resolve
from django.utils.module_loading import import_string

from idem_django.conf import SETTING, Configuration, options_from, store_from, written_setting
from idem_django.marks import View, handler_mark, mark_of
from idem_django.middleware import IdempotencyMiddleware
from idem_middleware.blocking.engine import Engine
from idem_middleware.errors import ConfigurationError
from idem_middleware.options import Options
from idem_middleware.stores.memory import MemoryStore

__all__ = ["register_all"]

MIDDLEWARE = "idem_django.IdempotencyMiddleware"

_DECIDE_WHO = {
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
}
_COMPRESS = {"django.middleware.gzip.GZipMiddleware"}
_METHODS = ("POST", "PUT", "PATCH", "DELETE")


def register_all() -> None:
    """Called when the apps are ready."""
    register(check_setting)
    register(check_middleware)
    register(check_deployment, deploy=True)
    register(check_secrets, Tags.security, deploy=True)
    register(check_callers, Tags.security)
    register(check_routes, Tags.urls)


def check_setting(**_: object) -> list[CheckMessage]:
    """E001 to E004."""
    try:
        written = written_setting()
    except ConfigurationError as error:
        hint = f'Write {SETTING} = {{"STORE": "dynamodb://TABLE?region=…"}} into the settings.'
        return [Error(problem, hint=hint, id="idem_django.E001") for problem in error.problems]
    names = set(Options.names())
    known = {name: value for name, value in written.items() if name.lower() in names}
    unknown = {name: value for name, value in written.items() if name.lower() not in names}
    return [
        *_errors(lambda: options_from(unknown), "E002", f"The options are the entries of the dictionary {SETTING}."),
        *_errors(lambda: options_from(known), "E003", f"Correct this entry of {SETTING}."),
        *_errors(
            lambda: store_from(written),
            "E004",
            f'Write "STORE": "dynamodb://TABLE?region=…" into {SETTING}, or "memory://" for tests.',
        ),
    ]


def check_middleware(**_: object) -> list[CheckMessage]:
    """W001 to W005."""
    places = _places()
    if not places:
        hint = f'Add "{MIDDLEWARE}" as the last entry of MIDDLEWARE.'
        return [
            checks.Warning("idem_django protects nothing: its middleware is missing.", hint=hint, id="idem_django.W001")
        ]
    found: list[CheckMessage] = []
    if len(places) > 1:
        hint = "Remove all but the last."
        found.append(checks.Warning(f"{MIDDLEWARE} is listed {len(places)} times.", hint=hint, id="idem_django.W002"))
    hint = f'Make "{MIDDLEWARE}" the last entry of MIDDLEWARE.'
    for path in settings.MIDDLEWARE[places[0] + 1 :]:
        if path in _DECIDE_WHO:
            text = f"{path} comes after {MIDDLEWARE}: replays would not wait for it."
            found.append(checks.Warning(text, hint=hint, id="idem_django.W003"))
        elif path in _COMPRESS:
            text = f"{path} comes after {MIDDLEWARE}: compressed answers would be kept, for clients that take none."
            found.append(checks.Warning(text, hint=hint, id="idem_django.W004"))
        elif hasattr(_imported(path), "process_view") and not _is_ours(path):
            text = f"{path} comes after {MIDDLEWARE} and may answer in a view's place; that would be kept."
            found.append(checks.Warning(text, hint=hint, id="idem_django.W005"))
    return found


def check_deployment(**_: object) -> list[CheckMessage]:
    """W008."""
    configured = _configuration()
    if configured is None or not isinstance(configured.engine.store, MemoryStore):
        return []
    return [
        checks.Warning(
            "A store in memory forgets all keys at a restart, and other processes do not see them.",
            hint=f'Write "STORE": "dynamodb://TABLE?region=…" into {SETTING}.',
            id="idem_django.W008",
        )
    ]


def check_secrets(**_: object) -> list[CheckMessage]:
    """W011."""
    configured = _configuration()
    if configured is None or isinstance(configured.engine.store, MemoryStore):
        return []
    options = configured.engine.options
    if options.fingerprint_secret is not None or options.cipher is not None:
        return []
    return [
        checks.Warning(
            "Whoever can read the table can read stored answers, and test guesses about short bodies, such as card "
            "numbers, against their fingerprints.",
            hint=f'Write "FINGERPRINT_SECRET" and "CIPHER" into {SETTING}.',
            id="idem_django.W011",
        )
    ]


def check_callers(**_: object) -> list[CheckMessage]:
    """W009."""
    configured = _configuration()
    if configured is None or configured.engine.options.caller is not None or apps.is_installed("django.contrib.auth"):
        return []
    return [
        checks.Warning(
            "All clients share one space of keys, and only their Authorization and X-Api-Key headers tell them apart: "
            "django.contrib.auth is not installed, and no caller is configured.",
            hint=f'Write "CALLER": "path.to.a.function" into {SETTING}: it gets the request and gives the account or '
            'user; or "CALLER": "shared", if this is meant.',
            id="idem_django.W009",
        )
    ]


def check_routes(**_: object) -> list[CheckMessage]:
    """E005, E006, W006, W007, W010."""
    try:
        routes = list(_views(get_resolver().url_patterns))
    except Exception:  # noqa: BLE001 - Django's own checks tell what is wrong with the URLs
        return []
    configured = _configuration()
    if not _places():
        return list(_unrecorded(routes))
    if configured is None:
        return []
    return [*_unfitting(routes, configured), *_browsers(configured.engine.options), *_early(routes, configured)]


def _unrecorded(routes: Iterable[tuple[str, View]]) -> Iterator[CheckMessage]:
    for where, view in routes:
        if any(mark is not None and not mark.exempt for mark in (mark_of(view, method) for method in _METHODS)):
            yield Error(
                f"The view at {where} is to be protected, but the middleware that records its answers is missing.",
                hint=f'Add "{MIDDLEWARE}" as the last entry of MIDDLEWARE.',
                id="idem_django.E005",
            )


def _unfitting(routes: Iterable[tuple[str, View]], configured: Configuration) -> Iterator[CheckMessage]:
    for where, view in routes:
        for mark in {mark_of(view, method) for method in _METHODS} - {None}:
            try:
                configured.options_for(mark)  # type: ignore[arg-type] # None is taken out
            except ImproperlyConfigured as error:
                hint = f"Correct the view's options, or those of {SETTING}."
                yield Error(f"The view at {where}: {error}", hint=hint, id="idem_django.E006")


def _browsers(options: Options) -> Iterator[CheckMessage]:
    if not options.require_key or options.key is not None or options.mode != "enforce":
        return
    for name, target, identity in (
        ("the admin", "admin:index", "idem_django.W006"),
        ("the login page", settings.LOGIN_URL, "idem_django.W007"),
    ):
        path = _path_of(target)
        if path is not None and _needs_key(path, options):
            yield checks.Warning(
                f"A key is asked of every POST to {name} ({path}), and browsers send none: it can't be used.",
                hint=f'Add "{path}" to "EXEMPT_PATHS" of {SETTING}, or wrap its entry of the URLs: '
                "not_idempotent(path(…)).",
                id=identity,
            )


def _early(routes: Iterable[tuple[str, View]], configured: Configuration) -> Iterator[CheckMessage]:
    for where, view in routes:
        cls = getattr(view, "cls", None)
        guards = [each.__name__ for each in getattr(cls, "permission_classes", ()) if _name(each) != "AllowAny"]
        covered = configured.engine.options.covers("POST", "/" + where)
        if guards and any(_claims_early(view, method, covered=covered) for method in _handled(view)):
            yield checks.Warning(
                f"The API view at {where} is claimed before its permissions ({', '.join(guards)}) are asked: whoever "
                "sends the same key and credentials gets the stored answer without them.",
                hint="Add idem_django.rest_framework.IdempotentMixin to its class, or decorate it with @idempotent.",
                id="idem_django.W010",
            )


def _claims_early(view: Any, method: str, *, covered: bool) -> bool:
    mark = mark_of(view, method)
    if mark is None:
        return covered
    late = mark is handler_mark(view, view.cls, method) or any(
        base.__name__ == "ClaimingDispatch" for base in view.cls.__mro__
    )
    return not mark.exempt and not late


def _handled(view: Any) -> list[str]:
    actions = getattr(view, "actions", None)
    if actions is not None:
        return [method for method in _METHODS if method.lower() in actions]
    return [method for method in _METHODS if hasattr(view.cls, method.lower())]


def _name(permission: object) -> str:
    return getattr(permission, "__name__", "")


def _needs_key(path: str, options: Options) -> bool:
    try:
        match = resolve(path)
    except Resolver404:
        return False
    return mark_of(match.func, "POST") is None and options.covers("POST", path)


def _path_of(target: str) -> str | None:
    """The path below the script's prefix that a URL name or URL leads to, if it leads here."""
    try:
        parts = urlsplit(resolve_url(target))
    except (NoReverseMatch, ImproperlyConfigured):
        return None
    return None if parts.netloc else "/" + parts.path.removeprefix(get_script_prefix())


def _views(patterns: Iterable[Any], prefix: str = "") -> Iterator[tuple[str, View]]:
    for pattern in patterns:
        where = prefix + str(pattern.pattern).removeprefix("^")
        if isinstance(pattern, URLResolver):
            yield from _views(pattern.url_patterns, where)
        elif isinstance(pattern, URLPattern):
            yield where, pattern.callback


def _places() -> list[int]:
    return [place for place, path in enumerate(settings.MIDDLEWARE) if _is_ours(path)]


def _is_ours(path: str) -> bool:
    found = _imported(path)
    return isinstance(found, type) and issubclass(found, IdempotencyMiddleware)


def _imported(path: str) -> object:
    try:
        return import_string(path)
    except ImportError:
        return None  # Django says so when it starts


def _configuration() -> Configuration | None:
    """What the settings say, if it is right; the other checks tell what is wrong with it."""
    try:
        written: Mapping[str, Any] = written_setting()
        return Configuration(Engine(store_from(written), options_from(written)))
    except ConfigurationError:
        return None


def _errors(look: Callable[[], object], identity: str, hint: str) -> list[CheckMessage]:
    try:
        look()
    except ConfigurationError as error:
        return [Error(f"{SETTING}: {problem}", hint=hint, id=f"idem_django.{identity}") for problem in error.problems]
    return []
