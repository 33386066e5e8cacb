"""What is read of an endpoint's list of models, whoever wrote it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from headway.core.errors import ConfigError
from headway.lab.endpoint import Endpoint
from headway.lab.model_list import ServedModel, first_model, named_model

pytestmark = pytest.mark.anyio

NOBODY = Endpoint(host="127.0.0.1", port=1, path="/v1")


@asynccontextmanager
async def endpoint(answer: bytes) -> AsyncIterator[Endpoint]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield Endpoint(host="127.0.0.1", port=server.sockets[0].getsockname()[1], path="/v1")


def listing(*models: object) -> bytes:
    body = msgspec.json.encode({"object": "list", "data": models})
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


LLAMA = {"id": "a.gguf", "aliases": ["short"], "meta": {"n_ctx": 4096, "n_ctx_train": 8192}}


@pytest.mark.parametrize(
    ("card", "max_context_tokens"),
    [
        ({"id": "m", "max_model_len": 8192}, 8192),
        ({"id": "m", "max_model_len": None}, None),
        ({"id": "m"}, None),
        ({"id": "m", "meta": {"n_ctx": 4096, "n_ctx_train": 8192}}, 4096),
        ({"id": "m", "meta": {"n_ctx": 0, "n_ctx_train": 8192}}, 8192),
        ({"id": "m", "meta": None}, None),
        ({"id": "m", "meta": "of another kind", "aliases": 5}, None),
    ],
)
async def test_the_first_model_and_its_context(card: object, max_context_tokens: int | None) -> None:
    async with endpoint(listing(card, {"id": "other", "max_model_len": 1})) as asked:
        found = await first_model(asked, 10)
    assert found == ServedModel(name="m", max_context_tokens=max_context_tokens)


@pytest.mark.parametrize(
    ("name", "max_context_tokens"), [("m", 77), ("a.gguf", 4096), ("short", 4096), ("unlisted", None)]
)
async def test_a_named_model_is_looked_up(name: str, max_context_tokens: int | None) -> None:
    async with endpoint(listing({"id": "m", "max_model_len": 77}, LLAMA)) as asked:
        found = await named_model(asked, name)
    assert found == ServedModel(name=name, max_context_tokens=max_context_tokens)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "status 404"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "something else"),
        (listing(), "no model"),
        (b"nothing\r\n\r\n", "nothing"),
    ],
)
async def test_an_endpoint_without_models_is_told_to_who_needs_one(answer: bytes, message: str) -> None:
    async with endpoint(answer) as asked:
        with pytest.raises(ConfigError, match=message):
            await first_model(asked, 10)
        assert await named_model(asked, "m") == ServedModel(name="m")


async def test_nobody_and_silence_are_told_to_who_needs_a_model() -> None:
    with pytest.raises(ConfigError, match="No connection to"):
        await first_model(NOBODY, 10)
    assert await named_model(NOBODY, "m") == ServedModel(name="m")
    async with endpoint(b"") as asked:
        with pytest.raises(ConfigError, match="nothing"):
            await first_model(asked, 10)
        with pytest.raises(ConfigError, match="does not answer within 0 s"):
            await first_model(asked, 0)
