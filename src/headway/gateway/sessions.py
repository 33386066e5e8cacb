"""`DELETE /v1/sessions/{id}`: a conversation is over, and what only it keeps in the KV cache is given back."""

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from headway.core.caller import NOBODY
from headway.core.errors import SessionNotFound
from headway.gateway.admission import terms_of
from headway.gateway.gateway import Gateway
from headway.gateway.request_info import request_info
from headway.wire.service_headers import NOTHING_ASKED


class SessionEndpoint:
    """Asks every engine, since a conversation's name says nothing of its model."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def release(self, request: HttpRequest) -> Response:
        """Answer 204; what runs of the conversation is finished first.

        The tenant is that of its requests, from the same token or header.

        Raises SessionNotFound, or InvalidRequest for a header.
        """
        session = request.path_params["session"]
        caller = request_info(request.scope).caller or NOBODY
        trust_headers = self._gateway.config.trust_headers
        terms = terms_of(caller, request.scope["headers"], trust_headers=trust_headers) or NOTHING_ASKED
        with self._gateway.count_active():
            engines = [served.engine for served in self._gateway.models.values()]
            found = [await engine.release_session(terms.tenant, session) for engine in engines]
        if not any(found):
            raise SessionNotFound(
                f"This tenant has no conversation `{session[:100]}` here; it was released, has expired, or never was."
            )
        return Response(status_code=204)
