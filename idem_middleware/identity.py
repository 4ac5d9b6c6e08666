"""Whether a request is protected, under which key, for whom, and what it is: all before anything is claimed.

Computed once, from copied data; what the handler does to its request later can't change it.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Sequence
from dataclasses import field
from typing import Any
from uuid import UUID

from idem_middleware.canonical.json import load_json_lossless
from idem_middleware.events import told
from idem_middleware.fingerprint import canonical_value, fingerprints
from idem_middleware.keys import KeyInvalid, parse_key, record_pk, short_digest, validate_key
from idem_middleware.messages import Request, header_values
from idem_middleware.options import Options
from idem_middleware.problems import Problem, ProblemType
from idem_middleware.values import immutable

__all__ = ["Admitted", "CallerUnknown", "Identity", "Passed", "admit", "call_caller", "caller_name", "identify"]

logger = logging.getLogger("idem_middleware")

_CREDENTIAL_HEADERS = ("authorization", "x-api-key")


@immutable()
class Passed:
    """The request is none of ours."""


@immutable()
class Admitted:
    """The request is to be protected; `key` is None where it comes from the body, which is not read yet."""

    options: Options
    key: str | None


@immutable(kw_only=True)
class Identity:
    """What tells one piece of work from another.

    `caller` is part of `pk`; here it says where the record lies. `accepted` are fingerprint and digest under each
    secret that is only read with.
    """

    pk: str
    fingerprint: bytes
    caller_digest: bytes | None
    options: Options
    caller: str | None = field(default=None, repr=False)
    request: Request | None = field(default=None, repr=False, compare=False)
    """Kept where a function of the options is to see it at the claim."""
    accepted: tuple[tuple[bytes, bytes | None], ...] = ()

    @property
    def key_digest(self) -> str:
        """What logs and events may show of the key."""
        return short_digest(self.pk)


class CallerUnknown(Exception):
    """The configured function raised, or gave nothing that names a caller."""


def admit(options: Options, method: str, path: str, key_lines: Sequence[str]) -> Passed | Admitted | Problem:
    """Judge a request by its head alone, so that one that is refused need not send its body.

    `path` is decoded; `key_lines` are the values of all field lines of the key's header.
    """
    if not options.covers(method, path):
        return Passed()
    if options.key is not None:
        return Admitted(options, None)
    try:
        key = parse_key(key_lines, strict=options.strict_key, pattern=options.compiled_key_pattern)
    except KeyInvalid as error:
        return Problem(ProblemType.KEY_INVALID, reason=error.reason)
    if key is not None:
        return Admitted(options, key)
    return Problem(ProblemType.KEY_MISSING) if options.require_key else Passed()


def call_caller(options: Options, native: Any) -> object:
    """Ask the configured function who sends this request; None where none is configured.

    Raises:
        CallerUnknown: it raised.
    """
    if not callable(options.caller):
        return None
    try:
        return options.caller(native)
    except Exception as error:
        logger.error("the caller function raised %s", told(error))  # noqa: TRY400 - its text may hold a token
        raise CallerUnknown from error


def caller_name(options: Options, answer: object) -> str | None:
    """The caller's stable name; None where no function is configured.

    Raises:
        CallerUnknown: the answer names nobody. It never falls into a bucket that several callers share.
    """
    if not callable(options.caller):
        return None
    if isinstance(answer, (str, int, UUID)) and not isinstance(answer, bool):
        name = str(answer)
        if name and not name.isspace():
            return name
    elif answer is not None:
        logger.error("the caller function must give a string, a whole number or a UUID, not %s", type(answer).__name__)
    raise CallerUnknown


def identify(request: Request, admitted: Admitted, caller: str | None) -> Identity | Passed | Problem:
    """Say what this request is. `caller` is what `caller_name` gave."""
    options = admitted.options
    document = _Document(request)
    try:
        payload = _payload(request, options, document)
    except Exception as error:  # noqa: BLE001 - a body that the function can't read is the client's
        logger.debug("what is compared can't be read from the request: %s", told(error))
        reason = f"What is compared of the request can't be read ({_kind(error)})."
        return Problem(ProblemType.KEY_INVALID, reason=reason)
    print_, *accepted = fingerprints(
        options.secrets,
        method=request.method,
        path=request.path,
        query=request.query,
        content_type=request.header("content-type"),
        body=request.body,
        headers=_chosen(request, options),
        payload=payload,
    )
    key = admitted.key
    if key is None:
        found = _key(request, options, document, print_)
        if not isinstance(found, str):
            return found
        key = found
    digest: bytes | None = None
    digests: Sequence[bytes | None] = [None] * len(accepted)
    if options.caller is None and caller is None:
        digest, *digests = [_credentials(request, secret) for secret in options.secrets]
    return Identity(
        pk=record_pk(options.namespace, caller, key),
        fingerprint=print_,
        caller_digest=digest,
        accepted=tuple(zip(accepted, digests, strict=True)),
        options=options,
        caller=caller,
        request=request if options.shows_request else None,
    )


class _Document:
    """The JSON body, parsed at most once, and only if it is asked for."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._parsed: tuple[object] | None = None

    def search(self, path: Any) -> object:
        """What a JMESPath finds, None if it finds nothing.

        Raises:
            ValueError: the body is no JSON.
        """
        if self._parsed is None:
            body = self._request.body.in_memory()
            if body is None:
                raise ValueError("too large")
            self._parsed = (load_json_lossless(body),)
        return path.search(self._parsed[0])


def _payload(request: Request, options: Options, document: _Document) -> bytes | None:
    if options.payload is None:
        return None
    if callable(options.payload):
        return canonical_value(options.payload(request))
    try:
        selected = document.search(options.payload_path)
    except ValueError:
        return None  # not JSON: compared as written
    # A path that finds nothing must not make all requests alike in which it does.
    return None if selected is None else canonical_value(selected)


def _key(request: Request, options: Options, document: _Document, print_: bytes) -> str | Passed | Problem:
    if options.key == "fingerprint":
        return print_.hex()
    value: object
    try:
        value = options.key(request) if callable(options.key) else document.search(options.key_path)
    except Exception as error:  # noqa: BLE001 - a body that the path or the function can't read is the client's
        logger.debug("the key can't be read from the request: %s", told(error))
        value = None
    if value is None:
        return Problem(ProblemType.KEY_MISSING) if options.require_key else Passed()
    try:
        return validate_key(value, pattern=options.compiled_key_pattern)
    except KeyInvalid as error:
        return Problem(ProblemType.KEY_INVALID, reason=error.reason)


def _chosen(request: Request, options: Options) -> list[tuple[str, str]]:
    if not options.fingerprint_headers:
        return []
    return [
        (name.lower(), value)
        for name in sorted(options.fingerprint_headers, key=str.lower)
        for value in header_values(request.headers, name)
    ]


def _credentials(request: Request, secret: bytes | None) -> bytes:
    """A digest of the headers that commonly say who asks. No credentials are credentials, too."""
    digest = hmac.new(secret or b"", digestmod=hashlib.sha256)
    for name in _CREDENTIAL_HEADERS:
        values = header_values(request.headers, name)
        digest.update(b"%d:" % len(values))
        for value in values:
            digest.update(b"%d:" % len(value) + value.encode("utf-8", "surrogatepass"))
    return digest.digest()[:16]


def _kind(error: Exception) -> str:
    return type(error).__name__
