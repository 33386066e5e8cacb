"""Resumable streams in the OpenAPI document: their addresses, and the header that asks for one (docs/streams.md)."""

from typing import Any, Final

import msgspec

from headway.wire.openapi_answers import body_of, failure
from headway.wire.resumable import RESUMABLE, STREAM_HEADER
from headway.wire.stream_messages import Position

_RESUMABLE: Final = {
    "name": RESUMABLE,
    "in": "header",
    "description": "1: a streamed answer outlives its connection, and its events have ids.",
    "schema": {"enum": ["0", "1"]},
}

_ID: Final = "[0-9a-f]{32}"
_NUMBER: Final = "(0|[1-9][0-9]{0,14})"
_EPOCH: Final = "[1-9][0-9]{0,14}"
_STREAM: Final = {
    "name": "stream",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": f"^{_ID}$"},
}
_CURSORS: Final = (
    {
        "name": "last-event-id",
        "in": "header",
        "description": "The id of the last event that arrived; unless it is empty it counts before `after`.",
        "schema": {"type": "string", "pattern": rf"^({_ID}\.{_EPOCH}\.{_NUMBER})?$"},
    },
    {
        "name": "after",
        "in": "query",
        "description": "The number of the last event that arrived, or epoch.number; 0: from the beginning.",
        "schema": {"type": "string", "pattern": rf"^({_EPOCH}\.)?{_NUMBER}$"},
    },
)
_HEADERS: Final[dict[str, object]] = {
    STREAM_HEADER: {"description": "The stream's id.", "schema": {"type": "string", "pattern": f"^{_ID}$"}}
}
_EVENT: Final = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": {"type": "string"}},
    "required": ["id", "data"],
}
_UNKNOWN: Final = "There is no such stream, or it is somebody else's."
_GONE: Final = "`resync_required`: what follows is gone; send the request again."


def add_streams(document: dict[str, Any]) -> None:
    """Add to a document that streams can be resumed; a stream's WebSocket is none of OpenAPI's matters."""
    for item in document["paths"].values():
        answer = item.get("post", {"responses": {}})["responses"].get("200", {"content": {}})
        if "text/event-stream" in answer["content"]:
            item["post"]["parameters"] = [*item["post"]["parameters"], _RESUMABLE]
            answer["headers"] = _HEADERS
    document["paths"] |= _paths()
    _, schemas = msgspec.json.schema_components((Position,), ref_template="#/components/schemas/{name}")
    document["components"]["schemas"] |= schemas


def _paths() -> dict[str, object]:
    following = {
        "description": "The events that follow, as they are made.",
        "headers": _HEADERS,
        "content": {"text/event-stream": {"schema": _EVENT}},
    }
    gone = failure(description=_GONE)
    return {
        "/v1/streams/{stream}": {
            "parameters": [_STREAM],
            "get": {
                "summary": "Go on with a stream after the last event that arrived.",
                "parameters": _CURSORS,
                "responses": _answers(
                    {
                        "200": following,
                        "204": {"description": "It is over, and everything has arrived."},
                        "410": gone,
                    }
                ),
            },
            "delete": {
                "summary": "Cancel a stream now.",
                "responses": _answers({"204": {"description": "It is gone."}}),
            },
        },
        "/v1/streams/{stream}/ack": {
            "parameters": [_STREAM],
            "post": {
                "summary": "Say that all events up to a number have arrived; they are forgotten.",
                "requestBody": body_of("Position"),
                "responses": _answers({"204": {"description": "They are."}, "410": gone}),
            },
        },
    }


def _answers(own: dict[str, object]) -> dict[str, object]:
    """An operation's own answers, and those that all have."""
    return {**own, "404": failure(description=_UNKNOWN), "default": failure()}
