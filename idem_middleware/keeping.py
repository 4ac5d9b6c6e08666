"""Which answers are kept, and which of their headers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum

from idem_middleware.events import told
from idem_middleware.messages import HeaderPairs, Response
from idem_middleware.options import Options

__all__ = ["CREDENTIALS_REFUSED", "Verdict", "failure_verdict", "kept_headers", "method_refused", "verdict"]


class Verdict(Enum):
    """What becomes of an answer."""

    KEEP = "keep"
    FAIL = "fail"
    RELEASE = "release"
    OUTCOME_UNKNOWN = "outcome-unknown"


# Not the outcome of the work but of the moment: who asks, how often, over which connection, at which address.
_PASSING = frozenset({300, 304, 401, 403, 407, 408, 421, 425, 429})
CREDENTIALS_REFUSED = frozenset({401, 403})
"""The request was not applied for who sent it; "repeat it with other credentials" (RFC 9110 §15.5.2, §15.5.4)."""

# "Send the same request there", where it comes with the same key. 305 and 306 are of the past.
_ELSEWHERE = frozenset({305, 306, 307, 308})
_FIRST_FINAL = 200
_FIRST_SERVER_ERROR = 500

logger = logging.getLogger("idem_middleware")


def verdict(response: Response, options: Options, *, from_view: bool = True) -> Verdict:
    """Say whether this answer is the final outcome.

    `from_view` is False for what the framework answered before the view ran (its router's 404, a failed validation):
    nothing was begun, so the key is as good as new.
    """
    if not from_view:
        return Verdict.RELEASE
    if options.store_if is not None:
        wanted = _wanted(options.store_if, response)
        if wanted is not None:
            return Verdict.KEEP if wanted else Verdict.FAIL
    status = response.status
    if status >= _FIRST_SERVER_ERROR:
        return failure_verdict(options) if options.on_error != "store" else Verdict.KEEP
    if status in _ELSEWHERE:
        return Verdict.RELEASE
    if status < _FIRST_FINAL or status in _PASSING:
        return Verdict.FAIL
    return Verdict.KEEP


def _wanted(store_if: Callable[[Response], bool | None], response: Response) -> bool | None:
    """Ask the function; where it fails, the work is done all the same, and the default rules say what to do."""
    try:
        return store_if(response)
    except Exception as error:  # noqa: BLE001 - whatever it is
        logger.error("the store_if function raised %s", told(error))  # noqa: TRY400 - its text may hold the answer
        return None


def failure_verdict(options: Options) -> Verdict:
    """What an exception of the handler means."""
    return Verdict.OUTCOME_UNKNOWN if options.on_error == "refuse" else Verdict.FAIL


# Hop-by-hop and framing fields (RFC 9110 §7.6.1), fields of one connection, one moment, one client or one exchange.
_NEVER_KEPT = frozenset(
    """
    connection keep-alive proxy-connection proxy-authenticate proxy-authentication-info proxy-authorization te trailer
    transfer-encoding upgrade content-length
    date server age via
    set-cookie set-cookie2 www-authenticate authentication-info
    retry-after ratelimit ratelimit-policy
    request-id x-request-id x-correlation-id correlation-id x-amzn-requestid x-amz-request-id x-amzn-trace-id
    x-trace-id x-cloud-trace-context traceparent tracestate b3 server-timing x-runtime x-process-time
    idempotency-key
    """.split()  # noqa: SIM905 - so many words read better like this
)
_NEVER_KEPT_PREFIXES = ("access-control-", "ratelimit-", "x-ratelimit-", "x-rate-limit-", "x-b3-")
_HOP_BY_HOP = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive", "te", "trailer", "upgrade"})


def kept_headers(headers: HeaderPairs, options: Options) -> HeaderPairs:
    """The headers that a replay repeats, in their order. `keep_headers` can't bring back the framing ones."""
    named = [(pair[0].lower(), pair) for pair in headers]
    dropped, kept = options.dropped_headers, options.keep_headers
    for name, (_, value) in named:
        if name == "connection":
            dropped |= {token.strip().lower() for token in value.split(",")}
    return tuple(
        [
            pair
            for name, pair in named
            if name not in _HOP_BY_HOP
            and name not in dropped
            and (name in kept or not (name in _NEVER_KEPT or name.startswith(_NEVER_KEPT_PREFIXES)))
        ]
    )


def method_refused(headers: HeaderPairs, method: str) -> bool:
    """Whether a 405 says that no handler takes this method: its Allow lacks it (RFC 9110 §15.5.6)."""
    lists = [value for name, value in headers if name.lower() == "allow"]
    allowed = {token.strip().upper() for value in lists for token in value.split(",")}
    return bool(allowed) and method not in allowed
