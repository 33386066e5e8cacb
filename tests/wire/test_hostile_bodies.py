"""Bodies of legal JSON made to cost: what is not asked for must not be built."""

import json
import tracemalloc
from collections.abc import Callable

import pytest

from headway.core.errors import InvalidRequest
from headway.wire.chat_request import parse_chat
from headway.wire.completion_request import parse_completion
from headway.wire.embeddings import parse_embedding
from headway.wire.json_bounds import MAX_NODES, MAX_VALUES
from headway.wire.messages_request import parse_count_call, parse_message_call
from headway.wire.responses_request import parse_responses
from headway.wire.summary_request import parse_summary
from headway.wire.tokens import parse_detokenize, parse_tokenize

MANY_OBJECTS = b"[" + b'{"a":{}},' * 40_000 + b"{}]"


@pytest.mark.parametrize(
    ("parse", "body", "param"),
    [
        (parse_completion, b'{"prompt":"a","foo":%s}' % MANY_OBJECTS, "foo"),
        (parse_completion, b'{"prompt":"a","suffix":%s}' % MANY_OBJECTS, "suffix"),
        (parse_completion, b'{"prompt":%s}' % MANY_OBJECTS, "prompt"),
        (parse_completion, b'{"prompt":"a","stop":["a"%s]}' % (b',"a"' * 100_000), "stop"),
        (
            parse_completion,
            b'{"prompt":"a","logit_bias":{%s}}' % b",".join(b'"%d":1' % i for i in range(100_000)),
            "logit_bias",
        ),
        (parse_completion, b'{"prompt":[[1]%s]}' % (b",[1]" * 100_000), "prompt"),
        (parse_chat, b'{"messages":[{"content":"","role":%s}]}' % MANY_OBJECTS, "messages[0].role"),
        (parse_chat, b'{"messages":[{"role":"user","content":"a"}],"tools":%s}' % MANY_OBJECTS, "tools"),
        (parse_chat, b'{"messages":[],"tool_choice":%s}' % MANY_OBJECTS, "tool_choice"),
        (
            parse_chat,
            b'{"messages":[{"role":"user","content":[{"type":%s}]}]}' % MANY_OBJECTS,
            "messages[0].content[0].type",
        ),
    ],
    ids=lambda value: value[:24] if isinstance(value, bytes) else str(value),
)
def test_a_refused_body_costs_little_more_than_its_bytes(
    parse: Callable[[bytes], object], body: bytes, param: str
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest) as info:
            parse(body)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert info.value.param == param
    assert len(info.value.message) < 400
    assert peak_bytes < 4 * len(body)  # built whole: 30 times


def test_the_largest_options_are_short_enough() -> None:
    stop = [chr(0x1F600 + index) * 256 for index in range(16)]  # 12 bytes a character, escaped
    bias = {str(10**9 + index): -99.99999999999999 for index in range(1024)}
    options = parse_completion(json.dumps({"prompt": "a", "stop": stop, "logit_bias": bias}).encode()).options
    assert (len(options.stop), len(options.sampling.logit_bias)) == (16, 1024)


def test_content_parts_are_counted_before_any_is_read() -> None:
    message = b'{"role":"user","content":[%s{"text":5}]}' % (b'{"type":"text","text":""},' * 4096)
    with pytest.raises(InvalidRequest, match="at most 8192 content parts; it holds 8194") as info:
        parse_chat(b'{"messages":[%s,%s]}' % (message, message))
    assert info.value.param == "messages"


def test_an_ignored_field_is_not_built() -> None:
    body = b'{"prompt":"a","metadata":%s}' % MANY_OBJECTS
    tracemalloc.start()
    try:
        assert parse_completion(body).prompts == ("a",)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1.5 * len(body)  # looking for what is not UTF-8 takes as much for a moment


@pytest.mark.parametrize(
    "prompt", ["[ ]", "[\n]", "{}", "null", "5", "[[1],[]]", '["a",5]', "[1.5]", "[true]"]
)
def test_no_prompt_by_any_name(prompt: str) -> None:
    with pytest.raises(InvalidRequest) as info:
        parse_completion(b'{"prompt":%s}' % prompt.encode())
    assert info.value.param == "prompt"


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [('"[["', ("[[",)), ('[ "[" ]', ("[",)), ("[\r\n\t [ 1 ] ]", ((1,),)), ("[" + " " * 100 + "1]", ((1,),))],
)
def test_the_form_of_a_prompt_is_told_by_its_beginning(prompt: str, prompts: tuple[object, ...]) -> None:
    assert parse_completion(b'{"prompt":%s}' % prompt.encode()).prompts == prompts


def test_text_that_is_not_utf_8_is_refused() -> None:
    for body in (b'{"prompt":"\xff"}', b'{"prompt":["\xff"]}', b'{"prompt":"a","foo":"\xff"}'):
        with pytest.raises(InvalidRequest):
            parse_completion(body)
    with pytest.raises(InvalidRequest, match="not valid JSON"):
        parse_chat(b'{"messages":[{"role":"user","content":"\xff"}]}')


def test_an_object_of_another_kind_is_refused() -> None:
    for body in (b"[]", b"null", b"5", json.dumps("x").encode()):
        with pytest.raises(InvalidRequest, match="must be a JSON object"):
            parse_completion(body)


HUGE_LIST = b"[" + b"{}," * MAX_NODES + b"{}]"
HUGE_OBJECT = b"{" + b",".join(b'"%d":1' % i for i in range(MAX_NODES + 1)) + b"}"
PARSERS = [
    parse_chat,
    parse_completion,
    parse_embedding,
    parse_tokenize,
    parse_detokenize,
    parse_responses,
    parse_message_call,
    parse_count_call,
    parse_summary,
]


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("value", [HUGE_LIST, HUGE_OBJECT], ids=["list", "object"])
@pytest.mark.parametrize("body", [b'{"messages":%s}', b'{"x":[{"y":%s}]}', b"%s"])
def test_more_objects_and_names_than_any_request_has_are_counted_before_they_are_built(
    parse: Callable[[bytes], object], value: bytes, body: bytes
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest, match="more than 131072 objects, lists and names"):
            parse(body % value)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 * len(value)  # built: from 20 times


def test_values_are_counted_too() -> None:
    with pytest.raises(InvalidRequest, match="more than 1048576 values"):
        parse_detokenize(b'{"tokens":[1%s]}' % (b",1" * (MAX_VALUES + 1)))
    with pytest.raises(InvalidRequest, match="at most 2048 prompts"):
        parse_embedding(b'{"input":[""%s]}' % (b',""' * 2048))


@pytest.mark.parametrize(
    "text",
    [
        "[{" * 200_000,
        ':"' * 200_000,
        '\\"' * 200_000 + "{[:" * 100_000,
        "\\" * 200_000 + ":" * 200_000,
        "," * 2_000_000,
    ],
    ids=["brackets", "quotes", "escaped", "backslashes", "commas"],
)
def test_text_may_hold_any_number_of_anything(text: str) -> None:
    """However the 256 KiB at a time that are looked at begin and end."""
    for shift in range(4):
        sent = "a" * shift + text
        assert parse_completion(json.dumps({"prompt": sent}).encode()).prompts == (sent,)
    assert parse_embedding(json.dumps({"input": [text] * 3}).encode()).inputs == (text,) * 3


@pytest.mark.parametrize(
    ("parse", "body", "param"),
    [
        (parse_chat, b'{"messages":[{"role":"user","content":"a"}],"store":1e400}', "store"),
        (
            parse_chat,
            b'{"messages":[{"role":"user","content":[{"type":1e400}]}]}',
            "messages[0].content[0].type",
        ),
        (parse_responses, b'{"input":[{"type":1e400}]}', "input[0].type"),
        (parse_responses, b'{"input":"a","reasoning":{"effort":1e400}}', "reasoning"),
        (parse_count_call, b'{"messages":[],"thinking":1e400}', "thinking"),
        (
            parse_chat,
            b'{"messages":[],"tools":[{"type":"function","function":{"name":"f","parameters":{"a":[1e400]}}}]}',
            "tools[0].function.parameters",
        ),
        (
            parse_responses,
            b'{"input":"a","tools":[{"type":"function","name":"f","parameters":{"a":1%s}}]}' % (b"0" * 5000),
            "tools[0].parameters",
        ),
    ],
)
def test_numbers_beyond_every_float_are_refused_by_name(
    parse: Callable[[bytes], object], body: bytes, param: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(body)
    assert caught.value.param == param


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("text", [b"\xff", b"\xed\xa0\x80"], ids=["byte", "surrogate"])
def test_what_is_not_utf_8_is_refused_wherever_it_is(parse: Callable[[bytes], object], text: bytes) -> None:
    body = b'{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{"a":"%s"}}]}]}'
    with pytest.raises(InvalidRequest, match="not valid JSON"):
        parse(body % text)


@pytest.mark.parametrize(
    ("parse", "body"),
    [
        (
            parse_message_call,
            b'{"max_tokens":1,"messages":[{"role":"user","content":""}],"output_config":{"format":{"type":"json_schema","schema":%s}}}',
        ),
        (parse_responses, b'{"input":"a","text":{"format":{"type":"json_schema","name":"x","schema":%s}}}'),
    ],
)
def test_a_schema_is_as_long_as_elsewhere_at_most(parse: Callable[[bytes], object], body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="longer than 131072 bytes"):
        parse(body % (b'{"a":"' + b"[" * 200_000 + b'"}'))


def test_a_refusal_quotes_no_more_than_a_sentence_holds() -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_embedding(b'{"input":"a","encoding_format":"%s"}' % (b"x" * 100_000))
    assert len(caught.value.message) < 400


@pytest.mark.parametrize(
    "text", [rb"\ud800", rb"x\udc00y", rb"\uD83D and more", rb"\ud83d\ud83d", rb"\ude42"]
)
def test_half_of_a_surrogate_pair_is_called_that(text: bytes) -> None:
    with pytest.raises(InvalidRequest, match="half of a surrogate pair stands alone"):
        parse_completion(b'{"prompt":"%b"}' % text)


@pytest.mark.parametrize("text", [rb"\ud83d\ude42", rb"\\ud800", rb"\u00e9\uD83D\uDE42"])
def test_whole_pairs_and_backslashes_are_none_of_it(text: bytes) -> None:
    assert parse_completion(b'{"prompt":"%b"}' % text).prompts
    with pytest.raises(InvalidRequest) as info:
        parse_completion(b'{"prompt":"%b"' % text)
    assert "surrogate" not in info.value.message
