"""The options, against what is known of clients, servers and load balancers. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from idem_middleware.cli.diagnosis.findings import Circumstances, Finding, Light
from idem_middleware.cli.terms import duration
from idem_middleware.options import SHARED_CALLER, Options
from idem_middleware.stores.base import Store
from idem_middleware.stores.memory import MemoryStore

__all__ = ["check_configuration"]

_VOLATILE = re.compile(
    r"time|date|nonce|random|uuid|request.?id|trace|span|attempt|retry|signature|session|token|authorization|cookie",
    re.IGNORECASE,
)
"""Names of what differs between a request and its retry."""


def check_configuration(options: Options, store: Store, known: Circumstances) -> Iterator[Finding]:
    """Every line of the checklist that the options decide."""
    yield _mode(options)
    yield _store(store, known)
    yield _retention(options, known)
    yield from _lease(options, known)
    yield _key(options)
    yield _volatile_headers(options)
    yield _missing_keys(options)
    yield _mismatch(options)
    yield _in_progress(options, known)
    yield _caller(options, known)
    yield _outage(options)
    yield _timeouts(store, known)


def _mode(options: Options) -> Finding:
    if options.mode == "enforce":
        return Finding("mode", Light.GREEN, "enforce")
    found = "observe: everything runs, and is only reported" if options.mode == "observe" else "off"
    light = Light.YELLOW if options.mode == "observe" else Light.RED
    return Finding("mode", light, found, "set mode='enforce' (or IDEMPOTENCY_MODE) when the roll-out is over")


def _store(store: Store, known: Circumstances) -> Finding:
    if not isinstance(store, MemoryStore):
        return Finding("store", Light.GREEN, f"{store!r}: shared by all processes")
    return Finding(
        "store",
        Light.RED if known.production else Light.YELLOW,
        "in memory: each process has its own, and forgets it when it ends",
        "use store='dynamodb://TABLE?region=…' wherever there is more than one process, or a restart",
    )


def _retention(options: Options, known: Circumstances) -> Finding:
    kept = options.retention_seconds
    if known.retry_horizon_seconds is None:
        return Finding(
            "retention",
            Light.GREY,
            f"{duration(kept)}; how long clients retry is not given",
            "give --retry-horizon: how long after its first try a client may still retry; and --redrive of queues",
        )
    needed = known.retry_horizon_seconds + known.redrive_seconds
    if kept > needed:
        return Finding("retention", Light.GREEN, f"{duration(kept)}, and retries come for {duration(needed)} at most")
    return Finding(
        "retention",
        Light.RED,
        f"{duration(kept)}, and a retry may come after {duration(needed)}: it would run again",
        f"set retention_seconds above {needed:.0f}"
        + ("" if options.on_expired == "refuse" else ", or tombstone_seconds with on_expired='refuse'"),
    )


def _lease(options: Options, known: Circumstances) -> Iterator[Finding]:
    given = {
        "the server's": known.server_timeout_seconds,
        "the load balancer's": known.balancer_timeout_seconds,
    }
    timeouts = {whose: seconds for whose, seconds in given.items() if seconds is not None}
    if not timeouts:
        yield Finding(
            "lease",
            Light.GREY,
            f"{duration(options.lease_seconds)}, renewed for {duration(options.max_execution_seconds)}; "
            "timeouts are not given",
            "give --server-timeout and --balancer-timeout",
        )
        return
    whose, longest = max(timeouts.items(), key=lambda pair: pair[1])
    if options.lease_seconds > longest:
        yield Finding("lease", Light.GREEN, f"{duration(options.lease_seconds)}, longer than {duration(longest)}")
    else:
        yield Finding(
            "lease",
            Light.YELLOW,
            f"{duration(options.lease_seconds)}, and {whose} timeout is {duration(longest)}: a process that freezes "
            "for the lease's length loses its claim while its client still waits",
            f"set lease_seconds above {longest:.0f}; it also is how long a key stays locked after a crash",
        )
    if options.max_execution_seconds > longest:
        yield Finding("renewal", Light.GREEN, f"goes on for {duration(options.max_execution_seconds)}")
    else:
        yield Finding(
            "renewal",
            Light.RED,
            f"ends after {duration(options.max_execution_seconds)}, and {whose} timeout is {duration(longest)}: a "
            "handler that runs on is taken over by the next retry",
            f"set max_execution_seconds above {longest:.0f}",
        )


def _key(options: Options) -> Finding:
    key = options.key
    if key is None:
        return Finding("key", Light.GREEN, f"the header {options.header}")
    if key == "fingerprint":
        return Finding(
            "key",
            Light.YELLOW,
            "the request itself: two equal requests that are both meant count as one",
            "let clients send a key, or take one from the body (key='detail.orderId')",
        )
    if callable(key):
        return Finding(
            "key",
            Light.YELLOW,
            f"the function {_name(key)}: what it takes can't be seen from here",
            "make sure that a retry gives the same key: no time, no random number, no request id",
        )
    if _VOLATILE.search(key):
        return Finding(
            "key",
            Light.RED,
            f"{key} in the body: by its name it changes with each try",
            "take what names the work, not the try: an order, an invoice, a payment",
        )
    return Finding("key", Light.GREEN, f"{key} in the body")


def _volatile_headers(options: Options) -> Finding:
    volatile = [name for name in options.fingerprint_headers if _VOLATILE.search(name)]
    if volatile:
        return Finding(
            "compared headers",
            Light.RED,
            f"{', '.join(volatile)}: a retry has others, and is refused as key-reused",
            "take them out of fingerprint_headers",
        )
    return Finding("compared headers", Light.GREEN, ", ".join(options.fingerprint_headers) or "none")


def _missing_keys(options: Options) -> Finding:
    if options.require_key:
        return Finding("missing keys", Light.GREEN, "refused with 400 key-missing")
    return Finding(
        "missing keys",
        Light.YELLOW,
        "let through: such a request runs unprotected",
        "set require_key=True where every client sends keys, and exempt what can't by exempt_paths",
    )


def _mismatch(options: Options) -> Finding:
    if options.payload is None:
        return Finding("mismatch", Light.GREEN, "the whole request is compared; another one gets 422 key-reused")
    told = options.payload if isinstance(options.payload, str) else f"what {_name(options.payload)} gives"
    return Finding(
        "mismatch",
        Light.YELLOW,
        f"only {told} is compared: a retry that differs elsewhere gets the first answer",
        "leave payload out, unless what it leaves out changes between tries",
    )


def _in_progress(options: Options, known: Circumstances) -> Finding:
    balancer = known.balancer_timeout_seconds
    if not options.wait_seconds:
        return Finding("in progress", Light.GREEN, "409 in-progress with Retry-After, at once")
    if balancer is not None and options.wait_seconds >= balancer:
        return Finding(
            "in progress",
            Light.RED,
            f"waits {duration(options.wait_seconds)}, and the load balancer gives up after {duration(balancer)}",
            f"set wait_seconds below {balancer:.0f}",
        )
    return Finding(
        "in progress",
        Light.GREEN,
        f"409 in-progress with Retry-After, after {duration(options.wait_seconds)} of waiting",
    )


def _caller(options: Options, known: Circumstances) -> Finding:
    if callable(options.caller):
        return Finding("caller", Light.GREEN, f"the function {_name(options.caller)}")
    if options.caller == SHARED_CALLER:
        return Finding("caller", Light.GREEN, "shared: all callers have one key space, and that is meant")
    if known.default_caller is not None:
        return Finding("caller", Light.GREEN, known.default_caller)
    return Finding(
        "caller",
        Light.YELLOW,
        "none: callers are told apart by Authorization and X-Api-Key alone, so a refreshed token is another caller",
        "set caller to a function that names the account, or to 'shared' if that is meant",
    )


def _outage(options: Options) -> Finding:
    if options.on_store_error == "refuse":
        return Finding("store away", Light.GREEN, "503 before anything runs")
    return Finding(
        "store away",
        Light.YELLOW,
        "bypass: requests run unprotected while the table can't be reached",
        "set on_store_error='refuse' where running twice is worse than not running",
    )


def _timeouts(store: Store, known: Circumstances) -> Finding:
    regional: Mapping[str, Store] = getattr(store, "stores", {"": store})  # a store for each region
    each = [getattr(one, "slowest_call_seconds", None) for one in regional.values()]
    slowest = max((seconds for seconds in each if seconds is not None), default=None)
    deadline = store.deadline_seconds
    if slowest is None:
        return Finding("SDK timeouts", Light.GREEN, "no SDK in between")
    if slowest > deadline:
        return Finding(
            "SDK timeouts",
            Light.RED,
            f"one call may take {duration(slowest)}, and a decision has {duration(deadline)}",
            "give the client shorter timeouts and no retries of its own, or let the store make its own",
        )
    limits = [s for s in (known.server_timeout_seconds, known.balancer_timeout_seconds) if s is not None]
    # A request may need two decisions before its answer goes out: to claim, and to record.
    if limits and 2 * deadline >= min(limits):
        return Finding(
            "SDK timeouts",
            Light.YELLOW,
            f"claiming and recording may take {duration(2 * deadline)}, and the shortest timeout is "
            f"{duration(min(limits))}",
            "set deadline_seconds of the store to less than half of it",
        )
    return Finding("SDK timeouts", Light.GREEN, f"a call {slowest:.1f} s, a decision {deadline:.1f} s at most")


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__name__)
