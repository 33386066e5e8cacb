"""The fields that give an answer a shape: every form of each, conflicts, and what is refused on sight."""

import json
from typing import Any

import msgspec
import pytest

from headway.core.errors import InvalidRequest
from headway.core.request import Grammar
from headway.wire.chat_request import parse_chat
from headway.wire.completion_request import parse_completion
from headway.wire.structured import MAX_CHOICE_STRINGS, MAX_SCHEMA_DEPTH, inline_json

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def chat(**fields: Any) -> Grammar | None:
    body = {"messages": [{"role": "user", "content": "x"}], **fields}
    return parse_chat(json.dumps(body).encode()).options.grammar


def completion(**fields: Any) -> Grammar | None:
    return parse_completion(json.dumps({"prompt": "x", **fields}).encode()).options.grammar


def refused(**fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        chat(**fields)
    return caught.value


def of_schema(format_: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": format_}


@pytest.mark.parametrize(
    "fields",
    [{}, {"response_format": {"type": "text"}}, {"response_format": None}, {"guided_json": None}],
    ids=str,
)
def test_free_text(fields: dict[str, Any]) -> None:
    assert chat(**fields) is None
    assert completion(**fields) is None


@pytest.mark.parametrize(
    ("fields", "kind", "source", "param"),
    [
        ({"response_format": {"type": "json_object"}}, "json_schema", {"type": "object"}, "response_format"),
        (
            {"response_format": of_schema({"name": "n", "schema": SCHEMA, "strict": True})},
            "json_schema",
            SCHEMA,
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": of_schema({"schema": SCHEMA, "strict": None, "description": "d"})},
            "json_schema",
            SCHEMA,
            "response_format.json_schema.schema",
        ),
        ({"guided_json": SCHEMA}, "json_schema", SCHEMA, "guided_json"),
        ({"guided_json": json.dumps(SCHEMA)}, "json_schema", SCHEMA, "guided_json"),
        ({"structured_outputs": {"json": SCHEMA}}, "json_schema", SCHEMA, "structured_outputs.json"),
        (
            {"structured_outputs": {"json_object": True, "regex": None}},
            "json_schema",
            {"type": "object"},
            "structured_outputs.json_object",
        ),
        ({"guided_regex": "a+"}, "regex", "a+", "guided_regex"),
        ({"structured_outputs": {"regex": "a+"}}, "regex", "a+", "structured_outputs.regex"),
        ({"guided_choice": ["a.b", "(c)", "a.b"]}, "regex", r"a\.b|\(c\)", "guided_choice"),
        ({"structured_outputs": {"choice": ["é"]}}, "regex", "é", "structured_outputs.choice"),
        ({"guided_grammar": 'start: "::="'}, "lark", 'start: "::="', "guided_grammar"),
        ({"guided_grammar": 'root ::= "a"'}, "gbnf", 'root ::= "a"', "guided_grammar"),
        (
            {"structured_outputs": {"grammar": '# c\n root ::= "a"'}},
            "gbnf",
            '# c\n root ::= "a"',
            "structured_outputs.grammar",
        ),
    ],
    ids=str,
)
def test_each_form_becomes_a_grammar(fields: dict[str, Any], kind: str, source: Any, param: str) -> None:
    for grammar in (chat(**fields), completion(**fields)):
        assert grammar is not None
        assert (grammar.kind, grammar.param) == (kind, param)
        assert (json.loads(grammar.source) if kind == "json_schema" else grammar.source) == source


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_object", "json_schema": {}}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": of_schema({"name": "n"})}, "response_format.json_schema.schema"),
        ({"response_format": of_schema({"schema": None})}, "response_format.json_schema.schema"),
        ({"response_format": of_schema({"schema": True})}, "response_format.json_schema.schema"),
        ({"response_format": of_schema({"schema": SCHEMA, "x": 1})}, "response_format.json_schema"),
        ({"response_format": "json_object"}, "response_format"),
        ({"response_format": {}}, "response_format.type"),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_json": [SCHEMA]}, "guided_json"),
        ({"guided_json": 5}, "guided_json"),
        ({"guided_regex": 5}, "guided_regex"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_choice": [1]}, "guided_choice[0]"),
        ({"guided_choice": [str(i) for i in range(MAX_CHOICE_STRINGS + 1)]}, "guided_choice"),
        ({"guided_grammar": ["a"]}, "guided_grammar"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"json_object": False}}, "structured_outputs"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs"),
        ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern"),
        ({"guided_regex": "a" * 140_000}, "guided_regex"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_malformed_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    error = refused(**fields)
    assert error.param == param
    assert f"`{param}`" in error.message


@pytest.mark.parametrize(
    ("fields", "first", "second"),
    [
        (
            {"response_format": {"type": "json_object"}, "guided_regex": "a"},
            "response_format",
            "guided_regex",
        ),
        ({"guided_choice": ["a"], "guided_json": SCHEMA}, "guided_json", "guided_choice"),
        (
            {"structured_outputs": {"regex": "a", "choice": ["a"]}},
            "structured_outputs.regex",
            "structured_outputs.choice",
        ),
        (
            {"structured_outputs": {"regex": "a"}, "guided_grammar": 'start: "a"'},
            "guided_grammar",
            "structured_outputs.regex",
        ),
    ],
    ids=str,
)
def test_two_shapes_are_refused_naming_both(fields: dict[str, Any], first: str, second: str) -> None:
    error = refused(**fields)
    assert f"`{first}`" in error.message
    assert f"`{second}`" in error.message


def test_a_schema_nested_too_deeply_is_refused_however_it_is_sent() -> None:
    def nested(depth: int) -> str:
        return '{"items":' * (depth - 1) + '{"const": "]{[\\""}' + "}" * (depth - 1)

    assert chat(guided_json=nested(MAX_SCHEMA_DEPTH)) is not None
    for schema in (nested(MAX_SCHEMA_DEPTH + 1), json.loads(nested(MAX_SCHEMA_DEPTH + 1)), nested(10_000)):
        error = refused(guided_json=schema)
        assert error.param == "guided_json"
        assert "levels deep" in error.message


def test_a_schema_within_lark_keeps_our_white_space() -> None:
    text = inline_json(b'{"type":"object","x-guidance":{"lenient":true}}')
    assert text.startswith("%json {")
    assert json.loads(text.removeprefix("%json "))["x-guidance"]["lenient"] is False
    with pytest.raises(msgspec.ValidationError):
        inline_json(b"[]")
