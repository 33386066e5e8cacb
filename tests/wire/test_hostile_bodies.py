"""Bodies of legal JSON made to cost: what is not asked for must not be built."""

import json
import tracemalloc
from collections.abc import Callable

import pytest

from headway.core.errors import InvalidRequest
from headway.wire.chat_request import parse_chat
from headway.wire.completion_request import parse_completion

MANY_OBJECTS = b"[" + b'{"a":{}},' * 100_000 + b"{}]"


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
    assert peak_bytes < len(body)


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
