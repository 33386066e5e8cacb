import json
from typing import Any

import pytest

from headway.core.errors import InvalidRequest
from headway.core.request import Grammar
from headway.gateway.text_events import ToolCallArguments, ToolCallStart
from headway.gateway.tool_grammar import tools_grammar
from headway.gateway.tool_parser import ToolParser
from headway.gateway.tool_support import ToolSupport, find_tool_support
from headway.models.grammar import GrammarVocabulary
from headway.wire.chat_request import ChatCall, parse_chat
from support.tool_text import (
    CODER_SOURCE,
    HERMES_SOURCE,
    LLAMA_SOURCE,
    MISTRAL_SOURCE,
    NOW,
    PHI_SOURCE,
    WEATHER,
    MarkedTokenizer,
    function,
    template,
)

TOKENIZER = MarkedTokenizer()
CODER_CALL = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\n{city}\n</parameter>\n"
    "<parameter=days>\n{days}\n</parameter>\n</function>\n</tool_call>"
)
SOURCES = [HERMES_SOURCE, LLAMA_SOURCE, PHI_SOURCE, MISTRAL_SOURCE]
HEAD = '{"name": "get_weather", "arguments": '
CALL = HEAD + '{"city": "Paris", "days": 2}}'
NOW_CALL = '{"name": "now", "arguments": {}}'
BAD = HEAD + '{"city": 5}}'
STRICT = {**WEATHER, "function": {**WEATHER["function"], "strict": True}}


@pytest.fixture(scope="module")
def vocabulary() -> GrammarVocabulary:
    return GrammarVocabulary(TOKENIZER, TOKENIZER.vocab_size)


def support(source: str) -> ToolSupport:
    found = find_tool_support(template(source), TOKENIZER)
    assert found is not None
    return found


def call(*tools: dict[str, Any], **fields: object) -> ChatCall:
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": tools or [WEATHER, NOW], **fields}
    return parse_chat(json.dumps(body).encode())


def grammar(source: str, request: ChatCall) -> Grammar:
    found = tools_grammar(request, support(source))
    assert found is not None
    return found


def takes(vocabulary: GrammarVocabulary, grammar: Grammar, text: str) -> bool:
    """Whether `text`, its markers as tokens, is an answer that the grammar allows and that may end there."""
    matcher = vocabulary.compile(grammar, TOKENIZER.eos_ids)
    for token_id in TOKENIZER.encode(text):
        if not matcher.mask()[token_id // 8] >> token_id % 8 & 1:
            return False
        assert matcher.advance([token_id])
    return matcher.may_end


def written(source: str, *objects: str) -> str:
    """Calls as the model of a template writes them."""
    objects = tuple(o.replace('"arguments"', f'"{support(source).syntax.arguments_key}"') for o in objects)
    if source == HERMES_SOURCE:
        return "\n".join(f"<tool_call>\n{o}\n</tool_call>" for o in objects)
    if source == LLAMA_SOURCE:
        return "; ".join(objects)
    if source == PHI_SOURCE:
        return f"<|tool_call|>[{', '.join(objects)}]<|/tool_call|>"
    return f"[TOOL_CALLS][{', '.join(objects)}]"


@pytest.mark.parametrize("source", SOURCES)
def test_a_required_call_is_one_or_several_calls_and_nothing_else(
    vocabulary: GrammarVocabulary, source: str
) -> None:
    required = grammar(source, call(tool_choice="required"))
    assert takes(vocabulary, required, written(source, CALL))
    assert takes(vocabulary, required, written(source, CALL, NOW_CALL, CALL))
    assert not takes(vocabulary, required, written(source, BAD))
    assert not takes(vocabulary, required, written(source, CALL.replace("get_weather", "other")))
    assert not takes(vocabulary, required, "Hello")
    assert not takes(vocabulary, required, "")
    assert not takes(vocabulary, required, written(source, CALL) + " and more")


@pytest.mark.parametrize("source", SOURCES)
def test_one_call_where_one_function_is_named_or_several_are_not_wanted(
    vocabulary: GrammarVocabulary, source: str
) -> None:
    named = grammar(source, call(tool_choice={"type": "function", "function": {"name": "now"}}))
    single = grammar(source, call(tool_choice="required", parallel_tool_calls=False))
    assert takes(vocabulary, named, written(source, NOW_CALL))
    assert not takes(vocabulary, named, written(source, CALL))
    assert not takes(vocabulary, named, written(source, NOW_CALL, NOW_CALL))
    assert takes(vocabulary, single, written(source, CALL))
    assert not takes(vocabulary, single, written(source, CALL, CALL))


@pytest.mark.parametrize("source", SOURCES)
def test_a_strict_function_leaves_text_free_and_calls_correct(
    vocabulary: GrammarVocabulary, source: str
) -> None:
    strict = grammar(source, call(STRICT, NOW))
    for text in ("", "Hello, {world}\n[1, 2] <tool> functools", written(source, CALL)):
        assert takes(vocabulary, strict, text)
    assert not takes(vocabulary, strict, written(source, BAD))
    if source != LLAMA_SOURCE:
        assert takes(vocabulary, strict, "Let me see.\n" + written(source, CALL, NOW_CALL) + "\nDone.")
        assert not takes(vocabulary, strict, "Let me see.\n" + written(source, BAD))
    else:
        assert takes(vocabulary, strict, "Well. <|python_tag|>" + written(source, CALL))
        assert not takes(vocabulary, strict, "<|python_tag|>" + written(source, BAD))


def test_calls_in_tags_are_forced_too(vocabulary: GrammarVocabulary) -> None:
    required = grammar(CODER_SOURCE, call(tool_choice="required"))
    assert takes(vocabulary, required, CODER_CALL.format(city="São\n<Paulo>", days=3))
    assert takes(
        vocabulary,
        required,
        CODER_CALL.format(city="", days=3).replace("\n<parameter=days>\n3\n</parameter>", ""),
    )
    assert takes(
        vocabulary, required, CODER_CALL.format(city="a", days=3) + "\n" + CODER_CALL.format(city="b", days=4)
    )
    assert not takes(vocabulary, required, CODER_CALL.format(city="Paris", days="three"))
    assert not takes(vocabulary, required, CODER_CALL.format(city="Paris", days=0))
    assert not takes(vocabulary, required, CODER_CALL.replace("city>", "town>").format(city="Paris", days=3))
    assert takes(vocabulary, required, "<tool_call>\n<function=now>\n</function>\n</tool_call>")
    strict = grammar(CODER_SOURCE, call(STRICT, NOW))
    assert takes(vocabulary, strict, "I look. " + CODER_CALL.format(city="Paris", days=3))
    assert not takes(vocabulary, strict, "I look. " + CODER_CALL.format(city="Paris", days="three"))


def test_tagged_text_takes_what_values_it_may_have_and_no_more(vocabulary: GrammarVocabulary) -> None:
    schema = {
        "type": "object",
        "properties": {"unit": {"enum": ["c", "k"]}, "at": {"$ref": "#/$defs/at"}},
        "required": ["unit", "at"],
        "$defs": {"at": {"type": "array", "items": {"type": "integer"}}},
    }
    request = call(function("f", schema, strict=True), tool_choice="required")
    text = (
        "<tool_call>\n<function=f>\n<parameter=unit>\n{}\n</parameter>\n"
        "<parameter=at>\n{}\n</parameter>\n</function>\n</tool_call>"
    )
    assert takes(vocabulary, grammar(CODER_SOURCE, request), text.format("k", "[1, 2]"))
    assert not takes(vocabulary, grammar(CODER_SOURCE, request), text.format("x", "[1, 2]"))
    assert not takes(vocabulary, grammar(CODER_SOURCE, request), text.format("k", '["a"]'))


@pytest.mark.parametrize(
    "schema",
    [{"properties": {"a": {"type": "string", "pattern": "x+"}}}, {"properties": {}, "minProperties": 1}],
)
def test_what_tagged_text_cannot_be_held_to_is_refused_if_strict(schema: dict[str, Any]) -> None:
    assert tools_grammar(call(function("f", schema), tool_choice="required"), support(CODER_SOURCE))
    with pytest.raises(InvalidRequest) as info:
        tools_grammar(call(function("f", schema, strict=True)), support(CODER_SOURCE))
    assert info.value.param == "tools"


def test_an_answer_is_free_if_no_call_is_asked_for_and_no_function_is_strict() -> None:
    assert tools_grammar(call(), support(HERMES_SOURCE)) is None


@pytest.mark.parametrize("source", [HERMES_SOURCE, PHI_SOURCE, MISTRAL_SOURCE])
def test_an_answer_with_a_schema_is_that_or_calls(vocabulary: GrammarVocabulary, source: str) -> None:
    shape = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    both = grammar(
        source, call(response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": shape}})
    )
    assert takes(vocabulary, both, '{"n": 5}')
    assert takes(vocabulary, both, written(source, CALL))
    assert not takes(vocabulary, both, "Hello")
    assert not takes(vocabulary, both, '{"n": "x"}')


@pytest.mark.parametrize(
    ("source", "fields"),
    [
        (HERMES_SOURCE, {"tool_choice": "required", "response_format": {"type": "json_object"}}),
        (HERMES_SOURCE, {"guided_regex": "a+"}),
        (LLAMA_SOURCE, {"response_format": {"type": "json_object"}}),
    ],
)
def test_a_format_that_excludes_calls_is_refused(source: str, fields: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest) as info:
        tools_grammar(call(**fields), support(source))
    assert info.value.param == next(iter(set(fields) - {"tool_choice"}))
    assert info.value.message.endswith(".")


def test_what_cannot_be_enforced_is_left_to_the_model_unless_the_function_is_strict(
    vocabulary: GrammarVocabulary,
) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    lenient = grammar(HERMES_SOURCE, call(tool, tool_choice="required"))
    assert takes(vocabulary, lenient, '<tool_call>\n{"name": "f", "arguments": {"a": [1, 1]}}\n</tool_call>')
    tool = {"type": "function", "function": {"name": "f", "parameters": schema, "strict": True}}
    with pytest.raises(InvalidRequest) as info:
        vocabulary.compile(grammar(HERMES_SOURCE, call(tool, tool_choice="required")), TOKENIZER.eos_ids)
    assert info.value.param == "tools"


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_forced_is_what_the_parser_reads(vocabulary: GrammarVocabulary, source: str) -> None:
    """Write an answer of allowed tokens, each time one that ends a string or an object if there is one."""
    request = call(STRICT, tool_choice="required", parallel_tool_calls=False)
    matcher = vocabulary.compile(grammar(source, request), TOKENIZER.eos_ids)
    text = b""
    while not matcher.is_finished and len(text) < 200:
        mask = matcher.mask()
        allowed = [i for i in range(TOKENIZER.vocab_size) if mask[i // 8] >> i % 8 & 1]
        if not allowed or allowed == [256]:
            break
        token_id = next((i for i in allowed if i in list(b'"}')), allowed[-1])
        assert matcher.advance([token_id])
        text += TOKENIZER.token_bytes(token_id)
    parser = ToolParser(0, support(source).syntax, {"get_weather": {}}, lambda: "id")
    found = parser.push(text.decode()) + parser.flush()
    assert found[0] == ToolCallStart(0, 0, "id", "get_weather")
    arguments = "".join(event.text for event in found if isinstance(event, ToolCallArguments))
    assert isinstance(json.loads(arguments)["city"], str)
    assert all(isinstance(event, ToolCallStart | ToolCallArguments) for event in found)
