"""Profile and summary as a program gets them, from the gateway itself."""

from collections.abc import Callable

import httpx2
import msgspec
import pytest
from starlette.types import ASGIApp

from headway.client.prompt_message import Prompt, stable_tools
from headway.client.prompt_server import HttpPromptServer
from headway.core.errors import InvalidRequest, Unavailable
from headway.gateway.config import GatewayConfig
from headway.wire.chat_request import ChatMessage
from headway.wire.profile import Profile, ProfileSettings
from support.gateway_app import MODEL, service
from support.scripted_client import INFO, answering
from support.tool_service import tool_service
from support.tool_text import NOW

pytestmark = pytest.mark.anyio

PROMPT = Prompt((ChatMessage(role="user", content="Why?"), ChatMessage(role="assistant", content="So.")))
ROOMY = msgspec.structs.replace(INFO, max_context=4096, num_blocks=256)


def client(app: ASGIApp) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://test")


def answers(answer: Callable[[httpx2.Request], httpx2.Response]) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.MockTransport(answer), base_url="http://test")


@pytest.mark.parametrize("model", [None, MODEL])
async def test_the_profile_is_the_gateways(model: str | None) -> None:
    settings = ProfileSettings(role="You review code.", domain="Payments.", high_water=0.5)
    async with client(service(config=GatewayConfig(profile=settings)).app) as http:
        assert await HttpPromptServer(http, model=model).profile() == Profile(
            model=MODEL, role="You review code.", domain="Payments.", window_tokens=64, high_water=0.5
        )


async def test_the_summary_is_the_models() -> None:
    s = service(answering(b"Parser done."), info=ROOMY)
    async with client(s.app) as http:
        assert await HttpPromptServer(http, model=MODEL).summary(PROMPT) == "Parser done."
    assert bytes(s.engine.requests[0].token_ids).startswith(b"u:Why?\na:So.\nu:In one sentence")


async def test_tools_go_with_the_conversation() -> None:
    s = tool_service("Parser done.")
    async with client(s.app) as http:
        prompt = Prompt(PROMPT.messages, stable_tools([NOW]))
        assert await HttpPromptServer(http).summary(prompt) == "Parser done."
    assert b'"name": "now"' in bytes(t for t in s.engine.requests[0].token_ids if t < 256)


async def test_a_model_that_is_not_served_is_the_callers_mistake() -> None:
    async with client(service().app) as http:
        with pytest.raises(InvalidRequest, match="/v1/profile with status 404"):
            await HttpPromptServer(http, model="other").profile()


async def test_a_server_that_is_busy_is_unavailable() -> None:
    async with answers(lambda _: httpx2.Response(503)) as http:
        with pytest.raises(Unavailable, match="/v1/summary with status 503"):
            await HttpPromptServer(http).summary(PROMPT)


async def test_a_server_that_speaks_something_else_is_unavailable() -> None:
    async with answers(lambda _: httpx2.Response(200, text="<html>")) as http:
        with pytest.raises(Unavailable, match="answered something else"):
            await HttpPromptServer(http).summary(PROMPT)


async def test_no_server_is_unavailable() -> None:
    def refuse(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    async with answers(refuse) as http:
        with pytest.raises(Unavailable, match="/v1/profile cannot be reached: refused"):
            await HttpPromptServer(http).profile()
