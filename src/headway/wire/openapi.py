"""The service described in OpenAPI 3.1, made from the same structs that parse requests and write responses."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, get_args

import msgspec

from headway.core.version import __version__
from headway.wire import (
    chat_request,
    completion_request,
    embeddings,
    messages_request,
    responses_request,
    summary_request,
)
from headway.wire.chat_request import ChatFields
from headway.wire.chat_response import ChatChunk, ChatCompletion
from headway.wire.completion_request import CompletionFields
from headway.wire.completion_response import Completion
from headway.wire.embeddings import EmbeddingFields, EmbeddingList
from headway.wire.errors import ErrorBody
from headway.wire.messages_request import CountFields, MessagesFields
from headway.wire.messages_response import Message, MessageError, StreamEvent, TokenCount
from headway.wire.models_response import ModelCard, ModelList
from headway.wire.profile import Profile
from headway.wire.responses_request import ResponsesFields
from headway.wire.responses_response import Response, ResponseEvent
from headway.wire.schema_hints import lay_over
from headway.wire.service_headers import PARAMETERS, TENANT
from headway.wire.summary_request import Summary, SummaryFields
from headway.wire.tokens import Detokenized, DetokenizeFields, Tokenized, TokenizeFields

_STREAM: Final = (
    "With `stream`: server-sent events, each a chunk as JSON; in OpenAI's API `[DONE]` is the last."
)
_ERROR: Final = "The caller's mistake (4xx), or the server's limit (503, with Retry-After)."


_REQUESTS: Final[Mapping[type, Collection[str]]] = {
    ChatFields: chat_request.IGNORED,
    CompletionFields: completion_request.IGNORED,
    ResponsesFields: responses_request.IGNORED,
    MessagesFields: messages_request.IGNORED,
    CountFields: messages_request.IGNORED,
    EmbeddingFields: embeddings.IGNORED,
    SummaryFields: summary_request.IGNORED,
    TokenizeFields: (),
    DetokenizeFields: (),
}
"""Bodies of requests, with the names of fields that are taken and ignored."""


def document() -> dict[str, object]:
    """Return the document; every call builds it anew."""
    types = (
        ChatFields,
        ChatCompletion,
        ChatChunk,
        CompletionFields,
        Completion,
        ResponsesFields,
        Response,
        *get_args(ResponseEvent),
        MessagesFields,
        Message,
        *get_args(StreamEvent),
        MessageError,
        CountFields,
        TokenCount,
        EmbeddingFields,
        EmbeddingList,
        Profile,
        SummaryFields,
        Summary,
        TokenizeFields,
        Tokenized,
        DetokenizeFields,
        Detokenized,
        ModelCard,
        ModelList,
        ErrorBody,
    )
    _, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}", schema_hook=_schema_of_any
    )
    for request, ignored in _REQUESTS.items():
        _close(components[request.__name__], ignored)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headway",
            "version": __version__,
            "description": "OpenAI's and Anthropic's APIs, self-hosted.",
        },
        "paths": {
            "/v1/chat/completions": _generating(
                "Answer a conversation.", "ChatFields", "ChatCompletion", "ChatChunk"
            ),
            "/v1/completions": _generating(
                "Continue a text.", "CompletionFields", "Completion", "Completion"
            ),
            "/v1/responses": _generating(
                "Answer a conversation (OpenAI's Responses API).",
                "ResponsesFields",
                "Response",
                *(event.__name__ for event in get_args(ResponseEvent)),
            ),
            "/v1/messages": _generating(
                "Answer a conversation (Anthropic's API).",
                "MessagesFields",
                "Message",
                *(event.__name__ for event in get_args(StreamEvent)),
                error="MessageError",
            ),
            "/v1/messages/count_tokens": _taking(
                "Count the tokens of a conversation (Anthropic's API).",
                "CountFields",
                "TokenCount",
                error="MessageError",
            ),
            "/v1/embeddings": _taking(
                "Turn texts into vectors.", "EmbeddingFields", "EmbeddingList", parameters=PARAMETERS
            ),
            "/v1/profile": {
                "get": {
                    **_plain(
                        "What prompts are built by: role, domain, the model's window.", _json("Profile")
                    ),
                    "parameters": [{"name": "model", "in": "query", "schema": {"type": "string"}}],
                }
            },
            "/v1/summary": _taking(
                "Sum a conversation up in a line, from its cached prefix.",
                "SummaryFields",
                "Summary",
                parameters=PARAMETERS,
            ),
            "/tokenize": _taking(
                "Turn a text or a conversation into token ids.", "TokenizeFields", "Tokenized"
            ),
            "/detokenize": _taking("Turn token ids into text.", "DetokenizeFields", "Detokenized"),
            "/v1/sessions/{session}": {
                "delete": {
                    "summary": "End a conversation: what only it keeps in the KV cache is given back.",
                    "parameters": [
                        {"name": "session", "in": "path", "required": True, "schema": {"type": "string"}},
                        *(parameter for parameter in PARAMETERS if parameter["name"] == TENANT),
                    ],
                    "responses": {
                        "204": {"description": "It is over."},
                        "default": {"description": _ERROR, "content": _json("ErrorBody")},
                    },
                }
            },
            "/v1/models": {"get": _plain("The served models.", _json("ModelList"))},
            "/v1/models/{name}": {
                "get": {
                    **_plain("One model.", _json("ModelCard")),
                    "parameters": [
                        {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
                    ],
                }
            },
            "/health": {"get": _plain("The process is alive.", {"application/json": {}})},
            "/ready": {
                "get": _plain("Every engine takes requests; otherwise 503.", {"application/json": {}})
            },
            "/metrics": {"get": _plain("Metrics in Prometheus's text format.", {"text/plain": {}})},
            "/openapi.json": {"get": _plain("This document.", {"application/json": {}})},
        },
        "components": {"schemas": components},
    }


def _close(schema: dict[str, Any], ignored: Collection[str]) -> None:
    """Say that a request's body has no other fields than these."""
    for field in schema["properties"].values():
        lay_over(field)
    schema["properties"] |= {name: {"description": "Ignored."} for name in sorted(ignored)}
    schema["additionalProperties"] = False


def _generating(
    summary: str, request: str, whole: str, *chunks: str, error: str = "ErrorBody"
) -> dict[str, object]:
    data = {
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": {"oneOf": [_ref(chunk) for chunk in chunks]},
    }
    event = {
        "type": "object",
        "properties": {"event": {"type": "string"}, "data": data},
        "required": ["data"],
    }
    content = _json(whole) | {"text/event-stream": {"schema": event}}
    post = _plain(summary, content, error) | {
        "description": _STREAM,
        "parameters": PARAMETERS,
        "requestBody": {"required": True, "content": _json(request)},
    }
    return {"post": post}


def _taking(
    summary: str,
    request: str,
    answer: str,
    *,
    error: str = "ErrorBody",
    parameters: Sequence[dict[str, object]] = (),
) -> dict[str, object]:
    taken = {"parameters": parameters, "requestBody": {"required": True, "content": _json(request)}}
    return {"post": _plain(summary, _json(answer), error) | taken}


def _plain(summary: str, content: dict[str, object], error: str = "ErrorBody") -> dict[str, object]:
    return {
        "summary": summary,
        "responses": {
            "200": {"description": "Success.", "content": content},
            "default": {"description": _ERROR, "content": _json(error)},
        },
    }


def _json(name: str) -> dict[str, object]:
    return {"application/json": {"schema": _ref(name)}}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _schema_of_any(_type: type) -> dict[str, object]:
    """Describe `object`, the only type msgspec does not: parts that are checked by hand."""
    return {"description": "Any JSON value; see the field's rules."}
