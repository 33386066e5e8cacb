"""What an error's response says besides its body."""

import asyncio

import pytest
from starlette.types import Message

from headway.core.errors import AccessUnavailable, Forbidden, HeadwayError, Unauthenticated
from headway.gateway.response import Responder, SlowReader
from headway.wire.messages_response import message_error


async def headers_of(error: HeadwayError) -> dict[bytes, bytes]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await Responder(send, timeout_s=60).error(error)
    assert sent[0]["status"] == error.status
    return dict(sent[0]["headers"])


@pytest.mark.anyio
async def test_a_401_says_how_to_ask_and_a_503_when() -> None:
    assert (await headers_of(Unauthenticated("no")))[b"www-authenticate"] == b'Bearer realm="headway"'
    assert b"www-authenticate" not in await headers_of(Forbidden("no"))
    unavailable = await headers_of(AccessUnavailable("no"))
    assert unavailable[b"retry-after"] == b"1"
    assert b"www-authenticate" not in unavailable


def test_anthropics_names_for_them() -> None:
    errors = (Unauthenticated("no"), Forbidden("no"), AccessUnavailable("no"))
    assert [message_error(error).error.type for error in errors] == [
        *("authentication_error", "permission_error", "overloaded_error")
    ]


@pytest.mark.anyio
async def test_a_reader_that_is_slow_now_and_then_gets_all() -> None:
    sent: list[bytes] = []

    async def send(message: Message) -> None:
        for turn in range(3):
            await (asyncio.sleep(0) if turn % 2 else asyncio.get_running_loop().run_in_executor(None, int))
        sent.append(message.get("body", b""))

    responder = Responder(send, timeout_s=60)
    await responder.stream(b"a")
    await responder.stream_end(b"b")
    assert sent == [b"", b"a", b"b"]


@pytest.mark.anyio
async def test_a_reader_that_takes_nothing_is_given_up_and_what_waited_for_him_ends() -> None:
    ended = False

    async def send(message: Message) -> None:
        nonlocal ended
        del message
        try:
            await asyncio.Event().wait()
        finally:
            ended = True

    with pytest.raises(SlowReader):
        await Responder(send, timeout_s=0).stream(b"a")
    assert ended


@pytest.mark.anyio
async def test_who_is_cancelled_while_he_sends_is_not_taken_for_a_slow_reader() -> None:
    waiting = asyncio.Event()

    async def send(message: Message) -> None:
        del message
        waiting.set()
        await asyncio.Event().wait()

    sending = asyncio.create_task(Responder(send, timeout_s=60).stream(b"a"))
    await waiting.wait()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending


@pytest.mark.anyio
async def test_what_sending_raises_at_once_is_raised() -> None:
    async def send(message: Message) -> None:
        raise OSError(message["type"])

    with pytest.raises(OSError, match=r"http.response.start"):
        await Responder(send, timeout_s=60).stream(b"a")
