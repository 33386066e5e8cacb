"""Embeddings over HTTP: order, forms, bounds in the engine, refusals and clients that leave."""

import base64
from array import array
from collections.abc import Iterable

import msgspec
import pytest

from headway.core.messages import ChoiceFinished, ErrorInfo, Finished, Usage
from headway.core.request import Request
from support.gateway_app import Service, service
from support.scripted_client import Batch

pytestmark = pytest.mark.anyio

PATH = "/v1/embeddings"


def embedding_of(request: Request) -> bytes:
    """A vector of two numbers that tells the text."""
    return array("f", [request.token_ids[0], len(request.token_ids)]).tobytes()


def embed(request: Request) -> Iterable[Batch]:
    usage = Usage(prompt_tokens=len(request.token_ids), completion_tokens=0, cached_tokens=1)
    yield (
        ChoiceFinished(request.request_id, 0, "stop"),
        Finished(request_id=request.request_id, usage=usage, embedding=embedding_of(request)),
    )


def finish(s: Service, request: Request) -> None:
    usage = Usage(prompt_tokens=len(request.token_ids), completion_tokens=0)
    s.engine.emit_end(
        request, Finished(request_id=request.request_id, usage=usage, embedding=embedding_of(request))
    )


async def answer(s: Service, **fields: object) -> dict[str, object]:
    async with s.post(PATH, {"model": "fake", **fields}) as exchange:
        body: dict[str, object] = msgspec.json.decode(await exchange.read_body())
        body["status"] = exchange.status
    return body


@pytest.mark.parametrize(
    ("given", "vectors"),
    [
        ("ab", [[97, 2]]),
        (["ab", "c"], [[97, 2], [99, 1]]),
        ([5, 6, 7], [[5, 3]]),
        ([[5, 6], [7]], [[5, 2], [7, 1]]),
    ],
    ids=["text", "texts", "ids", "lists of ids"],
)
async def test_every_form_of_input_gives_its_vectors_in_order(
    given: object, vectors: list[list[float]]
) -> None:
    s = service(embed, pooling="mean")
    body = await answer(s, input=given)
    num_tokens = sum(int(vector[1]) for vector in vectors)
    assert body == {
        "status": 200,
        "object": "list",
        "model": "fake",
        "data": [{"object": "embedding", "index": i, "embedding": v} for i, v in enumerate(vectors)],
        "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
    }
    assert {request.pooling for request in s.engine.requests} == {"mean"}
    assert s.ended[0].outcome == "stop"
    assert s.ended[0].usage == Usage(
        prompt_tokens=num_tokens, completion_tokens=0, cached_tokens=len(vectors)
    )


async def test_base64_holds_the_same_numbers() -> None:
    body = await answer(service(embed, pooling="last"), input="ab", encoding_format="base64")
    data = body["data"]
    assert isinstance(data, list)
    assert array("f", base64.b64decode(data[0]["embedding"])).tolist() == [97, 2]


async def test_many_texts_enter_the_engine_a_few_at_a_time_and_keep_their_order() -> None:
    s = service(pooling="last")
    texts = [chr(97 + index % 26) * (1 + index % 5) for index in range(100)]
    async with s.post(PATH, {"input": texts}) as exchange:
        for index in range(100):
            await s.engine.wait_requests(min(100, index + 1))
            assert s.engine.num_live <= 32
            finish(s, s.engine.requests[index])
        data = msgspec.json.decode(await exchange.read_body())["data"]
    assert [item["embedding"] for item in data] == [[ord(text[0]), len(text)] for text in texts]


async def test_a_model_without_pooling_makes_no_embeddings() -> None:
    body = await answer(service(embed), input="a")
    assert body["status"] == 400
    assert "--pooling" in str(body["error"])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "input"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": ["a", 1]}, "input"),
        ({"input": [300]}, "input"),
        ({"input": [-1]}, "input"),
        ({"input": {"a": 1}}, "input"),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": "a" * 70}, "input"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "a", "dimensions": 3}, "dimensions"),
        ({"input": "a", "task": "x"}, "task"),
    ],
)
async def test_a_mistake_is_named(fields: dict[str, object], param: str) -> None:
    s = service(embed, pooling="mean")
    body = await answer(s, **fields)
    assert body["status"] == 400
    error = body["error"]
    assert isinstance(error, dict)
    assert error["param"] == param
    assert s.engine.num_live == 0


@pytest.mark.parametrize("form", ["text", "ids"])
async def test_a_text_may_fill_the_whole_context(form: str) -> None:
    def input_of(num_tokens: int) -> object:
        return "a" * num_tokens if form == "text" else [97] * num_tokens

    s = service(embed, pooling="mean")
    assert (await answer(s, input=input_of(64)))["status"] == 200
    refused = await answer(s, input=input_of(65))
    assert refused["status"] == 400
    assert refused["error"] == {
        "message": "The model's context is 64 tokens and the text has at least 65; shorten or divide it.",
        "type": "invalid_request_error",
        "param": "input",
        "code": "context_length_exceeded",
    }


async def test_the_models_own_number_of_dimensions_may_be_asked_for() -> None:
    assert (await answer(service(embed, pooling="mean"), input="a", dimensions=2))["status"] == 200


async def test_one_text_that_fails_ends_the_call_and_the_other_texts() -> None:
    s = service(pooling="mean")
    async with s.post(PATH, {"input": ["a", "b", "c"]}) as exchange:
        await s.engine.wait_requests(3)
        s.engine.fail(s.engine.requests[1], ErrorInfo(code="queue_full", message="Full.", retry_after_s=3))
        assert await exchange.read_status() == 503
        assert exchange.headers["retry-after"] == "3"
    assert s.engine.num_live == 0
    assert s.ended[0].outcome == "refused"


async def test_a_client_that_leaves_takes_its_texts_along() -> None:
    s = service(pooling="mean")
    async with s.post(PATH, {"input": ["a"] * 50}) as exchange:
        await s.engine.wait_requests(32)
        exchange.disconnect()
        await exchange.wait_ended()
    assert s.engine.num_live == 0
    assert len(s.engine.requests) == 32
    assert s.ended[0].outcome == "cancelled"
