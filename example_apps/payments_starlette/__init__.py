"""A payments API on Starlette."""
