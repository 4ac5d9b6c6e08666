"""The tests of the core, the adapters, the stores and the project itself."""
