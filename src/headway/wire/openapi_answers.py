"""What operations of the OpenAPI document answer with: parts that all its modules use."""

from collections.abc import Sequence
from typing import Final

ERROR: Final = "The caller's mistake (4xx), or the server's limit (503, with Retry-After)."


def plain(summary: str, content: dict[str, object], error: str = "ErrorBody") -> dict[str, object]:
    """An operation without a body, which answers with `content`; `error`: the schema of its errors."""
    return {
        "summary": summary,
        "responses": {"200": {"description": "Success.", "content": content}, "default": failure(error)},
    }


def taking(
    summary: str,
    request: str,
    answer: str,
    *,
    error: str = "ErrorBody",
    parameters: Sequence[dict[str, object]] = (),
) -> dict[str, object]:
    """A path that takes a body of schema `request` by POST."""
    taken = {"parameters": parameters, "requestBody": body_of(request)}
    return {"post": plain(summary, json_content(answer), error) | taken}


def failure(error: str = "ErrorBody", description: str = ERROR) -> dict[str, object]:
    """An answer that is an error."""
    return {"description": description, "content": json_content(error)}


def body_of(request: str) -> dict[str, object]:
    """A request's body, which must be there."""
    return {"required": True, "content": json_content(request)}


def json_content(name: str) -> dict[str, object]:
    """JSON of schema `name`."""
    return {"application/json": {"schema": ref(name)}}


def ref(name: str) -> dict[str, str]:
    """A reference to a schema."""
    return {"$ref": f"#/components/schemas/{name}"}
