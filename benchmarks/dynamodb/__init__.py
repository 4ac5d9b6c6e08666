"""The memory of the stub: tables that keep what was written, conditions, and what Amazon would bill."""
