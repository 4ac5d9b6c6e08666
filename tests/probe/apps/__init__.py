"""One module per framework; each builds the same routes, in its framework's own idioms."""
