"""The rules of a call in the tags of Qwen3-Coder, for `tool_grammar`; `tool_xml_reader` describes the form.

Parameters come in the schema's order, those that are required each time. Text is free but for its end, JSON is kept to its
schema. What a schema says of text beyond the values it may have, or of how parameters depend on each other, these rules
cannot express: a `strict` function that says it is refused by name.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from headway.core.errors import InvalidRequest
from headway.gateway.tool_xml_reader import json_types
from headway.wire.tools import ToolDefinition

_END: Final = json.dumps("\n</parameter>\n")
_ANNOTATIONS: Final = frozenset(
    {"title", "description", "default", "examples", "$comment", "$schema", "deprecated"}
)
_OF_OBJECTS: Final = _ANNOTATIONS | {
    "type",
    "properties",
    "required",
    "additionalProperties",
    "$defs",
    "definitions",
}
_OF_TEXT: Final = _ANNOTATIONS | {"type", "enum", "const"}

TEXT_RULES: Final = [rf"parameter_text[lazy]: PARAMETER_TEXT {_END}", r"PARAMETER_TEXT: /(.|\n)*/"]
"""The end of a parameter that is text, with the text."""


def xml_call_rules(tool: ToolDefinition, index: int, options: Mapping[str, object]) -> list[str]:
    """Return the rule `call_{index}` and what it needs; `options`: how JSON is written. Raises InvalidRequest."""
    schema = tool.parameters or {}
    properties = schema.get("properties")
    required = schema.get("required")
    properties = properties if isinstance(properties, dict) else {}
    required = required if isinstance(required, list) else []
    if tool.strict:
        _check(tool.name, schema, _OF_OBJECTS)
    definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    parts: list[str] = []
    rules: list[str] = []
    for number, (key, value) in enumerate(properties.items()):
        name = f"parameter_{index}_{number}"
        parts.append(name if key in required else f"{name}?")
        tag = json.dumps(f"<parameter={key}>\n")
        types = json_types(value)
        if types <= {"string"} or "string" in types:
            if tool.strict:
                _check(tool.name, value if isinstance(value, dict) else {}, _OF_TEXT)
            rules.append(f"{name}: {tag} {_text(value)}")
        else:
            whole = {**definitions, **(value if isinstance(value, dict) else {}), "x-guidance": dict(options)}
            rules += [f"{name}: {tag} {name}_value {_END}", f"{name}_value: %json {json.dumps(whole)}"]
    head = json.dumps(f"<function={tool.name}>\n")
    return [f'call_{index}: {head} {" ".join(parts)} "</function>"', *rules]


def _text(schema: Any) -> str:
    values = (
        schema.get("enum", [schema["const"]] if "const" in schema else None)
        if isinstance(schema, dict)
        else None
    )
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values) or not values:
        return "parameter_text"
    return f"({' | '.join(json.dumps(value) for value in values if value)}) {_END}"


def _check(function: str, schema: Mapping[str, object], known: frozenset[str]) -> None:
    unknown = sorted(set(schema) - known)
    if unknown:
        raise InvalidRequest(
            f"The schema of the function `{function}` cannot be enforced: this model writes arguments as tagged text, "
            f"for which `{unknown[0][:100]}` is not supported; leave `strict` out.",
            param="tools",
        )
