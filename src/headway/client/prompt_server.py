"""What prompts need of a server: its profile, and a conversation's summary. Over HTTP; one request each, never repeated."""

from typing import Any, Final, Protocol, TypeVar

import httpx2
import msgspec

from headway.client.prompt_message import Prompt
from headway.core.errors import HeadwayError, InvalidRequest, Unavailable
from headway.wire.profile import Profile

SUMMARY_TIMEOUT_S: Final = 4.0
"""C3's: whoever waits longer goes on without a summary."""

T = TypeVar("T")


class PromptServer(Protocol):
    """Whoever knows the profile and makes summaries."""

    async def profile(self) -> Profile:
        """Return role, domain and window; raises HeadwayError."""
        ...

    async def summary(self, prompt: Prompt) -> str:
        """Return a conversation in one line of at most 128 characters, "" if nothing came; raises HeadwayError."""
        ...


class _SummaryAnswer(msgspec.Struct):
    summary: str


class HttpPromptServer:
    """A Headway server. `http` has its address and the caller's token and stays the caller's. `model` None: the only one."""

    def __init__(
        self, http: httpx2.AsyncClient, *, model: str | None = None, timeout_s: float = SUMMARY_TIMEOUT_S
    ) -> None:
        self._http = http
        self._model = model
        self._timeout_s = timeout_s

    async def profile(self) -> Profile:
        """Return the server's profile; raises InvalidRequest, or Unavailable where there is no such server."""
        params = {} if self._model is None else {"model": self._model}
        return await self._call("GET", "/v1/profile", Profile, params=params)

    async def summary(self, prompt: Prompt) -> str:
        """Return the summary; raises InvalidRequest, or Unavailable where none comes in time."""
        body = prompt.fields() | ({} if self._model is None else {"model": self._model})
        return (await self._call("POST", "/v1/summary", _SummaryAnswer, json=body)).summary

    async def _call(self, method: str, path: str, kind: type[T], **request: Any) -> T:
        try:
            response = await self._http.request(method, path, timeout=self._timeout_s, **request)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            why = str(error).rstrip(".") or type(error).__name__
            raise Unavailable(f"The server's {path} cannot be reached: {why}.") from error
        if response.status_code != httpx2.codes.OK:
            raise _refused(path, response)
        try:
            return msgspec.json.decode(response.content, type=kind)
        except msgspec.MsgspecError as error:
            raise Unavailable(f"The server's {path} answered something else: {error}.") from error


def _refused(path: str, response: httpx2.Response) -> HeadwayError:
    kind = InvalidRequest if response.is_client_error else Unavailable
    return kind(f"The server refused {path} with status {response.status_code}.")
