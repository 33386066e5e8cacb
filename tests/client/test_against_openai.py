"""The same servers asked by OpenAI's package: both clients get the same answers and the same errors."""

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from headway.client import Answer, Client, Deadlines, Endpoint, Refused, SyncClient
from support.gateway_app import MODEL, Service, service
from support.live_server import live_server
from support.scripted_client import answering
from support.tool_service import tool_service

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
TOOLS: list[ChatCompletionToolParam] = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
        },
    }
]
CALLS = "".join(
    f'<tool_call>\n{{"name": "look", "arguments": {{"place": "{place}"}}}}\n</tool_call>'
    for place in ("here", "there")
)


def both(
    served: Service, **fields: object
) -> tuple[Answer | Refused, "openai.types.chat.ChatCompletion | openai.APIStatusError"]:
    """Return what each client gets for the same chat: ours streamed, as always, OpenAI's whole."""
    with live_server(served.app) as (host, port):
        url = f"http://{host}:{port}/v1"
        theirs = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
        client = Client(
            [Endpoint(url=url, model=MODEL)], deadlines=Deadlines(first_token_s=60), max_retries=0
        )
        with theirs, SyncClient(client) as ours:
            try:
                expected: openai.types.chat.ChatCompletion | openai.APIStatusError = (
                    theirs.chat.completions.create(model=MODEL, messages=MESSAGES, **fields)  # type: ignore[call-overload]
                )
            except openai.APIStatusError as error:
                expected = error
            try:
                return ours.chat(MESSAGES, **fields), expected  # type: ignore[arg-type]
            except Refused as error:
                return error, expected


@pytest.mark.parametrize("text", ["Héllo, wörld 🙂\n\n\tx = 1", "", "a"])
def test_text_usage_and_reason(text: str) -> None:
    answer, expected = both(service(answering(text, cached=1)), max_tokens=50)
    assert isinstance(answer, Answer)
    assert not isinstance(expected, openai.APIStatusError)
    choice = expected.choices[0]
    assert (answer.text, answer.finish_reason) == (choice.message.content, choice.finish_reason)
    assert answer.usage is not None
    assert expected.usage is not None
    assert answer.usage.prompt_tokens == expected.usage.prompt_tokens
    assert answer.usage.completion_tokens == expected.usage.completion_tokens
    assert answer.usage.cached_tokens == 1
    assert answer.model == expected.model


@pytest.mark.parametrize("per_step", [1, 7, 1000])
def test_tool_calls_are_merged_as_they_are_whole(per_step: int) -> None:
    answer, expected = both(tool_service(CALLS, per_step=per_step), tools=TOOLS)
    assert isinstance(answer, Answer)
    assert not isinstance(expected, openai.APIStatusError)
    choice = expected.choices[0]
    assert answer.finish_reason == choice.finish_reason == "tool_calls"
    calls = [call.function for call in choice.message.tool_calls or () if call.type == "function"]
    assert [(call.name, call.arguments) for call in answer.tool_calls] == [
        (f.name, f.arguments) for f in calls
    ]
    assert len({call.id for call in answer.tool_calls}) == 2


def test_errors() -> None:
    error, expected = both(service(answering("a")), temperature=9)
    assert isinstance(error, Refused)
    assert isinstance(expected, openai.APIStatusError)
    assert (error.status, error.code, error.param) == (expected.status_code, expected.code, expected.param)
    assert error.message in str(expected)
