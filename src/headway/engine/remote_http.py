"""Talks to a remote engine over HTTP. It knows addresses, connections and time-outs, not what an answer means.

Connections are kept for less than uvicorn keeps them idle (5 s), so that none is used that the server is about to close. The
environment's proxies are not asked: an engine is a neighbour.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import httpx2
import msgspec

from headway.core.errors import ConfigError, EngineDied, EngineUnavailable, HeadwayError, UpstreamTimeout
from headway.engine.remote_answer import Chunk
from headway.engine.remote_config import RemoteConfig, RemoteText, check_url
from headway.engine.remote_errors import of_response

KEEP_ALIVE_S: Final = 4.0
MAX_IDLE_CONNECTIONS: Final = 64
MAX_ERROR_BYTES: Final = 64 << 10
_WRITE_TIMEOUT_S: Final = 30.0
_HEADWAY: Final = "headway"
"""Whom Headway's list of models says they are owned by."""


class _Card(msgspec.Struct):
    id: str
    owned_by: str = ""
    max_model_len: int | None = None


class _Cards(msgspec.Struct):
    data: list[_Card]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a server says of the model. `model`: its own name for it."""

    model: str
    max_context: int
    is_headway: bool
    system_fingerprint: str


class RemoteHttp:
    """The connections to one server. `transport`: for tests."""

    def __init__(self, config: RemoteConfig, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        self._config = config
        self._url = check_url(config.url)
        headers = {"user-agent": "headway", "accept-encoding": "identity"}
        if config.api_key is not None:
            headers["authorization"] = f"Bearer {config.api_key.reveal()}"
        self._client = httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(
                connect=config.connect_timeout_s, read=None, write=_WRITE_TIMEOUT_S, pool=None
            ),
            limits=httpx2.Limits(
                max_connections=None,
                max_keepalive_connections=MAX_IDLE_CONNECTIONS,
                keepalive_expiry=KEEP_ALIVE_S,
            ),
            trust_env=False,
            transport=transport,
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    async def ask_models(self) -> _Card:
        """Return what the server says of the model; raises HeadwayError, ConfigError where it has no such model."""
        body = await self._ask("GET", "/models", None)
        try:
            cards = msgspec.json.decode(body, type=_Cards).data
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise ConfigError(f"{self._url}/models does not list models as OpenAI's API does.") from None
        wanted = self._config.upstream_model
        found = [card for card in cards if wanted is None or card.id == wanted]
        if not found:
            names = ", ".join(card.id for card in cards)[:300]
            raise ConfigError(
                f"{self._url} does not serve {wanted or 'any model'}; its models are: {names or 'none'}."
            )
        return found[0]

    async def find(self, text: RemoteText) -> Found:
        """Have the server answer one token, and return what it is; raises HeadwayError.

        ConfigError where it gives no token ids back, where its tokens are not ours (one more or less may be that which
        begins a text), or where nobody says how long its context is.
        """
        card = await self.ask_models()
        sample, sample_ids = text.sample
        asked = {
            "model": card.id,
            "prompt": sample or [0],
            "max_tokens": 1,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
        }
        body = await self._ask("POST", "/completions", msgspec.json.encode(asked))
        try:
            answer = msgspec.json.decode(body, type=Chunk)
            ids = answer.choices[0].token_ids if answer.choices else None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise ConfigError(f"{self._url}/completions does not answer as OpenAI's API does.") from None
        if not ids:
            raise ConfigError(
                f"{self._url} gives no token ids back (`return_token_ids`); vLLM from 0.10.2 on and Headway do."
            )
        if sample and answer.usage is not None and abs(answer.usage.prompt_tokens - len(sample_ids)) > 1:
            raise ConfigError(
                f"The tokenizer is another model's: {self._url} makes {answer.usage.prompt_tokens} tokens of a text of "
                f"{len(sample_ids)}; name the right one with --tokenizer."
            )
        max_context = self._config.max_context or card.max_model_len
        if max_context is None:
            raise ConfigError(f"{self._url} does not say how long its context is; say it with --max-context.")
        return Found(
            model=card.id,
            max_context=max_context,
            is_headway=card.owned_by == _HEADWAY,
            system_fingerprint=answer.system_fingerprint or "unknown",
        )

    @asynccontextmanager
    async def answer(self, body: bytes, headers: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        """Send a completion and yield the bytes of its answer as they come; leaving early closes the connection.

        Raises the HeadwayError that a refusal means, EngineUnavailable without an answer, EngineDied within one.
        """
        request = self._client.build_request(
            "POST",
            self._url + "/completions",
            content=body,
            headers={"content-type": "application/json", **headers},
        )
        try:
            response = await self._client.send(request, stream=True)
        except httpx2.HTTPError as error:
            raise _unreachable(error) from error
        try:
            if response.status_code != 200:
                raise of_response(response.status_code, response.headers, await _beginning(response))
            yield response.aiter_bytes()
        except httpx2.HTTPError as error:
            raise EngineDied(
                "The model's engine ended in the middle of the answer; send the request again."
            ) from error
        finally:
            await response.aclose()

    async def _ask(self, method: str, path: str, body: bytes | None) -> bytes:
        headers = {"content-type": "application/json"} if body is not None else {}
        timeout = httpx2.Timeout(self._config.connect_timeout_s)
        if body is not None:  # it may have to wait for its turn
            timeout = httpx2.Timeout(self._config.connect_timeout_s, read=self._config.first_token_timeout_s)
        try:
            response = await self._client.request(
                method, self._url + path, content=body, headers=headers, timeout=timeout
            )
        except httpx2.HTTPError as error:
            raise _unreachable(error) from error
        if response.status_code != 200:
            if response.status_code in (401, 403):
                raise ConfigError(f"{self._url} does not take this gateway's key; see --engine-key-env.")
            if response.status_code == 404 and path == "/models":
                raise ConfigError(
                    f"{self._url}/models is not there (404); an API's address often ends in /v1."
                )
            raise of_response(response.status_code, response.headers, response.content[:MAX_ERROR_BYTES])
        return response.content


def _unreachable(error: httpx2.HTTPError) -> HeadwayError:
    if isinstance(error, httpx2.ReadTimeout):
        return UpstreamTimeout("The model's engine took too long; send the request again.")
    return EngineUnavailable("The model's engine cannot be reached; send the request again.")


async def _beginning(response: httpx2.Response) -> bytes:
    """Return the first bytes of a body."""
    text = b""
    async for piece in response.aiter_bytes():
        text += piece
        if len(text) >= MAX_ERROR_BYTES:
            break
    return text
