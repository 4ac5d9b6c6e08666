"""The records of the store tests are those that the contract comes with."""

from idem_middleware.testing.samples import (
    LARGE_ANSWER,
    NOW,
    SHAPES,
    SMALL_ANSWER,
    after,
    lives,
    new_pk,
    pending,
    soon,
)

__all__ = ["LARGE_ANSWER", "NOW", "SHAPES", "SMALL_ANSWER", "after", "lives", "new_pk", "pending", "soon"]
