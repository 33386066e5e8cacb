import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.messages import Usage
from headway.lab.deltas import Delta, TokenUsage, read_delta
from headway.wire import sse
from headway.wire.chat_response import ChatChunk, ChunkChoice, FunctionDelta, ToolCallDelta
from headway.wire.chat_response import Delta as WireDelta
from headway.wire.completion_response import Completion, CompletionChoice
from headway.wire.sse_reader import SseEvent, SseReader
from headway.wire.usage import usage_fields


def read(value: object, name: bytes | None = None) -> Delta:
    return read_delta(SseEvent(value if isinstance(value, bytes) else json.dumps(value).encode(), name))


def chunk(delta: dict[str, Any], **choice: Any) -> Delta:
    return read({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, **choice}]})


@pytest.mark.parametrize(
    ("delta", "kind", "text"),
    [
        ({"role": "assistant"}, "other", ""),
        ({"role": "assistant", "content": ""}, "other", ""),
        ({"role": "assistant", "content": None}, "other", ""),
        ({"content": " "}, "content", " "),
        ({"content": "né"}, "content", "né"),
        ({"refusal": "no"}, "content", "no"),
        ({"reasoning_content": "hm"}, "reasoning", "hm"),
        ({"reasoning": "hm", "content": ""}, "reasoning", "hm"),
        ({"reasoning": "hm", "reasoning_content": "hm"}, "reasoning", "hm"),
        ({"reasoning_content": "hm", "content": "a"}, "content", "ahm"),
        ({"reasoning_content": ""}, "other", ""),
        ({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]}, "other", ""),
        ({"tool_calls": [{"index": 0, "function": {"arguments": '{"a'}}]}, "tool_call", '{"a'),
        ({"tool_calls": [{"index": 0, "function": None}]}, "other", ""),
        ({"function_call": {"name": "f", "arguments": "{}"}}, "tool_call", "{}"),
        ({}, "other", ""),
    ],
)
def test_a_chat_chunk_counts_when_it_brings_text(delta: dict[str, Any], kind: str, text: str) -> None:
    assert chunk(delta) == Delta(kind=kind, text=text)  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "kind"), [("a", "content"), ("", "other"), (None, "other")])
def test_a_completion_chunk_counts_when_it_brings_text(text: str | None, kind: str) -> None:
    read_one = read(
        {"object": "text_completion", "choices": [{"index": 0, "text": text, "finish_reason": None}]}
    )
    assert read_one == Delta(kind=kind, text=text or "")  # type: ignore[arg-type]


def test_the_last_chunk_may_bring_text_its_reason_and_usage_at_once() -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
    assert read({"choices": [{"text": "a", "finish_reason": "stop"}], "usage": usage}) == Delta(
        kind="content",
        text="a",
        finish_reason="stop",
        usage=TokenUsage(prompt_tokens=7, completion_tokens=3, cached_tokens=4),
    )


@pytest.mark.parametrize(
    ("value", "usage"),
    [
        ({"choices": [], "usage": None}, None),
        ({"choices": [], "usage": {"completion_tokens": 2}}, TokenUsage(completion_tokens=2)),
        (
            {"choices": [], "usage": {"prompt_tokens": 2, "prompt_tokens_details": None}},
            TokenUsage(prompt_tokens=2),
        ),
        ({"choices": [], "timings": {"cache_n": 5, "prompt_n": 1}}, TokenUsage(cached_tokens=5)),
        (
            {
                "choices": [],
                "usage": {"prompt_tokens_details": {"cached_tokens": 3}},
                "timings": {"cache_n": 5},
            },
            TokenUsage(cached_tokens=3),
        ),
    ],
)
def test_usage_is_read_where_it_is(value: object, usage: TokenUsage | None) -> None:
    assert read(value) == Delta(kind="other", usage=usage)


@pytest.mark.parametrize(
    ("data", "name", "message"),
    [
        ({"error": {"message": "out of memory", "code": 500}}, None, "out of memory"),
        ({"error": "out of memory"}, None, "out of memory"),
        ({"error": {"error": {"message": "deep"}}}, None, "deep"),
        ({"object": "error", "message": "out of memory", "code": 500}, None, "out of memory"),
        ({"code": 500, "message": "out of memory"}, b"error", "out of memory"),
        ({"detail": "out of memory"}, b"error", "out of memory"),
        (b"out of memory", b"error", "out of memory"),
        ({"error": {"code": 500}, "choices": []}, None, '{"error": {"code": 500}, "choices": []}'),
        ({"choices": [{"delta": {"content": "a"}, "finish_reason": "error"}]}, None, "finish_reason error"),
        ({"choices": [{"text": "", "finish_reason": "abort"}]}, None, "finish_reason abort"),
    ],
)
def test_an_error_inside_the_stream_is_an_error(data: object, name: bytes | None, message: str) -> None:
    delta = read(data, name)
    assert delta.kind == "error"
    assert message in (delta.message or "")


def test_no_error_is_no_error() -> None:
    assert read({"error": None, "choices": [{"text": "a"}]}).kind == "content"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b"7",
        b'["choices"]',
        b"\xff",
        b'{"choices":{}}',
        b'{"choices":[{"delta":{"content":7}}]}',
        b'{"choices":[{"text":["a"]}]}',
        b'{"usage":{"completion_tokens":-1}}',
        b'{"usage":{"completion_tokens":4294967295}}',  # -1, by a server that counts without signs
        b'{"usage":{"completion_tokens":1e300}}',
        b'{"choices":[{"delta":{"content":"\xff"}}]}',
        b"[" * 100_000,
        b"[DONE",
    ],
    ids=lambda data: str(data[:40]),
)
def test_what_is_no_chunk_is_garbage_and_says_why(data: bytes) -> None:
    delta = read(data)
    assert delta.kind == "garbage"
    assert delta.message
    assert len(delta.message) <= 300


def test_an_object_we_do_not_know_is_not_garbage() -> None:
    assert read({"type": "ping", "prompt_progress": {"total": 9}}) == Delta(kind="other")


@pytest.mark.parametrize("data", [b"[DONE]", b" [DONE] "])
def test_done_is_done(data: bytes) -> None:
    assert read(data) == Delta(kind="done")


def test_an_endless_error_is_shortened() -> None:
    assert len(read({"error": "x" * 10_000}).message or "") == 300


def test_what_headway_writes_is_understood() -> None:
    def chat_chunk(delta: WireDelta) -> bytes:
        choices = [ChunkChoice(index=0, delta=delta)]
        return sse.event(
            ChatChunk(id="c", created=0, model="m", choices=choices, usage=None, system_fingerprint="f")
        )

    usage = usage_fields(Usage(prompt_tokens=9, completion_tokens=3, cached_tokens=4))
    last = ChatChunk(id="c", created=0, model="m", choices=[], usage=usage, system_fingerprint="f")
    text = Completion(
        id="c", created=0, model="m", choices=[CompletionChoice(index=0, text="b")], system_fingerprint="f"
    )
    call = ToolCallDelta(index=0, function=FunctionDelta(arguments="{}"))
    stream = [
        chat_chunk(WireDelta(role="assistant", content="")),
        chat_chunk(WireDelta(content="a")),
        chat_chunk(WireDelta(tool_calls=[call])),
        sse.event(text),
        sse.event(last),
        sse.DONE,
    ]
    assert [read_delta(event) for event in SseReader().feed(b"".join(stream))] == [
        Delta(kind="other"),
        Delta(kind="content", text="a"),
        Delta(kind="tool_call", text="{}"),
        Delta(kind="content", text="b"),
        Delta(kind="other", usage=TokenUsage(prompt_tokens=9, completion_tokens=3, cached_tokens=4)),
        Delta(kind="done"),
    ]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "content", "usage", "completion_tokens", "error", "message", "text"]
            ),
            children,
            max_size=4,
        )
    ),
)


@given(
    st.binary() | json_values.map(lambda value: json.dumps(value).encode()), st.sampled_from([None, b"error"])
)
def test_any_bytes_have_a_meaning(data: bytes, name: bytes | None) -> None:
    delta = read_delta(SseEvent(data, name))
    assert (delta.kind in ("content", "reasoning", "tool_call")) == bool(delta.text)
    assert (delta.kind in ("error", "garbage")) == (delta.message is not None)
