"""Every interleaving of the real engine: its drivers run as coroutines of one scheduler, over a model of DynamoDB.

`python -m tests.exploration --help` explores larger worlds than the tests do.
"""
