"""Tools over HTTP, read by OpenAI's own package and event by event."""

import json
import re
from typing import Any

import msgspec
import pytest

from support.asgi_client import Exchange
from support.gateway_app import MODEL, Service
from support.tool_service import TOKENIZER, openai_client, tool_service
from support.tool_text import (
    CODER_SOURCE,
    HERMES_SOURCE,
    LLAMA_SOURCE,
    MISTRAL_SOURCE,
    NO_TOOLS_SOURCE,
    NOW,
    PHI_SOURCE,
    WEATHER,
)

MESSAGES: list[Any] = [{"role": "user", "content": "hi"}]
TOOLS: list[Any] = [WEATHER, NOW]
PARIS = '{"city": "Paris"}'
PARIS_CALL = f'{{"name": "get_weather", "arguments": {PARIS}}}'
ONE_CALL = f"<tool_call>\n{PARIS_CALL}\n</tool_call>"
TWO_CALLS = f'I look.\n{ONE_CALL}\n<tool_call>\n{{"name": "now", "arguments": {{}}}}\n</tool_call>'
TAGGED_CALL = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>"
)
ID = re.compile(r"call_[A-Za-z0-9]{24}")


@pytest.mark.parametrize(
    ("source", "text", "content"),
    [
        (HERMES_SOURCE, f"I look.\n{ONE_CALL}", "I look."),
        (LLAMA_SOURCE, PARIS_CALL.replace("arguments", "parameters"), None),
        (LLAMA_SOURCE, "<|python_tag|>" + PARIS_CALL.replace("arguments", "parameters"), None),
        (
            CODER_SOURCE,
            f"I look.\n{TAGGED_CALL}",
            "I look.",
        ),
        (PHI_SOURCE, f"<|tool_call|>[{PARIS_CALL}]<|/tool_call|>", None),
        (MISTRAL_SOURCE, f"[TOOL_CALLS] [{PARIS_CALL}]", None),
    ],
)
def test_a_call_arrives_whole_and_streamed_alike(source: str, text: str, content: str | None) -> None:
    with openai_client(tool_service(text, source)) as client:
        whole = client.chat.completions.create(model=MODEL, messages=MESSAGES, tools=TOOLS).choices[0]
        assert whole.finish_reason == "tool_calls"
        assert whole.message.content == content
        assert whole.message.tool_calls is not None
        (call,) = whole.message.tool_calls
        assert call.type == "function"
        assert ID.fullmatch(call.id)
        assert (call.function.name, call.function.arguments) == ("get_weather", PARIS)
        with client.chat.completions.stream(model=MODEL, messages=MESSAGES, tools=TOOLS) as stream:
            streamed = stream.get_final_completion().choices[0]
        assert streamed.finish_reason == "tool_calls"
        assert streamed.message.content == content
        assert streamed.message.tool_calls is not None
        assert streamed.message.tool_calls[0].function.arguments == PARIS
        assert ID.fullmatch(streamed.message.tool_calls[0].id)


def test_the_package_accumulates_parallel_calls_of_every_choice() -> None:
    with openai_client(tool_service(TWO_CALLS)) as client:
        chunks = list(
            client.chat.completions.create(model=MODEL, messages=MESSAGES, tools=TOOLS, n=2, stream=True)
        )
    calls: dict[tuple[int, int], list[str]] = {}
    ids: list[str] = []
    for choice in (choice for chunk in chunks for choice in chunk.choices):
        for call in choice.delta.tool_calls or []:
            assert call.function is not None
            ids += [call.id] if call.id else []
            part = calls.setdefault((choice.index, call.index), [])
            part.append((call.function.name or "") + (call.function.arguments or ""))
    for index in (0, 1):
        assert "".join(calls[index, 0]) == "get_weather" + PARIS
        assert "".join(calls[index, 1]) == "now{}"
    assert len(set(ids)) == 4


async def chunks_of(exchange: Exchange) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while (event := await exchange.read_event()) not in (None, "[DONE]"):
        assert event is not None
        found += msgspec.json.decode(event)["choices"]
    return found


async def body_of(exchange: Exchange) -> dict[str, Any]:
    async with exchange:
        body: dict[str, Any] = msgspec.json.decode(await exchange.read_body())
    return body


@pytest.mark.anyio
async def test_the_chunks_are_openais() -> None:
    served = tool_service(ONE_CALL, per_step=45)
    async with served.chat(tools=TOOLS, stream=True) as exchange:
        chunks = await chunks_of(exchange)
    call_id = chunks[1]["delta"]["tool_calls"][0]["id"]
    assert [chunk["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": None, "refusal": None},
        {
            "tool_calls": [
                {
                    "index": 0,
                    "id": call_id,
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": ""},
                }
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": PARIS[:6]}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": PARIS[6:]}}]},
        {},
    ]
    assert [chunk["finish_reason"] for chunk in chunks] == [None, None, None, None, "tool_calls"]


@pytest.mark.anyio
async def test_one_call_at_most_ends_the_choice_in_the_engine_too() -> None:
    served = tool_service(TWO_CALLS)
    body = await body_of(served.chat(tools=TOOLS, parallel_tool_calls=False))
    (choice,) = body["choices"]
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["get_weather"]
    assert choice["finish_reason"] == "tool_calls"
    assert body["usage"]["completion_tokens"] == len(TOKENIZER.encode(TWO_CALLS.partition("}}")[0] + "}}"))
    assert served.engine.cancels[0][2] == "stop"


@pytest.mark.anyio
async def test_a_call_cut_off_by_the_limit_says_so() -> None:
    served = tool_service(TWO_CALLS[:60], reason="length")
    (choice,) = (await body_of(served.chat(tools=TOOLS)))["choices"]
    assert choice["finish_reason"] == "length"
    (call,) = choice["message"]["tool_calls"]
    assert PARIS.startswith(call["function"]["arguments"])


@pytest.mark.anyio
async def test_stop_strings_are_those_of_the_text_around_calls() -> None:
    served = tool_service(TWO_CALLS)
    (choice,) = (await body_of(served.chat(tools=TOOLS, stop=["Paris", "\n</tool_call>"])))["choices"]
    assert len(choice["message"]["tool_calls"]) == 2
    (choice,) = (await body_of(served.chat(tools=TOOLS, stop=["look"])))["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("I ", "stop")
    assert "tool_calls" not in choice["message"]


@pytest.mark.anyio
async def test_log_probabilities_are_those_of_the_text_around_calls() -> None:
    served = tool_service(TWO_CALLS + " Done.")
    (choice,) = (await body_of(served.chat(tools=TOOLS, logprobs=True)))["choices"]
    tokens = [token["token"] for token in choice["logprobs"]["content"]]
    assert "".join(tokens) == choice["message"]["content"] == "I look.Done."


@pytest.mark.anyio
async def test_the_prompt_holds_tools_calls_and_results_as_the_template_wants_them() -> None:
    served = tool_service("fine")
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'},
    }
    messages = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    ]
    await body_of(served.chat(messages=messages, tools=[NOW]))
    tool = {
        "type": "function",
        "function": {"name": "now", "parameters": {"type": "object", "properties": {}}},
    }
    assert bytes_of(served) == (
        f"<tools>{json.dumps(tool)}</tools><user>hi</><assistant>"
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call></>'
        "<tool>sunny (of c1 get_weather)</><assistant>"
    )


def bytes_of(served: Service) -> str:
    return TOKENIZER.decode(served.engine.requests[-1].token_ids, skip_special=False)


@pytest.mark.anyio
async def test_a_template_that_knows_tools_only_in_the_system_message_gets_them_there() -> None:
    served = tool_service("fine", PHI_SOURCE)
    call = {"id": "c1", "type": "function", "function": {"name": "now", "arguments": ""}}
    messages = [
        *MESSAGES,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "noon"},
    ]
    await body_of(served.chat(messages=messages, tools=[NOW]))
    assert bytes_of(served) == (
        '<system><|tool|>[{"name": "now", "parameters": {"type": "object", "properties": {}}}]<|/tool|></>'
        '<user>hi</><assistant><|tool_call|>[{"name": "now", "arguments": {}}]<|/tool_call|></>'
        "<tool>noon</><assistant>"
    )


@pytest.mark.anyio
async def test_mistral_gets_ids_of_the_length_it_insists_on() -> None:
    served = tool_service("fine", MISTRAL_SOURCE)
    call = {"id": "call_" + 24 * "x", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    messages = [
        *MESSAGES,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "noon"},
    ]
    await body_of(served.chat(messages=messages, tools=[NOW]))
    assert re.search(r"\(of [0-9a-f]{9} now\)", bytes_of(served))


@pytest.mark.anyio
async def test_none_hides_the_tools_and_leaves_the_answer_alone() -> None:
    served = tool_service(TWO_CALLS)
    (choice,) = (await body_of(served.chat(tools=TOOLS, tool_choice="none")))["choices"]
    assert choice["message"]["content"] == TWO_CALLS
    assert choice["finish_reason"] == "stop"
    assert "<tools>" not in bytes_of(served)


@pytest.mark.anyio
async def test_a_required_call_goes_to_the_engine_as_a_grammar_and_a_free_one_does_not() -> None:
    served = tool_service(TWO_CALLS)
    await body_of(served.chat(tools=TOOLS))
    await body_of(served.chat(tools=TOOLS, tool_choice="required"))
    grammars = [request.grammar for request in served.engine.requests]
    assert [grammar and grammar.kind for grammar in grammars] == [None, "lark"]


@pytest.mark.anyio
@pytest.mark.parametrize("source", ["", NO_TOOLS_SOURCE, HERMES_SOURCE.replace("<tool_call>", "<call>")])
async def test_a_model_that_would_not_see_tools_or_whose_calls_we_cannot_read_refuses_them(
    source: str,
) -> None:
    body = await body_of(tool_service("x", source).chat(tools=TOOLS))
    assert body["error"]["param"] == "tools"
    assert "leave `tools` out" in body["error"]["message"]


@pytest.mark.anyio
async def test_earlier_calls_are_refused_where_the_template_would_drop_them() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    messages = [*MESSAGES, {"role": "assistant", "content": "", "tool_calls": [call]}]
    body = await body_of(tool_service("x", NO_TOOLS_SOURCE).chat(messages=messages))
    assert body["error"]["param"] == "messages"
