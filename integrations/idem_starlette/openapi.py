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
    """A route's settings with the header and the refusals added; what its author wrote wins.

    All goes by `openapi_extra`, which FastAPI lays over its own description, so that the 422 of a failed validation
    stays beside ours. Given its own result, as an older FastAPI does for included routers, it adds nothing.
    """
    extra = dict(settings.get("openapi_extra") or {})
    extra["responses"] = _responses(extra.get("responses") or {}, settings.get("responses") or {})
    if options.key is None:
        parameters: list[dict[str, Any]] = list(extra.get("parameters") or ())
        if not any(p.get("name", "").lower() == options.header.lower() for p in parameters):
            parameters.append(_parameter(options))
        extra["parameters"] = parameters
    return {**settings, "openapi_extra": extra}


def _parameter(options: Options) -> dict[str, Any]:
    return {
        "name": options.header,
        "in": "header",
        "required": options.require_key,
        "description": "A fresh value, a UUID for example, for each new request; the same one with every retry of it.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255},
    }


def _responses(laid_over: dict[str, Any], declared: dict[int | str, Any]) -> dict[str, Any]:
    described_by_author = {str(status) for status in declared}
    responses = dict(laid_over)
    for status in map(str, _DOCUMENTED):
        ours = _refusals(status, with_description=status not in described_by_author)
        responses[status] = {**ours, **responses.get(status, {})}
    return responses


def _refusals(status: str, *, with_description: bool) -> dict[str, Any]:
    if not with_description:
        return {"content": _PROBLEM}
    kinds = [f"{kind.title} ({kind.slug})" for kind in ProblemType if str(kind.status) == status]
    return {"description": "; ".join(kinds), "content": _PROBLEM}
