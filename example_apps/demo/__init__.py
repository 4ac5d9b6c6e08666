"""The story of a payments API under duplicates, lost answers and crashes, played over HTTP against real processes."""
