"""One request beside the load, on a connection of its own: what an endpoint tells of itself before and after a run."""

import asyncio
from http import HTTPStatus

from headway.lab.connection import Response, connect
from headway.lab.endpoint import Endpoint

PATIENCE_S = 2.0
"""For what a run can do without: a server that does not tell it within this is taken not to."""


async def ask(endpoint: Endpoint, data: bytes, limit_s: float = PATIENCE_S) -> Response:
    """Send a whole request and return its response, however it ended; raises OSError, and TimeoutError after `limit_s`."""
    return await asyncio.wait_for(_ask(endpoint, data, limit_s), limit_s)


async def body_of(endpoint: Endpoint, data: bytes, limit_s: float = PATIENCE_S) -> bytes | None:
    """Return the body of a complete response of status 200; None whatever else comes, or nothing."""
    try:
        response = await ask(endpoint, data, limit_s)
    except (OSError, TimeoutError):
        return None
    whole = response.end == "complete" and response.status == HTTPStatus.OK
    return bytes(response.body) if whole else None


async def _ask(endpoint: Endpoint, data: bytes, limit_s: float) -> Response:
    connection = await connect(endpoint.host, endpoint.port, tls=endpoint.tls_context(), timeout_s=limit_s)
    try:
        return await connection.request(data, silence_s=limit_s)
    finally:
        connection.close()
