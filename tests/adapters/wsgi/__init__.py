"""The WSGI middleware."""
