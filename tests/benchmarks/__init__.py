"""What keeps the benchmarks working: they run, and ask what they say. Nothing here is timed."""
