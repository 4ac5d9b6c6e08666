"""Consumers of messages that do each piece of work once: docs/messages.md shows and explains them."""
