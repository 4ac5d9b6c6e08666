"""Helpers that tests share: DynamoDB Local, child processes, raw HTTP."""
