import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.client.answer import Delta, ToolCallDelta, Usage
from headway.client.chunks import Chunk, read_chunk, read_error
from headway.client.failure import Failure, Kind


def chat(**delta: object) -> bytes:
    return json.dumps({"model": "m", "choices": [{"index": 0, "delta": delta}]}).encode()


def test_text_reasoning_and_refusals() -> None:
    assert read_chunk(chat(content="a")) == Chunk(delta=Delta(text="a"), model="m")
    assert read_chunk(chat(refusal="no")) == Chunk(delta=Delta(text="no"), model="m")
    for name in ("reasoning", "reasoning_content"):
        assert read_chunk(chat(**{name: "r"})) == Chunk(delta=Delta(reasoning="r"), model="m")
    text = json.dumps({"choices": [{"text": "t", "finish_reason": "stop"}]}).encode()
    assert read_chunk(text) == Chunk(delta=Delta(text="t"), finish_reason="stop")


def test_what_nobody_would_see_is_no_delta() -> None:
    assert read_chunk(chat(role="assistant", content="")) == Chunk(model="m")
    assert read_chunk(b"{}") == Chunk()
    assert read_chunk(b'{"choices": [{"index": 1, "delta": {"content": "second choice"}}]}') == Chunk()


def test_tool_calls() -> None:
    first = {"index": 1, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
    assert read_chunk(chat(tool_calls=[first])) == Chunk(
        delta=Delta(tool_calls=(ToolCallDelta(index=1, id="c", name="f"),)), model="m"
    )
    more = {"index": 1, "function": {"arguments": "{"}}
    assert read_chunk(chat(tool_calls=[more])) == Chunk(
        delta=Delta(tool_calls=(ToolCallDelta(index=1, arguments="{"),)), model="m"
    )


def test_usage() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    assert read_chunk(json.dumps({"choices": [], "usage": usage}).encode()) == Chunk(
        usage=Usage(prompt_tokens=5, completion_tokens=2, cached_tokens=4)
    )
    assert read_chunk(b'{"choices": [], "usage": null}') == Chunk()


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        ({"message": "m", "type": "server_error", "code": "engine_died"}, 500, Kind.BUSY),
        ({"message": "m", "code": "queue_full"}, 503, Kind.BUSY),
        ({"message": "m", "code": 429}, 429, Kind.LIMITED),
        ({"message": "m", "type": "rate_limit_error"}, 429, Kind.LIMITED),
        ({"message": "m", "code": "rate_limit_exceeded"}, 429, Kind.LIMITED),
        ({"message": "m", "code": "context_length_exceeded"}, 400, Kind.ELSEWHERE),
        ({"message": "m", "type": "overloaded_error"}, 503, Kind.BUSY),
        ({"message": "m", "code": True}, 500, Kind.BUSY),
        ("m", 500, Kind.BUSY),
    ],
)
def test_an_error_within_a_stream_is_typed(error: object, status: int, kind: Kind) -> None:
    failure = read_chunk(json.dumps({"error": error}).encode())
    assert isinstance(failure, Failure)
    assert (failure.message, failure.status, failure.kind) == ("m", status, kind)


def test_a_router_that_ends_a_stream_with_an_error() -> None:
    failure = read_chunk(b'{"choices": [{"delta": {}, "finish_reason": "error"}]}')
    assert isinstance(failure, Failure)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "no"}}', "no"),
        (b'{"error": "no"}', "no"),
        (b'{"message": "no"}', "no"),
        (b'{"detail": "no"}', "no"),
        (b"Bad Gateway", "Bad Gateway"),
        (b"", "It answered with status 502."),
        (b'{"error": {"message": ["no"]}}', "It answered with status 502."),
    ],
)
def test_sentences_of_errors(body: bytes, message: str) -> None:
    assert read_error(body, 502).message == message


def test_long_sentences_are_cut() -> None:
    assert len(read_error(b"x" * 5000, 502).message) < 510


@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda values: (
            st.lists(values, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ("error", "choices", "delta", "code", "message", "usage", "index", "type", "param")
                ),
                values,
                max_size=4,
            )
        ),
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_bytes_are_a_chunk_or_a_failure(data: bytes) -> None:
    assert isinstance(read_chunk(data), Chunk | Failure)
    assert isinstance(read_error(data, None), Failure)
