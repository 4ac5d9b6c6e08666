"""What a protected route says of itself in OpenAPI: the key's header, and the refusals as problem+json."""

from __future__ import annotations

from typing import Any

from idem_middleware.options import Options
from idem_middleware.problems import ProblemType

__all__ = ["described"]

_PROBLEM = {
    "application/problem+json": {
        "schema": {
            "type": "object",
            "title": "Problem",
            "required": ["type", "title", "status", "detail"],
            "properties": {
                "type": {"type": "string", "format": "uri-reference"},
                "title": {"type": "string"},
                "status": {"type": "integer"},
                "detail": {"type": "string"},
            },
        }
    }
}
_DOCUMENTED = (400, 409, 422, 503)


def described(settings: dict[str, Any], options: Options) -> dict[str, Any]:
    """A route's settings with the header and the refusals added; what its author wrote wins."""
    own = settings.get("responses") or {}
    written = {str(status) for status in own}
    responses = {**{s: r for s, r in _refusals().items() if str(s) not in written}, **own}
    extra = dict(settings.get("openapi_extra") or {})
    if options.key is None:
        parameters = list(extra.get("parameters") or ())
        if not any(p.get("name", "").lower() == options.header.lower() for p in parameters):
            parameters.append(_parameter(options))
        extra["parameters"] = parameters
    return {**settings, "responses": responses, "openapi_extra": extra}


def _parameter(options: Options) -> dict[str, Any]:
    return {
        "name": options.header,
        "in": "header",
        "required": options.require_key,
        "description": "A fresh value, a UUID for example, for each new request; the same one with every retry of it.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255},
    }


def _refusals() -> dict[int | str, dict[str, Any]]:
    return {
        status: {
            "description": "; ".join(f"{kind.title} ({kind.slug})" for kind in ProblemType if kind.status == status),
            "content": _PROBLEM,
        }
        for status in _DOCUMENTED
    }
