"""One request beside the load, on a connection of its own: what an endpoint tells of itself before and after a run."""

import asyncio
from http import HTTPStatus

from headway.lab.connection import Response, connect
from headway.lab.endpoint import Endpoint

PATIENCE_S = 2.0
"""For what a run can do without: a server that does not tell it within this is taken not to."""


async def ask(endpoint: Endpoint, data: bytes, limit_s: float = PATIENCE_S) -> Response:
    """Send a whole request and return its response, however it ended; raises OSError, and TimeoutError after `limit_s`."""
    # No asyncio.wait_for: before Python 3.12 it forgets to be cancelled when what it waits for ends at the same time.
    asking = asyncio.ensure_future(_ask(endpoint, data, limit_s))
    try:
        await asyncio.wait({asking}, timeout=limit_s)
        if not asking.done():
            raise TimeoutError(f"no answer within {limit_s:g} s")
    finally:
        asking.cancel()
    return asking.result()


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
