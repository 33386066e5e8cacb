"""Builds the ASGI application: routes and layers around a `Gateway`. Everything it needs is passed in."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Route, Router, WebSocketRoute
from starlette.types import ASGIApp

from headway.gateway.chat import ChatEndpoint
from headway.gateway.completions import CompletionEndpoint
from headway.gateway.edge import Edge
from headway.gateway.embeddings import Embeddings
from headway.gateway.gateway import Gateway
from headway.gateway.generate import Endpoint, Generate
from headway.gateway.guard import Guard
from headway.gateway.messages import MessagesEndpoint, count_tokens
from headway.gateway.plain import PlainEndpoints
from headway.gateway.profile import ProfileEndpoint
from headway.gateway.responses import ResponsesEndpoint
from headway.gateway.routes import Routes
from headway.gateway.sessions import SessionEndpoint
from headway.gateway.stream_recovery import recovery_of
from headway.gateway.stream_routes import StreamAckEndpoint, StreamEndpoint
from headway.gateway.stream_socket import StreamSocket
from headway.gateway.summary import SUMMARY_CLASS, SummaryEndpoint
from headway.gateway.tokens import TokenService, detokenized, tokenized
from headway.wire.messages_request import parse_count_call
from headway.wire.rate_headers import RATE_HEADERS
from headway.wire.resumable import STREAM_HEADER
from headway.wire.tokens import parse_detokenize, parse_tokenize


def create_app(gateway: Gateway) -> ASGIApp:
    """Return the application that serves `gateway`: the layers around its routes."""
    edge = Edge(
        Guard(Routes(create_router(gateway)), door=gateway.door),
        clock=gateway.clock,
        send_timeout_s=gateway.config.slow_reader_timeout_s,
        tell=gateway.tell,
        trust_traces=gateway.config.trust_headers,
    )
    if not gateway.config.allow_origins:
        return edge
    return CORSMiddleware(  # outside the edge, so that pages can read the errors it answers
        edge,
        allow_origins=gateway.config.allow_origins,
        allow_methods=("GET", "POST", "DELETE"),
        allow_headers=("*",),
        expose_headers=("x-request-id", "retry-after", STREAM_HEADER, *RATE_HEADERS),
    )


def create_router(gateway: Gateway) -> Router:
    """Return every route; their lifespan closes the gateway and its streams, not the engines."""
    plain = PlainEndpoints(gateway)
    chat = ChatEndpoint()
    endpoints: dict[str, Endpoint[Any]] = {
        "/v1/chat/completions": chat,
        "/v1/completions": CompletionEndpoint(),
        "/v1/responses": ResponsesEndpoint(chat),
        "/v1/messages": MessagesEndpoint(chat),
    }

    @asynccontextmanager
    async def lifespan(_app: object) -> AsyncIterator[None]:
        if gateway.streams is not None:
            gateway.streams.begin(recovery_of(gateway, endpoints))
        try:
            yield
        finally:
            if gateway.streams is not None:
                await gateway.streams.close()
            await gateway.door.close()
            gateway.close()

    return Router(
        [
            *(
                Route(path, Generate(gateway, endpoint), methods=["POST"])
                for path, endpoint in endpoints.items()
            ),
            Route(
                "/v1/messages/count_tokens",
                TokenService(gateway, parse_count_call, count_tokens(chat)),
                methods=["POST"],
            ),
            Route("/v1/embeddings", Embeddings(gateway), methods=["POST"]),
            Route("/v1/profile", ProfileEndpoint(gateway).profile),
            Route(
                "/v1/summary",
                Generate(gateway, SummaryEndpoint(chat), service_class=SUMMARY_CLASS),
                methods=["POST"],
            ),
            Route("/tokenize", TokenService(gateway, parse_tokenize, tokenized), methods=["POST"]),
            Route("/detokenize", TokenService(gateway, parse_detokenize, detokenized), methods=["POST"]),
            Route("/v1/sessions/{session:path}", SessionEndpoint(gateway).release, methods=["DELETE"]),
            *_stream_routes(gateway),
            Route("/v1/models", plain.models),
            Route("/v1/models/{name:path}", plain.model),
            Route("/health", plain.health),
            Route("/ready", plain.ready),
            Route("/metrics", plain.metrics),
            Route("/openapi.json", plain.openapi),
        ],
        redirect_slashes=False,  # `Routes` does
        lifespan=lifespan,
    )


def _stream_routes(gateway: Gateway) -> list[BaseRoute]:
    if gateway.streams is None:
        return []
    streams = gateway.streams
    return [
        Route("/v1/streams/{stream}", StreamEndpoint(gateway, streams), methods=["GET", "DELETE"]),
        Route("/v1/streams/{stream}/ack", StreamAckEndpoint(gateway, streams), methods=["POST"]),
        WebSocketRoute("/v1/streams/{stream}/ws", StreamSocket(gateway, streams)),
    ]
