import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import InvalidRequest
from headway.wire.chat_request import ChatCall, ChatMessage, parse_chat

USER = {"role": "user", "content": "hi"}


def parse(**fields: object) -> ChatCall:
    return parse_chat(json.dumps({"messages": [USER], **fields}).encode())


def refused(**fields: object) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as info:
        parse(**fields)
    assert info.value.message.endswith(".")
    return info.value


def test_a_minimal_request_has_openais_defaults() -> None:
    call = parse()
    assert call.model is None
    assert call.messages == (ChatMessage(role="user", content="hi"),)
    options = call.options
    assert (options.max_tokens, options.n, options.seed, options.stop) == (None, 1, None, ())
    assert (options.stream, options.include_usage, options.ignore_eos) == (False, False, False)
    sampling = options.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (1.0, 1.0, 0, 0.0)
    assert sampling.num_logprobs is None


def test_null_is_the_default_for_every_field_known_or_not() -> None:
    names = [
        *("model", "max_tokens", "max_completion_tokens", "temperature", "top_p", "n", "stop", "stream"),
        *("stream_options", "presence_penalty", "frequency_penalty", "logit_bias", "seed", "logprobs"),
        *("top_logprobs", "tools", "functions", "response_format", "audio", "whatever"),
    ]
    assert parse(**dict.fromkeys(names)) == parse()


@pytest.mark.parametrize(
    "field",
    [
        {"user": "u"},
        {"metadata": {"a": "b"}},
        {"store": False},
        {"response_format": {"type": "text"}},
        {"tool_choice": "none"},
        {"tool_choice": "auto"},
        {"tools": []},
        {"functions": []},
        {"parallel_tool_calls": True},
        {"service_tier": "auto"},
        {"service_tier": "default"},
        {"safety_identifier": "s"},
        {"prompt_cache_key": "k"},
        {"prompt_cache_retention": "24h"},
        {"modalities": ["text"]},
        {"verbosity": "medium"},
        {"prediction": {"type": "content", "content": "x"}},
        {"stream_options": {"include_usage": False, "include_obfuscation": True}},
        {"logprobs": False},
        {"n": 1},
        {"logit_bias": {}},
        {"stop": []},
    ],
    ids=str,
)
def test_fields_without_effect_are_accepted(field: dict[str, object]) -> None:
    assert parse(**field) == parse()


@pytest.mark.parametrize(
    ("field", "param"),
    [
        ({"functions": [{}]}, "functions"),
        ({"function_call": {"name": "f"}}, "function_call"),
        ({"response_format": {"type": "structural_tag"}}, "response_format"),
        ({"audio": {"voice": "x"}}, "audio"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"store": True}, "store"),
        ({"service_tier": "flex"}, "service_tier"),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
        ({"verbosity": "low"}, "verbosity"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"min_tokens": 3}, "min_tokens"),
        ({"max_token": 5}, "max_token"),
    ],
    ids=str,
)
def test_a_field_that_would_change_the_output_is_refused_by_name(
    field: dict[str, object], param: str
) -> None:
    error = refused(**field)
    assert error.param == param
    assert f"`{param}`" in error.message


@pytest.mark.parametrize(
    ("field", "param"),
    [
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": 5.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 1.01}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": 1.5}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"repetition_penalty": 1e-40}, "repetition_penalty"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"n": 10**400}, "n"),
        ({"top_k": -(10**400)}, "top_k"),
        ({"seed": 2**64}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stop": [3]}, "stop[0]"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": 1}, "logprobs"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usag": True}}, "stream_options"),
        ({"stop_token_ids": list(range(65))}, "stop_token_ids"),
        ({"model": 3}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": None}, "messages"),
        ({"messages": [{"content": "hi"}]}, "messages[0].role"),
    ],
    ids=str,
)
def test_malformed_values_are_refused_and_named(field: dict[str, object], param: str | None) -> None:
    assert refused(**field).param == param


def test_a_number_of_any_length_is_told_in_a_sentence() -> None:
    assert len(refused(n=10**400).message) < 200


def test_a_tiny_top_p_keeps_one_token_as_zero_does() -> None:
    assert parse(top_p=1e-300).options.sampling == parse(top_p=0).options.sampling


def test_the_newer_limit_wins_and_is_the_one_named() -> None:
    assert parse(max_tokens=5, max_completion_tokens=9).options.max_tokens == 9


def test_sampling_is_taken_over() -> None:
    options = parse(
        temperature=0,
        top_p=0.9,
        top_k=40,
        min_p=0.05,
        repetition_penalty=1.1,
        presence_penalty=-1,
        frequency_penalty=1.5,
        logit_bias={"7": -100, "9": 2.5},
        logprobs=True,
        top_logprobs=4,
        seed=-1,
        stop=["a", "b", "a"],
        stop_token_ids=[5, 5, 6],
        ignore_eos=True,
        n=3,
    ).options
    sampling = options.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.0, 0.9, 40)
    assert (sampling.min_p, sampling.repetition_penalty) == (0.05, 1.1)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (-1.0, 1.5)
    assert sampling.logit_bias == ((7, -100.0), (9, 2.5))
    assert sampling.num_logprobs == 4
    assert options.seed == 2**64 - 1
    assert options.stop == ("a", "b")
    assert options.stop_token_ids == (5, 6)
    assert options.ignore_eos
    assert options.n == 3


def test_top_p_zero_keeps_one_token_and_top_k_minus_one_is_off() -> None:
    sampling = parse(top_p=0, top_k=-1).options.sampling
    assert 0 < sampling.top_p <= 1e-6
    assert sampling.top_k == 0


def test_roles_and_text_parts() -> None:
    call = parse(
        messages=[
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b\n"}]},
            {"role": "assistant", "content": "", "refusal": None, "tool_calls": [], "annotations": []},
            {"role": "user", "content": [], "name": "ann"},
        ]
    )
    assert call.messages == (
        ChatMessage(role="system", content="be brief"),
        ChatMessage(role="user", content="ab\n"),
        ChatMessage(role="assistant", content=""),
        ChatMessage(role="user", content="", name="ann"),
    )


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "user"}, "messages[1].content"),
        ({"role": "user", "content": None}, "messages[1].content"),
        ({"role": "user", "content": 5}, "messages[1].content"),
        ({"content": "x"}, "messages[1].role"),
        ({"role": "tool", "content": "x", "tool_call_id": "t"}, "messages[1].tool_call_id"),
        ({"role": "function", "content": "x", "name": "f"}, "messages[1].role"),
        ({"role": "robot", "content": "x"}, "messages[1].role"),
        ({"role": "user", "content": "x", "tool_call_id": "t"}, "messages[1].tool_call_id"),
        (
            {"role": "assistant", "content": None, "tool_calls": [{"id": "t"}]},
            "messages[1].tool_calls[0].function",
        ),
        ({"role": "assistant", "content": "x", "audio": {"id": "a"}}, "messages[1].audio"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {}}]},
            "messages[1].content[0].type",
        ),
        ({"role": "user", "content": [{"text": "x"}]}, "messages[1].content[0].type"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[1].content[0].text"),
        (
            {"role": "user", "content": [{"type": "text", "text": "x", "bold": True}]},
            "messages[1].content[0].bold",
        ),
        ({"role": "user", "content": ["x"]}, "messages[1].content[0]"),
    ],
    ids=str,
)
def test_malformed_messages_are_refused_and_named(message: dict[str, object], param: str) -> None:
    assert refused(messages=[USER, message]).param == param


def test_image_parts_are_refused_by_name() -> None:
    part = {"type": "image_url", "image_url": {"url": "x"}}
    assert "`image_url`" in refused(messages=[{"role": "user", "content": [part]}]).message


def test_cache_hints_on_parts_are_ignored() -> None:
    part = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    assert parse(messages=[{"role": "user", "content": [part]}]).messages[0].content == "a"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"5",
        b'"x"',
        b"null",
        b'{"messages": NaN}',
        b'{"messages": []} x',
        b"\xef\xbb\xbf{}",
        b'{"messages":[{"role":"user","content":"\xff"}]}',
        b'{"messages":[{"role":"user","content":"\xed\xa0\x80"}]}',
        b'{"messages":[{"role":"user","content":"\\ud800"}]}',
        b'{"messages":[{"role":"user","content":"\\ud800 and more"}]}',
        b'{"messages":[{"role":"user","content":"\\udc00 and more"}]}',
        b'{"messages":[{"role":"user","content":"\\ud800\\u0041 and more"}]}',
        b'{"temperature": 1e999}',
        b'{"a":' * 100_000,
        b"[" * 100_000,
    ],
    ids=lambda body: repr(body[:40]),
)
def test_a_body_that_is_not_a_json_object_in_utf8_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest) as info:
        parse_chat(body)
    assert info.value.status == 400
    assert info.value.message.endswith(".")


def test_a_surrogate_pair_is_one_character() -> None:
    body = b'{"messages":[{"role":"user","content":"\\ud83d\\ude00"}]}'
    assert parse_chat(body).messages[0].content == "😀"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_NAMES = st.sampled_from(
    [
        *("messages", "max_tokens", "temperature", "stop", "logit_bias", "stream_options", "seed", "tools"),
        *("n", "top_logprobs", "response_format", "model"),
    ]
)


@given(st.dictionaries(_NAMES | st.text(), _JSON, max_size=4))
def test_any_json_object_parses_or_is_refused_with_a_sentence(fields: dict[str, object]) -> None:
    sentence = "."
    try:
        assert parse_chat(msgspec.json.encode(fields)).messages
    except InvalidRequest as error:
        sentence = error.message
    assert sentence.endswith(".")
    assert msgspec.json.encode(sentence)


@given(st.binary(max_size=40))
def test_any_bytes_parse_or_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        parse_chat(body)


def test_names_for_the_template() -> None:
    call = parse(chat_template_kwargs={"enable_thinking": False, "style": "brief", "level": 2})
    assert call.template_kwargs == {"enable_thinking": False, "style": "brief", "level": 2}
    assert parse().template_kwargs == {}


@pytest.mark.parametrize(
    "names",
    [
        {"messages": "x"},
        {"add_generation_prompt": False},
        {"_budget": 1},
        {"a b": 1},
        {"self": 1},
        {"a": [1]},
        {"a": {}},
        {f"n{i}": 1 for i in range(17)},
    ],
    ids=str,
)
def test_names_that_the_template_must_not_be_given(names: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest) as info:
        parse(chat_template_kwargs=names)
    assert info.value.param is not None
    assert info.value.param.startswith("chat_template_kwargs")
