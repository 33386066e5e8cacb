"""`DELETE /v1/sessions/{id}`: a conversation is over, and what only it keeps in the KV cache is given back."""

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from headway.core.errors import SessionNotFound
from headway.gateway.gateway import Gateway

DEFAULT_TENANT = ""
"""Whose conversations these are, as long as requests name no tenant."""


class SessionEndpoint:
    """Asks every engine, since a conversation's name says nothing of its model."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def release(self, request: HttpRequest) -> Response:
        """Answer 204, or raise SessionNotFound. What runs of the conversation is finished first."""
        session = request.path_params["session"]
        with self._gateway.count_active():
            engines = [served.engine for served in self._gateway.models.values()]
            found = [await engine.release_session(DEFAULT_TENANT, session) for engine in engines]
        if not any(found):
            raise SessionNotFound(
                f"There is no conversation `{session[:100]}` here; it was released already, has expired, or never was."
            )
        return Response(status_code=204)
