"""How fast it is, as ratios measured side by side in one run. No test asserts a time."""
