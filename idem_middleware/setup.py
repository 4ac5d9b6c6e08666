"""From what a user wrote down to an engine and its options: the same for every adapter."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from idem_middleware.blocking.engine import Engine
from idem_middleware.errors import ConfigurationError
from idem_middleware.options import Options
from idem_middleware.stores.base import Store
from idem_middleware.stores.memory import MemoryStore
from idem_middleware.stores.urls import store_of

__all__ = ["build", "placement_problems"]

logger = logging.getLogger("idem_middleware")

_warned = threading.Event()
_hinted = threading.Event()


def build(store: Store | str | None, engine: Engine | None, options: Mapping[str, Any]) -> tuple[Engine, Options]:
    """The engine to use and the options in force.

    Raises:
        ConfigurationError: both a store and an engine or neither, wrong or unknown options; all problems at once.
    """
    problems: list[str] = []
    if (store is None) == (engine is None):
        problems.append(
            "give a store ('dynamodb://TABLE?region=…', 'memory://' for a single process) or an engine that has one"
        )
    made: Store | None = None
    if store is not None and engine is None:
        try:
            made = store_of(store)
        except ConfigurationError as error:
            problems.extend(error.problems)
    chosen: Options | None = None
    try:
        chosen = Options.from_mapping(options, base=None if engine is None else engine.options)
    except ConfigurationError as error:
        problems.extend(error.problems)
    if made is not None and chosen is not None and not problems:
        try:
            engine = Engine(made, chosen)
        except ConfigurationError as error:
            problems.extend(error.problems)
    if engine is not None and chosen is not None and not problems:
        try:
            engine.check(chosen)
        except ConfigurationError as error:
            problems.extend(error.problems)
        problems.extend(placement_problems(engine.store, chosen))
    if problems or engine is None or chosen is None:
        raise ConfigurationError([*dict.fromkeys(problems)])
    _warn_without_caller(chosen)
    _hint_at_guesses(chosen, engine.store)
    return engine, chosen


def placement_problems(store: Store, options: Options, *, default_caller: bool = False) -> list[str]:
    """What is wrong with these options for a store that keeps each caller's records together.

    `default_caller`: the framework names a caller where none is configured.
    """
    if not getattr(store, "by_caller", False) or callable(options.caller) or options.mode == "off":
        return []
    if options.caller is None and default_caller:
        return []
    return ["the store's layout 'caller' needs a function as caller: without one all keys lie in one partition"]


def _warn_without_caller(options: Options) -> None:
    """Once per process: the one default that a service with several users has to change."""
    if options.caller is None and options.mode != "off" and not _warned.is_set():
        _warned.set()
        logger.warning(
            "idempotency: no caller is configured, so all clients share one key space and are told apart by their "
            "Authorization and X-Api-Key headers alone. Set caller to a function that gives the account or user, "
            "or to 'shared' if this is meant."
        )


def _hint_at_guesses(options: Options, store: Store) -> None:
    """Once per process: who can read the table can guess short bodies, and read the answers."""
    bare = options.fingerprint_secret is None and options.cipher is None
    if bare and options.mode != "off" and not isinstance(store, MemoryStore) and not _hinted.is_set():
        _hinted.set()
        logger.warning(
            "idempotency: neither fingerprint_secret nor cipher is set, so whoever can read the table can read stored "
            "answers, and test guesses about short bodies, such as card numbers, against their fingerprints."
        )
