"""Errors as the API at an address describes them: Anthropic's on its own routes, OpenAI's everywhere else."""

from collections.abc import Callable
from typing import Final, NamedTuple

from headway.core.errors import HeadwayError
from headway.wire.errors import error_body, error_event
from headway.wire.messages_response import MESSAGES_PATH, message_error, message_error_event


class ErrorShape(NamedTuple):
    """How an API describes an error: as a whole response's value, and encoded as an event that ends a stream."""

    body: Callable[[HeadwayError], object]
    event: Callable[[HeadwayError], bytes]


OPENAI: Final = ErrorShape(error_body, error_event)
ANTHROPIC: Final = ErrorShape(message_error, message_error_event)


def shape_at(path: str) -> ErrorShape:
    """Return the shape of errors of what is, or would be, at `path`."""
    return ANTHROPIC if path == MESSAGES_PATH or path.startswith(f"{MESSAGES_PATH}/") else OPENAI
