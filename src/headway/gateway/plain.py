"""The endpoints that only tell: models, health, readiness, metrics."""

from collections.abc import Mapping

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from headway.core.errors import EngineUnavailable
from headway.gateway.admission import RESTART_RETRY_AFTER_S
from headway.gateway.gateway import Gateway
from headway.gateway.guard import OPEN_PATHS
from headway.gateway.served import ServedModel, find_model
from headway.wire import openapi
from headway.wire.models_response import ModelCard, ModelList


class PlainEndpoints:
    """Answers from what the gateway knows; nothing here waits."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def models(self, _request: HttpRequest) -> Response:
        """`GET /v1/models`: every served model."""
        return _json(ModelList(data=[_card(served) for served in self._gateway.models.values()]))

    async def model(self, request: HttpRequest) -> Response:
        """`GET /v1/models/{name}`: one model, or 404."""
        return _json(_card(find_model(self._gateway.models, request.path_params["name"])))

    async def health(self, _request: HttpRequest) -> Response:
        """`GET /health`: the process answers."""
        return _json({"status": "ok"})

    async def ready(self, _request: HttpRequest) -> Response:
        """`GET /ready`: every engine takes requests; 503 while one starts, restarts or drains."""
        states = self._gateway.readiness()
        if all(state == "ready" for state in states.values()):
            return _json({"status": "ready", "models": states})
        retry_after = {"retry-after": str(int(RESTART_RETRY_AFTER_S))}
        return _json({"status": "not ready", "models": states}, 503, retry_after)

    async def metrics(self, _request: HttpRequest) -> Response:
        """`GET /metrics`: Prometheus's text format."""
        if self._gateway.metrics is None:
            raise HTTPException(404)
        content_type, body = self._gateway.metrics()
        return Response(body, headers={"content-type": content_type})

    async def openapi(self, _request: HttpRequest) -> Response:
        """`GET /openapi.json`: the service described in OpenAPI."""
        open_paths = None if self._gateway.door.callers is None else OPEN_PATHS
        return _json(openapi.document(resumable=self._gateway.streams is not None, open_paths=open_paths))


def _card(served: ServedModel) -> ModelCard:
    try:
        max_context = served.engine.info.max_context
    except EngineUnavailable:
        max_context = None
    return ModelCard(id=served.name, created=served.created_s, max_model_len=max_context)


def _json(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")
