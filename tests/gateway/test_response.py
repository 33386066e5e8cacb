"""What an error's response says besides its body."""

import pytest
from starlette.types import Message

from headway.core.errors import AccessUnavailable, Forbidden, HeadwayError, Unauthenticated
from headway.gateway.response import Responder
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
