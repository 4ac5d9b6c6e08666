"""What an operator sees: one table of instruments, and the observers that fill them.

`prometheus`, `opentelemetry` and `cloudwatch` each hold one observer, for `Options(observers=[…])`; `boards` gives the
dashboard and the alert rules that go with the Prometheus names. None of it is imported until somebody asks for it.
"""
