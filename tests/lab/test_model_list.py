"""What is read of an endpoint's list of models, whoever wrote it."""

import asyncio

import pytest

from headway.core.errors import ConfigError
from headway.lab.endpoint import Endpoint
from headway.lab.model_list import ServedModel, first_model, named_model
from support.plain_server import as_json, serving

pytestmark = pytest.mark.anyio

NOBODY = Endpoint(host="127.0.0.1", port=1, path="/v1")


def listing(*models: object) -> tuple[int, bytes]:
    return as_json({"object": "list", "data": models})


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
    async with serving(lambda *_: listing(card, {"id": "other", "max_model_len": 1})) as asked:
        found = await first_model(asked, 10)
    assert found == ServedModel(name="m", max_context_tokens=max_context_tokens)


@pytest.mark.parametrize(
    ("name", "max_context_tokens"), [("m", 77), ("a.gguf", 4096), ("short", 4096), ("unlisted", None)]
)
async def test_a_named_model_is_looked_up(name: str, max_context_tokens: int | None) -> None:
    async with serving(lambda *_: listing({"id": "m", "max_model_len": 77}, LLAMA)) as asked:
        found = await named_model(asked, name)
    assert found == ServedModel(name=name, max_context_tokens=max_context_tokens)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((404, b""), "status 404; is the URL"),
        ((401, b""), "status 401; --api-key-env"),
        ((200, b"ok"), "something else"),
        (listing(), "no model"),
    ],
)
async def test_an_endpoint_without_models_is_told_to_who_needs_one(
    answer: tuple[int, bytes], message: str
) -> None:
    async with serving(lambda *_: answer) as asked:
        with pytest.raises(ConfigError, match=message):
            await first_model(asked, 10)
        assert await named_model(asked, "m") == ServedModel(name="m")


async def test_nobody_and_silence_are_told_to_who_needs_a_model() -> None:
    with pytest.raises(ConfigError, match="No connection to"):
        await first_model(NOBODY, 10)
    assert await named_model(NOBODY, "m") == ServedModel(name="m")
    left = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.wait({asyncio.create_task(reader.read())})  # until the client leaves
        writer.close()
        left.set()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        asked = Endpoint(host="127.0.0.1", port=server.sockets[0].getsockname()[1], path="/v1")
        with pytest.raises(ConfigError, match=r"does not answer within 0\.2 s"):
            await first_model(asked, 0.2)
        await left.wait()


async def test_who_speaks_no_http_is_told() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"nothing\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        asked = Endpoint(host="127.0.0.1", port=server.sockets[0].getsockname()[1], path="/v1")
        with pytest.raises(ConfigError, match="nothing"):
            await first_model(asked, 10)
