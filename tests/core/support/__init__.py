"""Helpers of the tests of the core."""
