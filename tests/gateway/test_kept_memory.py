"""Nothing of a request outlives it in a circle of references, which only a collection finds, gigabytes later."""

import asyncio
import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from support.gateway_app import service
from support.scripted_client import answering

LONG = "x" * 300_000
CASES: list[tuple[str, Mapping[str, object], int]] = [
    ("/tokenize", {"prompt": LONG}, 200),
    ("/v1/completions", {"prompt": LONG}, 400),
    ("/v1/completions", {"prompt": "a", "model": LONG}, 400),
    ("/v1/messages", {"messages": LONG, "max_tokens": 1}, 400),
    ("/v1/embeddings", {"input": LONG}, 400),
]


@contextmanager
def collected_by_hand() -> Iterator[None]:
    """Collect at the end only."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.set_debug(0)
        gc.garbage.clear()


@pytest.mark.anyio
@pytest.mark.parametrize(("path", "fields", "status"), CASES)
async def test_a_request_leaves_no_circles(path: str, fields: Mapping[str, object], status: int) -> None:
    s = service(answering("ab"))

    async def call() -> None:
        async with s.post(path, fields) as exchange:
            await exchange.read_body()
            assert exchange.status == status

    await call()  # what is imported and prepared for the first one may leave some
    with collected_by_hand():
        await call()
        await asyncio.sleep(0)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        assert not gc.garbage
