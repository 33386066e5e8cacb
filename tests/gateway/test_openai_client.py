"""Scenario 8: OpenAI's own package, over a real server, reads what anybody reads from the socket."""

import http.client
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import openai
import pytest

from support.gateway_app import MODEL, service
from support.live_server import live_server
from support.scripted_client import answering

ANSWER = "Héllo, wörld 🙂\n\n\tx = 1  # ok"
MESSAGES: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    with live_server(service(answering(ANSWER, cached=3)).app) as address:
        yield address


def base_url(address: tuple[str, int]) -> str:
    host, port = address
    return f"http://{host}:{port}/v1"


@pytest.fixture
def client(address: tuple[str, int]) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=base_url(address), api_key="none", max_retries=0) as client:
        yield client


@asynccontextmanager
async def async_client(address: tuple[str, int]) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=base_url(address), api_key="none", max_retries=0) as client:
        yield client


def raw(address: tuple[str, int], path: str, **fields: object) -> bytes:
    """The body as it comes over the socket."""
    connection = http.client.HTTPConnection(*address)
    body = json.dumps({"model": MODEL, "max_tokens": 50, **fields})
    connection.request("POST", path, body, {"content-type": "application/json"})
    response = connection.getresponse()
    assert response.status == 200
    data = response.read()
    connection.close()
    return data


def raw_stream_text(address: tuple[str, int]) -> str:
    data = raw(address, "/v1/chat/completions", messages=MESSAGES, stream=True)
    events = data.decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)


def test_raw_stream_and_raw_response_have_the_same_text(address: tuple[str, int]) -> None:
    body = json.loads(raw(address, "/v1/chat/completions", messages=MESSAGES))
    assert body["choices"][0]["message"]["content"] == raw_stream_text(address) == ANSWER


def test_sync_whole(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=50)
    assert answer.choices[0].message.content == ANSWER
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 3
    assert answer.system_fingerprint == "fp_fake"


def test_sync_stream(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=MESSAGES,
            max_tokens=50,
            stream=True,
            stream_options={"include_usage": True},
            logprobs=True,
            top_logprobs=1,
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == ANSWER
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == len(ANSWER.encode())
    first = chunks[1].choices[0].logprobs
    assert first is not None
    assert first.content is not None
    assert first.content[0].token == "H"


def test_stream_helper(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES, max_tokens=50) as stream:
        assert stream.get_final_completion().choices[0].message.content == ANSWER


@pytest.mark.anyio
async def test_async_whole_and_stream(address: tuple[str, int]) -> None:
    async with async_client(address) as client:
        answer = await client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=50)
        assert answer.choices[0].message.content == ANSWER
        text = ""
        stream = await client.chat.completions.create(
            model=MODEL, messages=MESSAGES, max_tokens=50, stream=True
        )
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
        assert text == ANSWER


def test_completions(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=[1, 2, 3], max_tokens=50, logprobs=1, n=2)
    assert [choice.text for choice in answer.choices] == [ANSWER, ANSWER]
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.text_offset is not None
    stream = client.completions.create(model=MODEL, prompt="x", max_tokens=50, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == ANSWER


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "headway"


def test_extensions_travel_in_the_extra_body(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=MESSAGES,
        max_completion_tokens=50,
        extra_body={"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1, "ignore_eos": True},
    )
    assert answer.choices[0].message.content == ANSWER


def test_errors_arrive_as_the_packages_own(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=5000)
    assert bad.value.code == "context_length_exceeded"
    assert bad.value.request_id
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="other", messages=MESSAGES)
    with pytest.raises(openai.BadRequestError) as unsupported:
        client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_body={"web_search_options": {}})
    assert unsupported.value.param == "web_search_options"


def test_a_connection_serves_many_requests_also_after_an_error(address: tuple[str, int]) -> None:
    connection = http.client.HTTPConnection(*address)
    for body, status in (("{", 400), ('{"prompt":"x"}', 200), ('{"prompt":5}', 400), ('{"prompt":"y"}', 200)):
        connection.request("POST", "/v1/completions", body)
        response = connection.getresponse()
        assert response.status == status
        response.read()
    connection.close()
