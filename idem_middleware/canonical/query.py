"""The query string, apart from the order of its names and the spelling of its characters."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

__all__ = ["canonical_query"]


def canonical_query(query: str) -> bytes:
    """Write the parameters by name; those of one name in the order they came. b"" if there are none.

    `query` is text as the server gives it: Latin-1, percent-encoded. A plus is a space, `a=` is not `a`, empty
    pieces between ampersands mean nothing, and a broken percent-escape stands for itself (URL Standard,
    application/x-www-form-urlencoded).
    """
    if not query:
        return b""
    parameters = [_parameter(piece) for piece in query.split("&") if piece]
    parameters.sort(key=lambda parameter: parameter[0])
    written = bytearray()
    for name, value in parameters:
        written += len(name).to_bytes(8, "big") + name
        written += b"\0" if value is None else b"\1" + len(value).to_bytes(8, "big") + value
    return bytes(written)


def _parameter(piece: str) -> tuple[bytes, bytes | None]:
    name, equals, value = piece.partition("=")
    return _decoded(name), _decoded(value) if equals else None


def _decoded(text: str) -> bytes:
    try:
        octets = text.encode("latin-1")
    except UnicodeEncodeError:  # decoded by somebody before us
        octets = text.encode("utf-8", "surrogatepass")
    return unquote_to_bytes(octets.replace(b"+", b" "))
