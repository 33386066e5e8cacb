"""What answers at Redis's address and is no Redis, or breaks off: it counts as gone, whatever its bytes are."""

import asyncio

import pytest

from headway.flow.redis_pipe import RedisPipe, connect, grace_s
from headway.flow.shared import StoreGone

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("late_s", "more_s"), [(0.0, 0.0), (0.001, 0.0), (0.02, 0.02), (3.0, 0.05)])
def test_a_loop_that_stood_still_gives_redis_the_time_back(late_s: float, more_s: float) -> None:
    assert grace_s(late_s, deadline_s=0.05) == more_s


@pytest.mark.parametrize(
    "garbage",
    [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"+\xff\xfe\r\n" * 9, b"$-5\r\n" * 9, b"*x\r\n", b":\r\n" * 9],
)
async def test_what_is_no_redis_is_gone(garbage: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(garbage)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    pipe = RedisPipe(connect(f"redis://127.0.0.1:{port}/0"), "return 1", deadline_s=20)
    for _ in range(2):
        with pytest.raises(StoreGone):
            await pipe.ask("EVALSHA", "0" * 40, "0")
    await pipe.aclose()
    server.close()
    await server.wait_closed()
