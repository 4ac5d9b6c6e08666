"""The repository itself: its packaging, its scripts, and what the tests stand on."""
