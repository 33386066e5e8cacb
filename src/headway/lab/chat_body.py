"""The JSON body of a request to /v1/chat/completions; its bytes depend on its arguments alone."""

from collections.abc import Mapping

import msgspec

from headway.core.errors import ConfigError
from headway.lab.workload import WorkloadRequest


def chat_body(
    request: WorkloadRequest,
    model: str,
    *,
    temperature: float | None = None,
    seed: int | None = None,
    ignore_eos: bool = False,
    extra: Mapping[str, object] | None = None,
) -> bytes:
    """Return the body: keys in one order, a stream with a usage chunk, and only those options that were given.

    `ignore_eos` is no field of OpenAI's API, but of vLLM's and others': answers then have exactly the asked length. `extra`
    comes last, sorted by name. Raises ConfigError when it names a field that is set already.
    """
    body: dict[str, object] = {
        "model": model,
        "messages": [{"role": message.role, "content": message.content} for message in request.messages],
        "max_tokens": request.max_output_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if temperature is not None:
        body["temperature"] = temperature
    if seed is not None:
        body["seed"] = seed
    if ignore_eos:
        body["ignore_eos"] = True
    for name in sorted(extra or {}):
        if name in body:
            raise ConfigError(
                f"The request field {name} is set by the lab itself and cannot be given as an extra one."
            )
        body[name] = (extra or {})[name]
    return msgspec.json.encode(body)
