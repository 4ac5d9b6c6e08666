"""The same application, bare, protected by us, and protected by others, each in an environment of its own."""
