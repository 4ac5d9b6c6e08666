"""What both engines do alike: all that needs no store."""

from __future__ import annotations

from collections.abc import Sequence

from idem_middleware.errors import ConfigurationError
from idem_middleware.identity import Admitted, Identity, Passed, admit, identify
from idem_middleware.messages import Request, header_values
from idem_middleware.options import Options
from idem_middleware.outcomes import Refused, Replayed, Unprotected, refusal
from idem_middleware.problems import Problem, ProblemType
from idem_middleware.runtime import Runtime
from idem_middleware.stores.base import Store
from idem_middleware.stores.urls import store_of
from idem_middleware.transacting import require_transactions

__all__ = ["BaseEngine"]


class BaseEngine:
    """A store, the options of the application, and the steps before a claim."""

    def __init__(self, store: Store | str, options: Options | None = None, *, runtime: Runtime | None = None) -> None:
        if runtime is None:
            options = Options.from_mapping({}) if options is None else options
            runtime = Runtime(store_of(store), options)
        elif store is not runtime.store:
            raise ConfigurationError(["the runtime belongs to another store"])
        self.runtime = runtime
        self.options = options or runtime.options
        self.store: Store = runtime.store
        self.check(self.options)

    def check(self, options: Options) -> None:
        """Check that this engine's store can do what the options ask for.

        Raises:
            ConfigurationError: it can't.
        """
        if options.claim_items is not None:
            require_transactions(self.store)

    def admit(self, options: Options, method: str, path: str, key_lines: Sequence[str]) -> Passed | Admitted | Refused:
        """Judge a request by its head, before its body is read.

        `path` is decoded; `key_lines` are the values of all field lines of the key's header.
        """
        admission = admit(options, method, path, key_lines)
        if not isinstance(admission, Problem):
            return admission
        refused = self.refuse(admission, options)
        return Passed() if options.mode == "observe" else refused

    def admit_request(self, request: Request) -> Passed | Admitted | Refused:
        """The same, by the engine's own options."""
        return self.admit(
            self.options, request.method, request.path, header_values(request.headers, self.options.header)
        )

    def identify(
        self, request: Request, admitted: Admitted, caller: str | None
    ) -> Identity | Replayed | Refused | Unprotected:
        """Say what this request is, or what its client gets instead."""
        identity = identify(request, admitted, caller)
        if isinstance(identity, Problem):
            return self.enforced(self.refuse(identity, admitted.options), admitted.options)
        return Unprotected() if isinstance(identity, Passed) else identity

    def refuse(self, problem: Problem, options: Options) -> Refused:
        """The answer that tells a problem, and its event."""
        return refusal(self.runtime, options, problem)

    def refuse_caller(self, admitted: Admitted) -> Replayed | Refused | Unprotected:
        """What a request gets whose caller is not known."""
        return self.enforced(self.refuse(Problem(ProblemType.CALLER_UNKNOWN), admitted.options), admitted.options)

    def enforced(self, outcome: Replayed | Refused | Unprotected, options: Options) -> Replayed | Refused | Unprotected:
        """What only observes decides and reports, and lets everything run."""
        return Unprotected() if options.mode == "observe" else outcome

    def drain(self, timeout_seconds: float = 5.0) -> bool:
        """Finish what goes on in the background, before the process ends; False if it could not be in time."""
        return self.runtime.upkeep.drain(timeout_seconds)
