"""What the OpenAPI document says of a field beyond its type: bounds and forms, as JSON schema.

These are descriptions only. The checks are made by hand, so that a refusal is a sentence and parts that are never looked at
are never built; `tests/gateway/test_openapi_fuzz.py` holds the two together.
"""

from typing import Any, Final

import msgspec

_KEY: Final = "x-described"


def described(**schema: object) -> msgspec.Meta:
    """Return an annotation that lays `schema` over a field's description; see `lay_over`."""
    return msgspec.Meta(extra_json_schema={_KEY: schema})


def lay_over(described_field: dict[str, Any]) -> None:
    """Put what `described` added where msgspec, whose own keys win, would not."""
    described_field |= described_field.pop(_KEY, {})


def between(low: float, high: float) -> msgspec.Meta:
    """A number from `low` to `high`."""
    return described(minimum=low, maximum=high)


def at_least(low: float) -> msgspec.Meta:
    """A number from `low` on."""
    return described(minimum=low)


_TEXT_PART: Final = {
    "type": "object",
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
    "required": ["type", "text"],
    "additionalProperties": False,
}

TEXT: Final[dict[str, list[object]]] = {"anyOf": [{"type": "string"}, {"type": "array", "items": _TEXT_PART}]}
"""A string, or text parts."""


def _message(properties: dict[str, object], *required: str) -> dict[str, object]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_NAME: Final = {"type": "string"}
_CALL: Final = _message(
    {
        "id": {"type": "string"},
        "type": {"const": "function"},
        "function": _message(
            {"name": {"type": "string"}, "arguments": {"type": "string"}}, "name", "arguments"
        ),
    },
    "id",
    "type",
    "function",
)

MESSAGES: Final = described(
    minItems=1,
    items={
        "anyOf": [
            _message(
                {"role": {"enum": ["system", "developer", "user"]}, "content": TEXT, "name": _NAME},
                "role",
                "content",
            ),
            _message({"role": {"const": "assistant"}, "content": TEXT, "name": _NAME}, "role", "content"),
            _message(
                {
                    "role": {"const": "assistant"},
                    "content": {"anyOf": [*TEXT["anyOf"], {"type": "null"}]},
                    "tool_calls": {"type": "array", "minItems": 1, "items": _CALL},
                },
                "role",
                "tool_calls",
            ),
            _message(
                {"role": {"const": "tool"}, "content": TEXT, "tool_call_id": {"type": "string"}},
                "role",
                "content",
                "tool_call_id",
            ),
        ]
    },
)
"""A conversation in OpenAI's form."""

BLOCK_MESSAGES: Final = described(
    minItems=1,
    items={
        "type": "object",
        "properties": {"role": {"enum": ["user", "assistant", "system"]}, "content": TEXT},
        "required": ["role", "content"],
        "additionalProperties": False,
    },
)
"""A conversation in Anthropic's form; blocks may also be of the types tool_use, tool_result and thinking."""

_TOKEN_IDS: Final = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}}

PROMPTS: Final = described(
    anyOf=[
        {"type": "string"},
        {"type": "array", "minItems": 1, "items": {"type": "string"}},
        _TOKEN_IDS,
        {"type": "array", "minItems": 1, "items": _TOKEN_IDS},
    ]
)
"""One or several texts, or lists of token ids."""

INPUT_ITEMS: Final = described(
    anyOf=[
        {"type": "string"},
        {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {
                    "type": {"const": "message"},
                    "role": {"enum": ["system", "developer", "user", "assistant"]},
                    "content": TEXT,
                },
                "required": ["role", "content"],
                "additionalProperties": False,
            },
        },
    ]
)
"""The Responses API's input; items may also be of the types function_call, function_call_output and reasoning."""
