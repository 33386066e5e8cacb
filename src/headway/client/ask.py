"""What is asked of an endpoint: a request's path and JSON, and what stands for it where an endpoint does not take it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from headway.client.failure import Failure
from headway.client.policy import Endpoint, check_fields
from headway.core.clock import NS_PER_MS
from headway.core.errors import ConfigError

RESUMABLE: Final = "x-headway-resumable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request for one answer.

    instead  the same in a form that any endpoint takes
    clean    makes the answer's text of what such a form brings; None = it is the text
    """

    path: str
    fields: Mapping[str, object]
    instead: "Ask | None" = None
    clean: Callable[[str], str] | None = None


def ask_chat(messages: Sequence[Mapping[str, object]], fields: Mapping[str, object]) -> Ask:
    """Return a chat; raises ConfigError for fields that are the client's own."""
    check_fields(fields)
    if not messages:
        raise ConfigError("A chat needs a message.")
    return Ask(path="/chat/completions", fields={"messages": list(messages), **fields})


def ask_completion(prompt: str, suffix: str, fields: Mapping[str, object]) -> Ask:
    """Return a text completion; raises ConfigError for fields that are the client's own."""
    check_fields(fields)
    return Ask(
        path="/completions", fields={"prompt": prompt, **({"suffix": suffix} if suffix else {}), **fields}
    )


def body_of(ask: Ask, endpoint: Endpoint) -> bytes:
    """Return the request's bytes for an endpoint. It is always a stream: only then is the first token seen when it comes."""
    own: dict[str, object] = {"stream": True, "stream_options": {"include_usage": True}}
    if endpoint.model:
        own["model"] = endpoint.model
    return msgspec.json.encode({**ask.fields, **endpoint.fields, **own})


def headers_of(endpoint: Endpoint, left_ns: int) -> dict[str, str]:
    """Return a request's headers. `left_ns`: until the first token is due."""
    headers = {
        "content-type": "application/json",
        "accept": "text/event-stream",
        "accept-encoding": "identity",  # compressed events wait for each other
        **key_header(endpoint),
    }
    if endpoint.resumable:
        headers[RESUMABLE] = "1"
    if endpoint.send_deadline:
        from headway.wire.service_headers import MAX_TTFT_MS, TTFT_MS  # 5 ms that few need

        headers[TTFT_MS] = str(min(MAX_TTFT_MS, max(1, left_ns // NS_PER_MS)))
    return {**headers, **endpoint.headers}


def key_header(endpoint: Endpoint) -> dict[str, str]:
    """Return the header that says who asks."""
    return {} if endpoint.api_key is None else {"authorization": f"Bearer {endpoint.api_key}"}


def takes_no_suffix(failure: Failure) -> bool:
    """Return whether an endpoint said that it cannot fill in the middle, or completes no text at all."""
    if failure.status in (404, 405, 501):
        return failure.code != "model_not_found"
    return failure.status in (400, 422) and "suffix" in f"{failure.param} {failure.message}".lower()
