"""What stands in for AWS in tests: whoever put itself between botocore and the network is asked here, too.

moto's `mock_aws` is a handler of botocore's event `before-send`, in the list that every session starts with. A request
that a handler answers is never sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from botocore.awsrequest import AWSPreparedRequest, HeadersDict
from botocore.handlers import BUILTIN_HANDLERS

__all__ = ["Interceptor", "intercepted", "interceptors"]

Interceptor = Callable[..., Any]
_EVENT = "before-send"


class _Known:
    """The handlers found last, and in how long a list: it only grows."""

    length = -1
    handlers: tuple[Interceptor, ...] = ()


def interceptors() -> tuple[Interceptor, ...]:
    """Give the handlers that may answer in AWS's place: none, but in tests."""
    if len(BUILTIN_HANDLERS) != _Known.length:
        length = len(BUILTIN_HANDLERS)
        _Known.handlers = tuple(entry[1] for entry in BUILTIN_HANDLERS if entry[0].partition(".")[0] == _EVENT)
        _Known.length = length
    return _Known.handlers


def intercepted(
    by: tuple[Interceptor, ...], url: str, headers: Mapping[str, str], body: bytes, action: str
) -> tuple[int, Mapping[str, str], bytes] | None:
    """Status, headers and body, if one of them answers; None: the request is to be sent."""
    plain: Any = HeadersDict(headers)  # what botocore puts there itself; its stubs say otherwise
    request = AWSPreparedRequest("POST", url, plain, body, stream_output=False)
    for handler in by:
        answer = handler(event_name=f"{_EVENT}.dynamodb.{action}", request=request)
        if answer is not None:
            return answer.status_code, HeadersDict(answer.headers), answer.content
    return None
