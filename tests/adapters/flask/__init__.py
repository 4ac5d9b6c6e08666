"""The Flask extension."""
