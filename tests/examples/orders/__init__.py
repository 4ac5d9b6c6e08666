"""The orders example, on workers that die."""
