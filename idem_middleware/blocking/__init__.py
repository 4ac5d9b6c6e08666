"""The engine for callers that may block."""
