"""A payments API on Django."""
