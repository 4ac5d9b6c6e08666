"""A payments API on Flask."""
