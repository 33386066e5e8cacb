"""Bodies of requests. The first byte chooses the endpoint, the others are the body."""

import atheris  # type: ignore[import-untyped]

with atheris.instrument_imports(include=["headway"]):
    from headway.wire.chat_request import parse_chat
    from headway.wire.completion_request import parse_completion
    from headway.wire.embeddings import parse_embedding
    from headway.wire.messages_request import parse_count_call, parse_message_call
    from headway.wire.responses_request import parse_responses
    from headway.wire.tokens import parse_detokenize, parse_tokenize

from entrance import fuzz
from headway.core.errors import InvalidRequest
from json_mutator import mutate_json

PARSERS = (
    parse_chat,
    parse_completion,
    parse_embedding,
    parse_tokenize,
    parse_detokenize,
    parse_message_call,
    parse_count_call,
    parse_responses,
)


def one_input(data: bytes) -> None:
    PARSERS[(data[0] if data else 0) % len(PARSERS)](data[1:])


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    return data[:1] + mutate_json(data[1:], max_size - 1, seed)


if __name__ == "__main__":
    fuzz(one_input, InvalidRequest, mutate=mutate)
