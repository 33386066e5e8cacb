"""`GET /v1/profile`: what programs build prompts by. Role and domain are the operator's, from the configuration."""

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from headway.core.errors import EngineUnavailable
from headway.gateway.gateway import Gateway
from headway.gateway.served import find_model
from headway.wire.profile import Profile


class ProfileEndpoint:
    """Answers from the configuration; nothing here waits."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def profile(self, request: HttpRequest) -> Response:
        """`GET /v1/profile`, of the only model or of `?model=`; raises ModelNotFound, InvalidRequest."""
        served = find_model(self._gateway.models, request.query_params.get("model"))
        settings = self._gateway.config.profile
        try:
            window_tokens = served.engine.info.max_context
        except EngineUnavailable:
            window_tokens = None
        profile = Profile(
            model=served.name,
            role=settings.role,
            domain=settings.domain,
            window_tokens=window_tokens,
            high_water=settings.high_water,
        )
        return Response(msgspec.json.encode(profile), media_type="application/json")
