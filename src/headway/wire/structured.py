"""What shape an answer must have: `response_format` and vLLM's `guided_*` and `structured_outputs`, as one `Grammar`.

OpenAI's fields are those of its API reference ("Structured outputs"); vLLM's are those of its documentation, the older
`guided_json`, `guided_regex`, `guided_choice`, `guided_grammar` and the newer `structured_outputs`. This file knows no
grammar library: whether a schema can be enforced is found out where it is compiled (`models.grammar`), with the field named.

`strict` of a JSON schema is accepted and changes nothing: a schema is always enforced, or refused.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Final

import msgspec

from headway.core.errors import InvalidRequest
from headway.core.request import Grammar
from headway.wire.fields import MAX_SHORT_BYTES, shown

MAX_SCHEMA_DEPTH: Final = 100
"""Most levels of objects and lists in a JSON schema, as text. The grammar library's JSON reader stops at 128."""
MAX_CHOICE_STRINGS: Final = 10_000

_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_REGEX_SPECIAL: Final = re.compile(r"[\\.+*?()|\[\]{}^$]")
_GBNF_RULE: Final = re.compile(r"^\s*[\w-]+\s*::=", re.MULTILINE)
"""What every GBNF grammar has and no Lark grammar: there a rule's name is followed by a single colon."""
_ANY_OBJECT: Final = '{"type": "object"}'
_JSON: Final = msgspec.Meta(description="a JSON schema, as an object or as a string that holds one")

Schema = Annotated[msgspec.Raw, _JSON]


class JsonSchemaFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`response_format.json_schema`."""

    name: str | None = None
    description: str | None = None
    schema: Schema = msgspec.field(default_factory=msgspec.Raw)  # empty = absent
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`response_format`."""

    type: str
    json_schema: JsonSchemaFormat | None = None


class StructuredOutputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """vLLM's `structured_outputs`: exactly one of these."""

    json: Schema = msgspec.field(default_factory=msgspec.Raw)  # empty = absent
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class StructuredFields(msgspec.Struct, kw_only=True):
    """The fields that give an answer a shape, typed, None = not given."""

    response_format: ResponseFormat | None = None
    guided_json: Schema = msgspec.field(default_factory=msgspec.Raw)  # empty = absent
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    structured_outputs: StructuredOutputs | None = None


def grammar_of(fields: StructuredFields) -> Grammar | None:
    """Return what the answer must match, None = anything.

    Raises InvalidRequest, naming the field, for one that is malformed, and naming both when there are two.
    """
    found = [
        *_response_format(fields.response_format),
        *_guided(fields),
        *_outputs(fields.structured_outputs),
    ]
    if len(found) > 1:
        names = " and ".join(f"`{grammar.param}`" for grammar in found)
        raise InvalidRequest(
            f"An answer can have one shape only; {names} are given. Leave all but one out.",
            param=found[1].param,
        )
    return found[0] if found else None


def inline_json(schema: msgspec.Raw | bytes) -> str:
    """Return a JSON schema, an object, as a value within a Lark grammar, with the white space of `models.grammar`.

    Raises msgspec.DecodeError or msgspec.ValidationError for what is no JSON object.
    """
    fields = msgspec.json.decode(schema, type=dict[str, msgspec.Raw])
    fields["x-guidance"] = msgspec.Raw(
        b'{"item_separator":", ?","key_separator":": ?","whitespace_flexible":false,"coerce_one_of":false,"lenient":false}'
    )
    return "%json " + msgspec.json.encode(fields).decode()


def check_depth(schema: msgspec.Raw | bytes, param: str) -> None:
    """Raise InvalidRequest for JSON nested more than `MAX_SCHEMA_DEPTH` deep."""
    depth = deepest = 0
    for byte in _STRING.sub(b"", bytes(schema)):
        if byte in b"{[":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"}]":
            depth -= 1
    if deepest > MAX_SCHEMA_DEPTH:
        raise InvalidRequest(
            f"The schema in `{param}` is nested {deepest} levels deep; at most {MAX_SCHEMA_DEPTH} are accepted.",
            param=param,
        )


def _response_format(value: ResponseFormat | None) -> Iterator[Grammar]:
    if value is None or (value.type == "text" and value.json_schema is None):
        return
    if value.type == "json_object" and value.json_schema is None:
        yield Grammar(kind="json_schema", source=_ANY_OBJECT, param="response_format")
    elif value.type == "json_schema":
        param = "response_format.json_schema"
        if value.json_schema is None:
            raise InvalidRequest(
                f"`{param}` is missing; send it, or the type `json_object` for any object.", param=param
            )
        yield from _json(value.json_schema.schema, f"{param}.schema", required=True)
    elif value.type in ("text", "json_object"):
        raise InvalidRequest(
            f"A `json_schema` in `response_format` needs the type `json_schema`; it is `{value.type}`.",
            param="response_format",
        )
    else:
        raise InvalidRequest(
            f"The type in `response_format` must be text, json_object or json_schema; it is {shown(value.type)}.",
            param="response_format",
        )


def _guided(fields: StructuredFields) -> Iterator[Grammar]:
    yield from _json(fields.guided_json, "guided_json")
    yield from _regex(fields.guided_regex, "guided_regex")
    yield from _choice(fields.guided_choice, "guided_choice")
    yield from _grammar(fields.guided_grammar, "guided_grammar")


def _outputs(value: StructuredOutputs | None) -> Iterator[Grammar]:
    if value is None:
        return
    where = "structured_outputs"
    found = [
        *_json(value.json, f"{where}.json"),
        *_regex(value.regex, f"{where}.regex"),
        *_choice(value.choice, f"{where}.choice"),
        *_grammar(value.grammar, f"{where}.grammar"),
    ]
    if value.json_object:
        found.append(Grammar(kind="json_schema", source=_ANY_OBJECT, param=f"{where}.json_object"))
    if not found:
        raise InvalidRequest(
            f"`{where}` must hold json, regex, choice, grammar, or json_object: true.", param=where
        )
    yield from found


def _json(schema: msgspec.Raw, param: str, *, required: bool = False) -> Iterator[Grammar]:
    """Yield the grammar of a schema that is there: an object, or a string that holds one."""
    text = bytes(schema)
    if text in (b"", b"null"):
        if required:
            raise InvalidRequest(f"`{param}` is missing; send a JSON schema.", param=param)
        return
    if len(text) > MAX_SHORT_BYTES:
        raise InvalidRequest(f"The field `{param}` is longer than {MAX_SHORT_BYTES} bytes.", param=param)
    try:
        if text.startswith(b'"'):
            text = msgspec.json.decode(text, type=str).encode()
        check_depth(text, param)
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        source = text.decode()  # msgspec looks for broken UTF-8 only in strings that it builds
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise InvalidRequest(f"`{param}` must be a JSON schema, an object.", param=param) from None
    yield Grammar(kind="json_schema", source=source, param=param)


def _regex(source: str | None, param: str) -> Iterator[Grammar]:
    if source is not None:
        yield Grammar(kind="regex", source=source, param=param)


def _choice(strings: list[str] | None, param: str) -> Iterator[Grammar]:
    if strings is None:
        return
    if not 1 <= len(strings) <= MAX_CHOICE_STRINGS:
        raise InvalidRequest(
            f"`{param}` must hold 1 to {MAX_CHOICE_STRINGS} strings; it holds {len(strings)}.", param=param
        )
    alternatives = (_REGEX_SPECIAL.sub(r"\\\g<0>", text) for text in dict.fromkeys(strings))
    yield Grammar(kind="regex", source="|".join(alternatives), param=param)


def _grammar(source: str | None, param: str) -> Iterator[Grammar]:
    if source is not None:
        yield Grammar(kind="gbnf" if _GBNF_RULE.search(source) else "lark", source=source, param=param)
