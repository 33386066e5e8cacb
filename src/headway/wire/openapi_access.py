"""What the OpenAPI document says where callers are asked who they are: how they say it, and what keeps them out."""

from collections.abc import Collection
from typing import Any, Final

_RATES: Final[dict[str, object]] = {
    f"x-ratelimit-{what}-{of}": {
        "description": f"{description}; only where there is a limit.",
        "schema": {"type": "string"},
    }
    for of in ("requests", "tokens")
    for what, description in (
        ("limit", f"The caller's limit of {of}"),
        ("remaining", f"{of.capitalize()} left of it"),
        ("reset", "When all of it is there again, as 1m30.5s"),
    )
}
_RETRY_AFTER: Final[dict[str, object]] = {
    "retry-after": {"required": True, "schema": {"type": "string", "pattern": "^[0-9]+$"}}
}
_CHALLENGE: Final[dict[str, object]] = {"www-authenticate": {"required": True, "schema": {"type": "string"}}}
_REFUSALS: Final[dict[str, tuple[str, dict[str, object]]]] = {
    "401": ("No token, or none that is known.", _CHALLENGE),
    "403": ("The token may not do this.", {}),
    "429": ("The caller's own limit; `code` says which.", _RETRY_AFTER | _RATES),
}
_SCHEMES: Final = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API token, or a JWT."},
    "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "The same token."},
}
_METHODS: Final = frozenset({"get", "post", "delete"})


def ask_callers(document: dict[str, Any], open_paths: Collection[str]) -> None:
    """Add to a document that every path but `open_paths` asks its caller for a token."""
    document["components"]["securitySchemes"] = _SCHEMES
    document["security"] = [{name: []} for name in _SCHEMES]
    for path, item in document["paths"].items():
        for method in _METHODS & item.keys():
            if path in open_paths:
                item[method]["security"] = []
            else:
                item[method]["responses"] = _guarded(item[method]["responses"])


def _guarded(answers: dict[str, Any]) -> dict[str, Any]:
    error = answers["default"]["content"]
    limited = {
        status: answer | {"headers": answer.get("headers", {}) | _RATES} for status, answer in answers.items()
    }
    refusals = {
        status: {"description": description, "headers": headers, "content": error}
        for status, (description, headers) in _REFUSALS.items()
    }
    return limited | refusals
