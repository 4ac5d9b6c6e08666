"""Requests and answers as they go over the wire: AWS JSON 1.0, as DynamoDB speaks it; no I/O.

https://smithy.io/2.0/aws/protocols/aws-json-1_0-protocol.html. Binary attributes travel in base64.
"""

from __future__ import annotations

import json
from binascii import a2b_base64, b2a_base64, crc32
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

from botocore.exceptions import ChecksumError, ClientError
from botocore.parsers import ResponseParserError

from idem_middleware.stores.dynamodb.requests import Request

__all__ = ["action_of", "decode", "encode"]


def action_of(operation: str) -> str:
    """DynamoDB's name for what boto3 calls so: put_item is PutItem."""
    return operation.title().replace("_", "")


# --- requests ---------------------------------------------------------------------------------------------------------


def _base64(value: object) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return b2a_base64(value, newline=False).decode()
    raise TypeError(f"a request has no {type(value).__name__}")


_encode_text = json.JSONEncoder(separators=(",", ":"), default=_base64).encode


def _encode_by_json(request: Request) -> bytes:
    return _encode_text(request).encode()


def _best() -> tuple[Callable[[Request], bytes], Callable[[bytes], Any]]:
    try:
        import orjson  # noqa: PLC0415  # optional
    except ImportError:
        return _encode_by_json, json.loads

    def encode(request: Request) -> bytes:
        try:
            return orjson.dumps(request, default=_base64)
        except orjson.JSONEncodeError:  # lone surrogates, which json escapes and DynamoDB refuses by itself
            return _encode_by_json(request)

    return encode, orjson.loads


encode, _loads = _best()


# --- answers ----------------------------------------------------------------------------------------------------------


def decode(operation: str, status: int, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """Read an answer, as boto3's client would give it. `headers` takes names in lower case.

    Raises:
        ClientError: the answer is an error; `response` has its members, the item that stands there among them.
        ChecksumError, ResponseParserError: it is damaged, or none of DynamoDB's.

    """
    checksum = headers.get("x-amz-crc32")
    if checksum is not None and checksum != str(crc32(body)):
        raise ChecksumError(checksum_type="crc32", expected_checksum=checksum, actual_checksum=str(crc32(body)))
    metadata = {
        "HTTPStatusCode": status,
        "HTTPHeaders": headers,
        "RequestId": headers.get("x-amzn-requestid", ""),
        "RetryAttempts": 0,
    }
    if status == HTTPStatus.OK:
        if body == b"{}":
            return {"ResponseMetadata": metadata}
        answer = _object(body)
        if answer is None:
            raise ResponseParserError(f"the answer to {operation} is no JSON object of {len(body)} bytes")
        _restore_members(operation, answer)
        answer["ResponseMetadata"] = metadata
        return answer
    failure = _object(body) or {}
    failure["Error"] = {"Code": _code(failure, status, headers), "Message": _message(failure)}
    _restore_members(operation, failure)
    failure["ResponseMetadata"] = metadata
    raise ClientError(failure, action_of(operation))  # type: ignore[arg-type]  # its stub knows no further members


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        parsed = _loads(body)
    except (ValueError, RecursionError):  # DynamoDB nests no deeper than 32 levels
        return None
    return parsed if isinstance(parsed, dict) else None


def _code(failure: Mapping[str, Any], status: int, headers: Mapping[str, str]) -> str:
    """The error's name without its name space; where a proxy answered, the status."""
    code = failure.get("__type") or headers.get("x-amzn-errortype") or str(status)
    return str(code).partition(":")[0].rpartition("#")[2]


def _message(failure: Mapping[str, Any]) -> str:
    return str(failure.get("message", failure.get("Message", "")))


def _restore_members(operation: str, answer: dict[str, Any]) -> None:
    """Make bytes of the binary attributes in the members that have attributes. In place: nobody else has it."""
    try:
        for name in ("Item", "Attributes"):
            if name in answer:
                _restore_item(answer[name])
        responses = answer.get("Responses")
        if isinstance(responses, dict):  # of BatchGetItem: items by table
            for items in responses.values():
                _restore_items(items)
        elif responses is not None:  # of TransactGetItems
            _restore_items(response["Item"] for response in responses if "Item" in response)
        for unprocessed in answer.get("UnprocessedKeys", {}).values():
            _restore_items(unprocessed["Keys"])
        _restore_items(reason["Item"] for reason in answer.get("CancellationReasons", ()) if "Item" in reason)
        _restore_items(answer.get("Items", ()))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as exc:
        raise ResponseParserError(f"the answer to {operation} has another shape than DynamoDB's") from exc


def _restore_items(items: Iterable[dict[str, Any]]) -> None:
    for item in items:
        _restore_item(item)


def _restore_item(item: dict[str, Any]) -> None:
    for typed in item.values():
        _restore(typed)


def _restore(typed: dict[str, Any]) -> None:
    for kind, value in typed.items():
        if kind == "B":
            typed["B"] = a2b_base64(value, strict_mode=True)
        elif kind == "M":
            _restore_item(value)
        elif kind == "L":
            for element in value:
                _restore(element)
        elif kind == "BS":
            typed["BS"] = [a2b_base64(element, strict_mode=True) for element in value]
