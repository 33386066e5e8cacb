"""The Responses API, over a real server, read by OpenAI's own package."""

import json
from typing import Any

import openai
import pytest

from headway.core.messages import ErrorInfo
from support.gateway_app import MODEL, service
from support.tool_service import TOKENIZER, openai_client, tool_service
from support.tool_text import WEATHER

TOOLS: list[Any] = [{"type": "function", "strict": False, **WEATHER["function"]}]
CALL = 'I look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


@pytest.mark.parametrize("per_step", [1, 100])
def test_text_arrives_whole_and_streamed_alike(per_step: int) -> None:
    with openai_client(tool_service("Héllo 🙂", cached=3, per_step=per_step)) as client:
        whole = client.responses.create(model=MODEL, input="hi", instructions="Be brief.")
        with client.responses.stream(model=MODEL, input="hi", instructions="Be brief.") as stream:
            deltas = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
            streamed = stream.get_final_response()
    for response in (whole, streamed):
        assert response.id.startswith("resp_")
        assert (response.status, response.model, response.error) == ("completed", MODEL, None)
        assert response.output_text == "Héllo 🙂"
        assert response.instructions == "Be brief."
        assert response.usage is not None
        assert response.usage.input_tokens_details.cached_tokens == 3
        assert response.usage.output_tokens == len(TOKENIZER.encode("Héllo 🙂"))
    assert deltas == "Héllo 🙂"


@pytest.mark.parametrize("per_step", [1, 1000])
def test_a_call_arrives_whole_and_streamed_alike(per_step: int) -> None:
    with openai_client(tool_service(CALL, per_step=per_step)) as client:
        whole = client.responses.create(model=MODEL, input="hi", tools=TOOLS)
        with client.responses.stream(model=MODEL, input="hi", tools=TOOLS) as stream:
            events = list(stream)
            streamed = stream.get_final_response()
    for response in (whole, streamed):
        text, call = response.output
        assert text.type == "message"
        assert response.output_text == "I look."
        assert call.type == "function_call"
        assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
        assert call.call_id.startswith("call_")
        assert response.tools[0].type == "function"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events if not event.type.endswith(".delta")]
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]


def test_a_conversation_goes_on_with_its_own_output_as_input() -> None:
    served = tool_service(CALL)
    with openai_client(served) as client:
        first = client.responses.create(model=MODEL, input="Weather?", tools=TOOLS)
        call = first.output[1]
        assert call.type == "function_call"
        conversation: list[Any] = [
            {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
            *(item.model_dump(exclude_none=True) for item in first.output),
            {"type": "function_call_output", "call_id": call.call_id, "output": "sun"},
        ]
        client.responses.create(model=MODEL, input=conversation, tools=TOOLS)
    prompt = TOKENIZER.decode(served.engine.requests[1].token_ids, skip_special=False)
    for part in ("Weather?", "I look.", '"city": "Paris"', "sun"):
        assert part in prompt


def test_an_answer_that_ran_into_its_limit_is_incomplete() -> None:
    with openai_client(tool_service("x" * 50, reason="length")) as client:
        whole = client.responses.create(model=MODEL, input="hi", max_output_tokens=5)
        events = list(client.responses.create(model=MODEL, input="hi", max_output_tokens=5, stream=True))
    assert whole.status == "incomplete"
    assert whole.incomplete_details is not None
    assert whole.incomplete_details.reason == "max_output_tokens"
    assert events[-1].type == "response.incomplete"


def test_no_text_is_an_empty_message_either_way() -> None:
    with openai_client(tool_service("")) as client:
        whole = client.responses.create(model=MODEL, input="hi")
        (*_, last) = client.responses.create(model=MODEL, input="hi", stream=True)
    assert last.type == "response.completed"
    for response in (whole, last.response):
        assert len(response.output) == 1
        assert response.output_text == ""


def test_a_schema_becomes_a_grammar() -> None:
    served = tool_service("{}")
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    text: Any = {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}}
    with openai_client(served) as client:
        response = client.responses.create(model=MODEL, input="hi", text=text)
    grammar = served.engine.requests[0].grammar
    assert grammar is not None
    assert grammar.kind == "json_schema"
    assert json.loads(grammar.source) == schema
    assert response.text is not None
    assert response.text.format is not None
    assert response.text.format.type == "json_schema"


def test_errors_arrive_as_the_packages_own() -> None:
    with openai_client(tool_service("x")) as client:
        with pytest.raises(openai.BadRequestError) as bad:
            client.responses.create(model=MODEL, input="hi", previous_response_id="resp_1")
        assert bad.value.param == "previous_response_id"
        with pytest.raises(openai.NotFoundError):
            client.responses.create(model="other", input="hi")


@pytest.mark.anyio
async def test_an_error_in_a_stream_is_a_failed_response() -> None:
    s = service()
    async with s.post("/v1/responses", {"model": MODEL, "input": "hi", "stream": True}) as exchange:
        await s.engine.wait_requests(1)
        s.engine.emit(s.engine.requests[0], b"a")
        s.engine.fail(s.engine.requests[0], ErrorInfo(code="engine_died", message="Gone."))
        text = (await exchange.read_body()).decode()
    last = text.split("\n\n")[-2]
    assert last.startswith("event: response.failed\n")
    response = json.loads(last.partition("data: ")[2])["response"]
    assert response["status"] == "failed"
    assert response["error"] == {"code": "engine_died", "message": "Gone."}
