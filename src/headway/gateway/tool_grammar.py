"""Grammars that force tool calls, or keep those that a model begins to their schemas, in the syntax of the model.

A grammar is text in the Lark dialect that `models/grammar.py` describes. Calls are written as chat templates write them,
with one space after colons and commas, so that a forced call looks like those the model was trained on. Markers that are
control tokens are forced as these tokens, others as text.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from headway.core.errors import InvalidRequest
from headway.core.request import Grammar
from headway.gateway.tool_support import ToolSupport
from headway.gateway.tool_xml_grammar import TEXT_RULES, xml_call_rules
from headway.wire.chat_request import ChatCall
from headway.wire.structured import inline_json
from headway.wire.tools import ToolDefinition

_SPACING: Final = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_EMPTY_OBJECT: Final[Mapping[str, object]] = {"properties": {}, "additionalProperties": False}


def tools_grammar(call: ChatCall, support: ToolSupport) -> Grammar | None:
    """Return the grammar of an answer to a call with tools, None if it is free; raises InvalidRequest.

    A call that is asked for ("required", or one function) is forced from the answer's first token on. Otherwise the
    model is free until it begins a call, which is then kept to the schemas if any function is `strict`. With a schema for
    the answer (`response_format`) it writes that or calls, unless its calls are JSON like the answer.
    """
    choice, answer = call.tool_choice, call.options.grammar
    forced = choice.mode in ("required", "named")
    if answer is not None and (forced or answer.kind != "json_schema" or support.syntax.is_bare):
        raise InvalidRequest(
            f"`{answer.param}` cannot be combined with "
            + ("a call that `tool_choice` asks for" if forced else "`tools`")
            + "; set `tool_choice` to none, or leave the format of the answer out.",
            param=answer.param,
        )
    tools = [tool for tool in call.tools if choice.name in (None, tool.name)]
    several = call.parallel_tool_calls and choice.mode != "named"
    rules = _call_rules(tools, support)
    if forced:
        return _grammar([f"start: {_calls(support, several=several)}", *rules])
    if answer is not None:
        return _grammar(
            [
                f"start: answer | {_calls(support, several=several)}",
                f"answer: {inline_json(answer.source.encode())}",
                *rules,
            ]
        )
    if any(tool.strict for tool in tools):
        return _grammar([*_free_until_calls(support, several=several), *rules])
    return None


def _grammar(rules: Sequence[str]) -> Grammar:
    return Grammar(kind="lark", source="\n".join(rules), param="tools")


def _call_rules(tools: Sequence[ToolDefinition], support: ToolSupport) -> list[str]:
    """Return the rule `call`, one call's object."""
    rules = ["call: " + " | ".join(f"call_{index}" for index in range(len(tools)))]
    if support.syntax.is_xml:
        rules += TEXT_RULES
        return rules + [
            rule for index, tool in enumerate(tools) for rule in xml_call_rules(tool, index, _options(tool))
        ]
    for index, tool in enumerate(tools):
        head = f'{{"name": {json.dumps(tool.name)}, "{support.syntax.arguments_key}": '
        rules += [
            f'call_{index}: {_text(head)} arguments_{index} "}}"',
            f"arguments_{index}: %json {json.dumps(_schema(tool))}",
        ]
    return rules


def _schema(tool: ToolDefinition) -> Mapping[str, object]:
    schema = tool.parameters or _EMPTY_OBJECT
    return {"type": "object", **schema, "x-guidance": _options(tool)}


def _options(tool: ToolDefinition) -> Mapping[str, object]:
    """Return how JSON is written. What the library cannot enforce is an error only where `strict` asks for it."""
    return {**_SPACING, "lenient": not tool.strict}


def _calls(support: ToolSupport, *, several: bool) -> str:
    """Return an answer that is calls and nothing else."""
    syntax = support.syntax
    if syntax.is_bare:
        return _after_marker(support, several=several)
    block = f"{_mark(syntax.begin, support)} {_after_marker(support, several=several)}"
    return f"{block} ({_text(syntax.margin)} {block})*" if several and not syntax.is_list else block


def _after_marker(support: ToolSupport, *, several: bool) -> str:
    """Return what follows a marker: one call, or those of a list."""
    syntax = support.syntax
    if syntax.is_bare:
        return 'call ("; " call)*' if several else "call"
    more = ' (", " call)*' if several else ""
    calls = f'{_text(syntax.list_begin)} call{more} "]"' if syntax.is_list else "call"
    return f"{_text(syntax.margin)} {calls} {_text(syntax.margin)} {_mark(syntax.end, support)}"


def _free_until_calls(support: ToolSupport, *, several: bool) -> list[str]:
    """Return an answer that is free text up to a marker, after which a call must follow; any number of times."""
    syntax = support.syntax
    calls = _after_marker(support, several=several)
    rules = [r"TEXT: /(.|\n)*/", "text: TEXT"]
    if syntax.is_bare:
        return [
            f"start: {calls} | first marked*",
            r"first: /\s*([^{\s](.|\n)*)?/",  # what begins with a brace is a call
            f"marked: {_mark(syntax.begin, support)} {calls} text",
            *rules,
        ]
    if syntax.begin in support.special_ids:
        return ["start: marked* text", f"marked: text {_mark(syntax.begin, support)} {calls}", *rules]
    return [
        "start: marked* text",
        f"marked: head {calls}",
        f"head[lazy]: TEXT {_text(syntax.begin)}",
        *rules,
    ]


def _text(text: str) -> str:
    return json.dumps(text) if text else ""


def _mark(mark: str, support: ToolSupport) -> str:
    token_id = support.special_ids.get(mark)
    return _text(mark) if token_id is None else f"<[{token_id}]>"
