"""Anthropic's own package, over a real server, reads what chat would have answered."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import pytest

from headway.core.errors import Draining
from headway.core.messages import ErrorInfo
from support.gateway_app import MODEL, Service, service
from support.live_server import live_server
from support.tool_service import TOKENIZER, tool_service
from support.tool_text import WEATHER

MESSAGES: list[Any] = [{"role": "user", "content": "hi"}]
FUNCTION: dict[str, Any] = WEATHER["function"]
TOOLS: list[Any] = [
    {
        "name": FUNCTION["name"],
        "description": FUNCTION["description"],
        "input_schema": FUNCTION["parameters"],
    }
]
CALL = 'I look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


@contextmanager
def client_of(served: Service) -> Iterator[anthropic.Anthropic]:
    with (
        live_server(served.app) as (host, port),
        anthropic.Anthropic(base_url=f"http://{host}:{port}", api_key="none", max_retries=0) as client,
    ):
        yield client


@pytest.mark.parametrize("per_step", [1, 100])
def test_text_arrives_whole_and_streamed_alike(per_step: int) -> None:
    with client_of(tool_service("Héllo 🙂", cached=3, per_step=per_step)) as client:
        whole = client.messages.create(model=MODEL, messages=MESSAGES, max_tokens=50)
        with client.messages.stream(model=MODEL, messages=MESSAGES, max_tokens=50) as stream:
            text = "".join(stream.text_stream)
            streamed = stream.get_final_message()
    for message in (whole, streamed):
        assert message.id.startswith("msg_")
        assert (message.role, message.model, message.type) == ("assistant", MODEL, "message")
        (block,) = message.content
        assert block.type == "text"
        assert block.text == "Héllo 🙂"
        assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
        assert message.usage.cache_read_input_tokens == 3
        assert message.usage.output_tokens == len(TOKENIZER.encode("Héllo 🙂"))
    assert text == "Héllo 🙂"
    assert whole.usage.input_tokens == streamed.usage.input_tokens > 0


def test_a_call_arrives_whole_and_streamed_alike() -> None:
    with client_of(tool_service(CALL)) as client:
        whole = client.messages.create(model=MODEL, messages=MESSAGES, max_tokens=500, tools=TOOLS)
        with client.messages.stream(model=MODEL, messages=MESSAGES, max_tokens=500, tools=TOOLS) as stream:
            streamed = stream.get_final_message()
    for message in (whole, streamed):
        text, call = message.content
        assert text.type == "text"
        assert text.text == "I look."
        assert call.type == "tool_use"
        assert (call.name, call.input) == ("get_weather", {"city": "Paris"})
        assert message.stop_reason == "tool_use"


def test_a_conversation_with_results_goes_on() -> None:
    served = tool_service("Sunny.")
    conversation: list[Any] = [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "Paris"}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "sun"}]},
    ]
    with client_of(served) as client:
        client.messages.create(
            model=MODEL, messages=conversation, max_tokens=50, tools=TOOLS, system="Be brief."
        )
    prompt = TOKENIZER.decode(served.engine.requests[0].token_ids, skip_special=False)
    for part in ("Be brief.", "Weather?", '"city": "Paris"', "sun", "get_weather"):
        assert part in prompt


def test_why_it_ended() -> None:
    with client_of(tool_service("one END two")) as client:
        stopped = client.messages.create(
            model=MODEL, messages=MESSAGES, max_tokens=50, stop_sequences=["END"]
        )
        assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "END")
    with client_of(tool_service("x" * 50, reason="length")) as client:
        cut = client.messages.create(model=MODEL, messages=MESSAGES, max_tokens=5)
        assert cut.stop_reason == "max_tokens"


def test_events_have_types_and_come_in_the_apis_order() -> None:
    with client_of(tool_service(CALL, per_step=1000)) as client:
        events = client.messages.create(
            model=MODEL, messages=MESSAGES, max_tokens=500, tools=TOOLS, stream=True
        )
        assert [event.type for event in events] == [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]


def test_tokens_are_counted_as_they_are_sent() -> None:
    served = tool_service("x")
    with client_of(served) as client:
        counted = client.messages.count_tokens(model=MODEL, messages=MESSAGES, tools=TOOLS)
        client.messages.create(model=MODEL, messages=MESSAGES, tools=TOOLS, max_tokens=5)
    assert counted.input_tokens == len(served.engine.requests[0].token_ids)


def test_errors_arrive_as_the_packages_own() -> None:
    served = tool_service("x")
    with client_of(served) as client:
        with pytest.raises(anthropic.BadRequestError) as bad:
            client.messages.create(
                model=MODEL, messages=MESSAGES, max_tokens=5, extra_body={"temperature": 7}
            )
        assert bad.value.body == {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "`temperature` must be between 0 and 1; it is 7.",
            },
        }
        with pytest.raises(anthropic.NotFoundError):
            client.messages.create(model="other", messages=MESSAGES, max_tokens=5)
        served.engine.refuse = Draining("The server is shutting down.")
        with pytest.raises(anthropic.InternalServerError) as busy:
            client.messages.create(model=MODEL, messages=MESSAGES, max_tokens=5)
        assert busy.value.status_code == 503


@pytest.mark.anyio
async def test_an_error_in_a_stream_is_its_last_event() -> None:
    s = service()
    body = {"model": MODEL, "messages": MESSAGES, "max_tokens": 5, "stream": True}
    async with s.post("/v1/messages", body) as exchange:
        await s.engine.wait_requests(1)
        s.engine.emit(s.engine.requests[0], b"a")
        s.engine.fail(s.engine.requests[0], ErrorInfo(code="engine_died", message="Gone."))
        text = (await exchange.read_body()).decode()
    assert text.endswith(
        'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"Gone."}}\n\n'
    )
    assert "message_stop" not in text
