"""The options: one frozen dataclass, one loader for every framework's way of writing them."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import jmespath
from jmespath.exceptions import JMESPathError

from idem_middleware.errors import ConfigurationError
from idem_middleware.messages import Request, Response

if TYPE_CHECKING:
    from jmespath.parser import ParsedResult

    from idem_middleware.ciphers.base import Cipher
    from idem_middleware.errors import TransactionRefused
    from idem_middleware.events import Observer
    from idem_middleware.probing import Abandoned

__all__ = ["MODE_VARIABLE", "NEVER_COVERED", "SHARED_CALLER", "Options", "accepted_values"]

Mode = Literal["enforce", "observe", "off"]
OnAbandoned = Literal["retry", "refuse"]
OnError = Literal["retry", "store", "refuse"]
OnExpired = Literal["execute", "refuse"]
OnStoreError = Literal["refuse", "bypass"]

MODE_VARIABLE = "IDEMPOTENCY_MODE"
SHARED_CALLER = "shared"
"""`caller="shared"`: all callers share one key space, and that is meant."""

NEVER_COVERED = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "CONNECT"})
"""Methods that change nothing, so that there is nothing to run once (RFC 9110 §9.2.1), and tunnels."""

_UUID = "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 §5.6.2
_SURROGATE = re.compile("[\ud800-\udfff]")  # text that no encoding takes
_LARGEST_SECONDS = 10 * 365 * 86400.0
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True, kw_only=True)
class Options:
    """How requests are protected. Checked when made: all problems come in one `ConfigurationError`.

    Durations are seconds, sizes bytes. `docs/options.md` explains each option.
    """

    mode: Mode = "enforce"
    methods: frozenset[str] = frozenset({"POST", "PUT", "PATCH", "DELETE"})
    paths: tuple[str | re.Pattern[str], ...] = ()
    exempt_paths: tuple[str | re.Pattern[str], ...] = ()
    require_key: bool = True
    header: str = "Idempotency-Key"
    key: str | Callable[[Request], object] | None = None
    strict_key: bool = False
    key_pattern: str | re.Pattern[str] | None = None
    caller: str | Callable[[Any], object] | None = None
    namespace: str = ""
    payload: str | Callable[[Request], object] | None = None
    fingerprint_headers: tuple[str, ...] = ()
    fingerprint_secret: bytes | str | None = field(default=None, repr=False)
    accepted_fingerprint_secrets: tuple[bytes | str | None, ...] = field(default=(), repr=False)
    lease_seconds: float = 60.0
    max_execution_seconds: float = 900.0
    on_abandoned: OnAbandoned = "retry"
    wait_seconds: float = 0.0
    max_waiters: int = 1000
    max_waiters_per_key: int = 100
    max_waiting_threads: int = 32
    retention_seconds: float = 86400.0
    tombstone_seconds: float = 0.0
    on_expired: OnExpired = "execute"
    store_if: Callable[[Response], bool | None] | None = None
    before_store: Callable[[Response], Response | None] | None = None
    cipher: Cipher | None = field(default=None, repr=False)
    on_error: OnError = "retry"
    retry_after_failure_seconds: float = 0.0
    max_request_bytes: int | None = None
    max_response_bytes: int = 8 * 1024 * 1024
    local_cache_bytes: int = 0
    drop_headers: frozenset[str] = frozenset()
    keep_headers: frozenset[str] = frozenset()
    on_store_error: OnStoreError = "refuse"
    replay_header: str = "Idempotent-Replayed"
    docs_url: str | None = None
    claim_items: Callable[[Request], Any] | None = None
    on_claim_refused: Callable[[Request, TransactionRefused], Response] | None = None
    prober: Callable[[Abandoned], Any] | None = None
    prober_seconds: float = 5.0
    observers: tuple[Observer, ...] = ()

    def __post_init__(self) -> None:
        for name in ("methods", "drop_headers", "keep_headers"):
            self._coerce(name, frozenset)
        for name in ("paths", "exempt_paths", "fingerprint_headers", "accepted_fingerprint_secrets", "observers"):
            self._coerce(name, tuple)
        problems = list(_problems(self))
        if problems:
            raise ConfigurationError(problems)
        object.__setattr__(self, "methods", frozenset(method.upper() for method in self.methods))
        for name in ("drop_headers", "keep_headers"):
            object.__setattr__(self, name, frozenset(header.lower() for header in getattr(self, name)))

    def _coerce(self, name: str, kind: type[frozenset[Any] | tuple[Any, ...]]) -> None:
        """Any iterable but a string does where a collection is asked for."""
        value = getattr(self, name)
        if not isinstance(value, (str, bytes, Mapping)) and isinstance(value, Iterable):
            with suppress(TypeError):  # of what can't be in a set; the checks will say what is wrong with it
                object.__setattr__(self, name, kind(value))

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of all options."""
        return tuple(f.name for f in fields(cls))

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any], *, prefix: str = "", base: Options | None = None) -> Options:
        """Read options that are written in any case, each name after `prefix`: `IDEMPOTENCY_LEASE_SECONDS`.

        The environment variable IDEMPOTENCY_MODE wins over the setting.

        Raises:
            ConfigurationError: unknown names (with the nearest right one) and wrong values, all of them at once.
        """
        values: dict[str, Any] = {}
        problems: list[str] = []
        for written, value in settings.items():
            if not written.upper().startswith(prefix.upper()):
                continue
            name = written[len(prefix) :].lower()
            if name in cls.names():
                values[name] = value
            else:
                problems.append(_unknown(written, name, prefix, cls.names(), upper=written.isupper()))
        mode = os.environ.get(MODE_VARIABLE)
        if mode:
            values["mode"] = mode.lower()
            if values["mode"] not in get_args(Mode):
                known = get_args(Mode)
                problems.append(
                    f"the environment variable {MODE_VARIABLE} must be one of {', '.join(map(repr, known))}, "
                    f"not {_shown(mode)}{_near(values['mode'], known)}"
                )
                del values["mode"]
        try:
            options = cls(**values) if base is None else replace(base, **values)
        except ConfigurationError as error:
            raise ConfigurationError([*problems, *error.problems]) from None
        if problems:
            raise ConfigurationError(problems)
        return options

    def merge(self, overrides: Mapping[str, Any]) -> Options:
        """These options with a view's own on top.

        Raises:
            ConfigurationError: as `from_mapping`.
        """
        return Options.from_mapping(overrides, base=self) if overrides else self

    @cached_property
    def compiled_key_pattern(self) -> re.Pattern[str] | None:
        """`key_pattern`, ready for `fullmatch`."""
        return None if self.key_pattern is None else _pattern(self.key_pattern)

    @cached_property
    def key_path(self) -> ParsedResult | None:
        """`key`, where it is a JMESPath."""
        return jmespath.compile(self.key) if isinstance(self.key, str) and self.key != "fingerprint" else None

    @cached_property
    def payload_path(self) -> ParsedResult | None:
        """`payload`, where it is a JMESPath."""
        return jmespath.compile(self.payload) if isinstance(self.payload, str) else None

    @cached_property
    def secret(self) -> bytes | None:
        """`fingerprint_secret` as bytes."""
        return _as_bytes(self.fingerprint_secret)

    @cached_property
    def secrets(self) -> tuple[bytes | None, ...]:
        """The secret that is written with, then those that are only read with; None is none."""
        return (self.secret, *map(_as_bytes, self.accepted_fingerprint_secrets))

    @property
    def shows_request(self) -> bool:
        """Whether a function of these options is to see the request when its key is claimed."""
        return self.claim_items is not None or self.prober is not None

    @cached_property
    def looks_at_native(self) -> bool:
        """Whether a function of the user's may look at the framework's own request."""
        return callable(self.caller) or callable(self.key) or callable(self.payload)

    @cached_property
    def dropped_headers(self) -> frozenset[str]:
        """The headers of an answer that these options alone keep out of its replay, in lower case."""
        return self.drop_headers | {self.replay_header.lower(), self.header.lower()}

    def covers(self, method: str, path: str) -> bool:
        """Whether requests with this method and (decoded) path are protected at all."""
        if method.upper() not in self.methods or self.mode == "off":
            return False
        if self.paths and not _matches(self.paths, path):
            return False
        return not (self.exempt_paths and _matches(self.exempt_paths, path))


def _as_bytes(secret: bytes | str | None) -> bytes | None:
    return secret.encode() if isinstance(secret, str) else secret


def _matches(patterns: tuple[str | re.Pattern[str], ...], path: str) -> bool:
    """Strings are prefixes that end at a segment: "/api" is "/api" and "/api/x", not "/apix"."""
    for pattern in patterns:
        if isinstance(pattern, str):
            following = path[len(pattern) : len(pattern) + 1]
            if path.startswith(pattern) and (pattern.endswith("/") or following in {"", "/"}):
                return True
        elif pattern.search(path):
            return True
    return False


def _pattern(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    if isinstance(pattern, str):
        return re.compile(_UUID if pattern == "uuid" else pattern)
    return pattern


def _unknown(written: str, name: str, prefix: str, names: Iterable[str], *, upper: bool) -> str:
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    if not close:
        return f"{written} is not an option"
    right = written[: len(prefix)] + (close[0].upper() if upper else close[0])
    return f"{written} is not an option; did you mean {right}?"


# --- checks; each yields sentences that name the option and what is right ---------------------------------------------

_CHOICES: dict[str, tuple[str, ...]] = {
    "mode": get_args(Mode),
    "on_abandoned": get_args(OnAbandoned),
    "on_error": get_args(OnError),
    "on_expired": get_args(OnExpired),
    "on_store_error": get_args(OnStoreError),
}
_DURATIONS = {  # name: least value
    "lease_seconds": 1.0,  # below, the renewal every third of it can't keep up with a slow store
    "max_execution_seconds": 1.0,
    "wait_seconds": 0.0,
    "retention_seconds": 1.0,
    "tombstone_seconds": 0.0,
    "retry_after_failure_seconds": 0.0,
    "prober_seconds": 0.001,
}


def accepted_values(name: str) -> str | None:
    """In words, what an option takes beyond its type; for the documentation."""
    if name in _CHOICES:
        return " or ".join(f'`"{choice}"`' for choice in _CHOICES[name])
    if name in _DURATIONS:
        return f"{_DURATIONS[name]:g} seconds or more"
    return None


_FLAGS = ("require_key", "strict_key")
_FUNCTIONS = {
    "store_if": "the response",
    "before_store": "the response",
    "claim_items": "the request",
    "on_claim_refused": "the request and the refusal",
    "prober": "an abandoned claim",
}
_FUNCTIONS_OR_PATHS = ("key", "payload")
_HEADER_SETS = ("drop_headers", "keep_headers", "fingerprint_headers")


def _problems(options: Options) -> Iterable[str]:
    for name, choices in _CHOICES.items():
        value = getattr(options, name)
        if value not in choices:
            yield f"{name} must be one of {', '.join(map(repr, choices))}, not {_shown(value)}{_near(value, choices)}"
    for name, least in _DURATIONS.items():
        value = getattr(options, name)
        if not _is_number(value) or not least <= value <= _LARGEST_SECONDS:
            yield f"{name} must be a number of seconds from {least:g} to {_LARGEST_SECONDS:g}, not {_shown(value)}"
    for name in _FLAGS:
        if not isinstance(getattr(options, name), bool):
            yield f"{name} must be True or False, not {_shown(getattr(options, name))}"
    yield from _size_problems(options)
    yield from _count_problems(options)
    yield from _header_problems(options)
    yield from _method_problems(options.methods)
    yield from _path_problems(options)
    yield from _function_problems(options)
    yield from _text_problems(options)
    yield from _relation_problems(options)


def _size_problems(options: Options) -> Iterable[str]:
    for name, optional in (("max_request_bytes", True), ("max_response_bytes", False), ("local_cache_bytes", False)):
        value = getattr(options, name)
        if value is None and optional:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            yield f"{name} must be a whole number of bytes, 0 or more, not {_shown(value)}"


def _count_problems(options: Options) -> Iterable[str]:
    for name in ("max_waiters", "max_waiters_per_key", "max_waiting_threads"):
        value = getattr(options, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            yield f"{name} must be a whole number, 0 or more, not {_shown(value)}"


def _header_problems(options: Options) -> Iterable[str]:
    for name in ("header", "replay_header"):
        value = getattr(options, name)
        if not isinstance(value, str) or not _TOKEN.fullmatch(value):
            yield f"{name} must be the name of an HTTP header, not {_shown(value)}"
    for name in _HEADER_SETS:
        value = getattr(options, name)
        if not isinstance(value, (frozenset, tuple)):
            yield f"{name} must be a collection of header names, not {_shown(value)}"
            continue
        for header in value:
            if not isinstance(header, str) or not _TOKEN.fullmatch(header):
                yield f"{name} must hold names of HTTP headers, not {_shown(header)}"


def _path_problems(options: Options) -> Iterable[str]:
    for name in ("paths", "exempt_paths"):
        value = getattr(options, name)
        if not isinstance(value, tuple):
            yield f"{name} must be a collection of path prefixes or compiled patterns, not {_shown(value)}"
            continue
        for path in value:
            if not _is_text_pattern(path) and not (isinstance(path, str) and path.startswith("/")):
                yield f"{name} must hold prefixes that begin with '/' or compiled patterns, not {_shown(path)}"


def _function_problems(options: Options) -> Iterable[str]:
    for name in _FUNCTIONS_OR_PATHS:
        value = getattr(options, name)
        if isinstance(value, str):
            try:
                jmespath.compile(value)
            except JMESPathError:
                yield f"{name} is not a valid JMESPath: {_shown(value)}"
        elif value is not None and not callable(value):
            yield f"{name} must be a JMESPath or a function of the request, not {_shown(value)}"
    if not (options.caller is None or options.caller == SHARED_CALLER or callable(options.caller)):
        yield f"caller must be a function of the request or {SHARED_CALLER!r}, not {_shown(options.caller)}"
    for name, of_what in _FUNCTIONS.items():
        value = getattr(options, name)
        if value is not None and not callable(value):
            yield f"{name} must be a function of {of_what}, not {_shown(value)}"
    if options.cipher is not None and not _is_cipher(options.cipher):
        # Not shown: what was written there by mistake may be a key.
        yield f"cipher must be a cipher such as ciphers.AesGcm, not of type {type(options.cipher).__name__}"
    observers: object = options.observers
    if not isinstance(observers, tuple) or not all(callable(observer) for observer in observers):
        yield "observers must be a collection of functions that take an event"


def _text_problems(options: Options) -> Iterable[str]:
    namespace: object = options.namespace
    if not isinstance(namespace, str) or _SURROGATE.search(namespace):
        yield f"namespace must be a string, not {_shown(namespace)}"
    docs_url: object = options.docs_url
    if docs_url is not None and not (isinstance(docs_url, str) and re.fullmatch(r"https?://[!-;=?-~]+", docs_url)):
        yield f"docs_url must be an http or https URL, not {_shown(docs_url)}"
    if not _is_secret(options.fingerprint_secret):
        yield "fingerprint_secret must be bytes or a string, not empty"
    accepted: object = options.accepted_fingerprint_secrets
    if not isinstance(accepted, tuple) or not all(map(_is_secret, accepted)):
        yield "accepted_fingerprint_secrets must be a collection of bytes or strings, not empty; None is no secret"
    elif accepted and options.key == "fingerprint":
        yield (
            "accepted_fingerprint_secrets can't go with key='fingerprint': there the secret makes the key itself, so "
            "another secret makes each request a new one"
        )
    yield from _pattern_problems(options.key_pattern)


def _is_secret(secret: object) -> bool:
    """A text that no encoding takes is none; the message about it must not show it."""
    if secret is None:
        return True
    return isinstance(secret, (bytes, str)) and bool(secret) and not _SURROGATE.search(str(secret))


def _method_problems(methods: object) -> Iterable[str]:
    if not isinstance(methods, frozenset) or not all(isinstance(m, str) and _TOKEN.fullmatch(m) for m in methods):
        yield f"methods must be a collection of HTTP methods, not {_shown(methods)}"
        return
    for method in sorted({m.upper() for m in methods} & NEVER_COVERED):
        yield f"methods can't hold {method}: it changes nothing, so there is nothing to run once"
    if not methods:
        yield "methods is empty; use mode='off' to switch the protection off"


def _pattern_problems(pattern: object) -> Iterable[str]:
    if pattern is None or _is_text_pattern(pattern):
        return
    if not isinstance(pattern, str):
        yield f"key_pattern must be 'uuid' or a regular expression, not {_shown(pattern)}"
        return
    try:
        _pattern(pattern)
    except re.error as error:
        yield f"key_pattern is not a valid regular expression ({error})"


def _relation_problems(options: Options) -> Iterable[str]:
    lease, longest = options.lease_seconds, options.max_execution_seconds
    if _is_number(lease) and _is_number(longest) and 0 < longest < lease <= _LARGEST_SECONDS:
        yield f"max_execution_seconds ({longest:g}) must not be shorter than lease_seconds ({lease:g})"
    if options.claim_items is not None:
        if options.mode == "observe":
            yield "claim_items does not go together with mode='observe': repeated requests would run without the items"
        if options.on_store_error == "bypass":
            yield "claim_items does not go together with on_store_error='bypass': requests would run without the items"
    elif callable(options.on_claim_refused):
        yield "on_claim_refused needs claim_items"
    if options.on_expired == "refuse" and _is_number(options.tombstone_seconds) and options.tombstone_seconds == 0:
        yield "on_expired='refuse' needs tombstone_seconds: without it nothing is left to tell an expired key by"


def _is_text_pattern(value: object) -> bool:
    return isinstance(value, re.Pattern) and isinstance(value.pattern, str)


def _is_cipher(value: object) -> bool:
    calls = all(callable(getattr(value, name, None)) for name in ("seal", "open", "is_ready", "prepare"))
    return calls and all(hasattr(value, name) for name in ("overhead_bytes", "reads_plain"))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _near(value: object, choices: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(value, choices, n=1) if isinstance(value, str) else []
    return f"; did you mean {close[0]!r}?" if close else ""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."
