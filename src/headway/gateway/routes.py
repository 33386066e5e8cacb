"""Starlette's router as an application of its own: what it cannot match is answered in the shape of the API asked for.

Starlette's own application would wrap `send` twice more, which every event of every stream would pass. Its
router's redirects would name this server's scheme: behind a proxy that speaks TLS, whoever follows would send his token
in the open.
"""

from typing import Final
from urllib.parse import quote

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Router
from starlette.types import Receive, Scope, Send

from headway.core.errors import InvalidRequest
from headway.gateway.request_info import MAX_PATH_CHARS, method_of, request_info

_SENTENCES: Final = {
    404: "there is no such address here; /openapi.json lists those there are.",
    405: "this address does not take this method; the Allow header names those it takes.",
}


class Routes:
    """Serves what `router` matches, its lifespan, too. Whoever errs in the last slash is led to the address he meant."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def find(self, scope: Scope) -> None:
        """Note the route of a request that is turned away before it gets here, as the router notes that of others."""
        found = None
        for route in self._router.routes:
            match, _ = route.matches(scope)
            if match is Match.FULL or (match is Match.PARTIAL and found is None):
                found = route
            if match is Match.FULL:
                break
        if found is not None:
            scope["route"] = found

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, socket or lifespan; raises what endpoints raise."""
        scope["app"] = self  # as in Starlette's own: then its router raises what it would answer
        try:
            await self._router(scope, receive, send)
        except HTTPException as error:  # before anything was sent: endpoints raise our own errors
            await self._response(scope, error)(scope, receive, send)

    def _response(self, scope: Scope, error: HTTPException) -> Response:
        if error.status_code == 404 and (meant := self._meant(scope)) is not None:
            return Response(status_code=307, headers={"location": meant})
        why = _SENTENCES.get(error.status_code, error.detail)
        failure = InvalidRequest(f"{method_of(scope)} {scope['path'][:MAX_PATH_CHARS]}: {why}")
        failure.status = error.status_code
        body = request_info(scope).error_shape.body(failure)
        return Response(
            msgspec.json.encode(body), error.status_code, error.headers, media_type="application/json"
        )

    def _meant(self, scope: Scope) -> str | None:
        """Return the address that differs in its last slash, if there is one: without host, as whoever asked knows it."""
        path: str = scope["path"]
        other = path.rstrip("/") if path.endswith("/") else f"{path}/"
        asked = {**scope, "path": other}
        if all(route.matches(asked)[0] is Match.NONE for route in self._router.routes):
            return None
        query = scope["query_string"].decode("latin-1")
        return quote(other) + (query and f"?{query}")
