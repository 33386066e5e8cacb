"""The client's HTTP on httpx2: keeps connections, keeps to the environment's proxies. Imported by who opens a client."""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2

from headway.client.http import HttpFailure

_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=30.0)
"""A stream holds its connection for its whole life: a bound on connections would be a queue nobody decided on."""


@dataclass(frozen=True, slots=True)
class _Reply:
    response: httpx2.Response

    @property
    def status(self) -> int:
        return self.response.status_code

    @property
    def headers(self) -> Mapping[str, str]:
        return self.response.headers  # case does not matter to it

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self.response.aiter_raw():
                yield chunk
        except httpx2.HTTPError as error:
            raise _failure(error) from error


class HttpxHttp:
    """Implements `Http`. `transport`: another way to reach servers, such as a Unix socket's.

    tls  whether any address is https: certificates take 20 ms to load, and an editor's request waits for them
    """

    def __init__(self, transport: httpx2.AsyncBaseTransport | None = None, *, tls: bool = True) -> None:
        self._client = httpx2.AsyncClient(
            transport=transport,
            timeout=None,
            limits=_LIMITS,
            # A bare context trusts no certificate at all.
            verify=True if tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        )

    @asynccontextmanager
    async def open(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> AsyncIterator[_Reply]:
        """Send a request and wait for the response's head."""
        try:
            request = self._client.build_request(method, url, headers=dict(headers), content=body)
            response = await self._client.send(request, stream=True)
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
            raise _failure(error) from error
        try:
            yield _Reply(response)
        finally:
            await response.aclose()

    async def aclose(self) -> None:
        """Close every connection."""
        await self._client.aclose()


def _failure(error: Exception) -> HttpFailure:
    return HttpFailure(str(error).rstrip(".") or type(error).__name__)
