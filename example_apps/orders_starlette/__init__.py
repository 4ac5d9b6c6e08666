"""Orders with stock in a second table: exactly once, whatever crashes when."""
