"""The draft's sequences against a running server, whatever it is written in. Own code, and nothing but HTTP.

The draft is the IETF's Internet-Draft "The Idempotency-Key HTTP Header Field" (07 of 2025-10, expired).
"""

from __future__ import annotations

from idem_middleware.cli.conformance.exchange import Target, Unreachable
from idem_middleware.cli.conformance.sequences import SEQUENCES, Outcome, Sequence, Verdict, run

__all__ = ["SEQUENCES", "Outcome", "Sequence", "Target", "Unreachable", "Verdict", "run"]
