"""What a call's span says: its name and attributes, from what is told of its end. Nothing of what was asked or answered.

Its stages are attributes, in seconds: they follow each other from the span's start, so that a start of their own would
say nothing new, six child spans would cost six times as much, and events of spans are being given up by OpenTelemetry.
"""

from headway.core.events import CallEnded, RequestEnded
from headway.obs import genai_names as names

Value = str | int | float | tuple[str, ...]

_NS_PER_S = 1e9


def name(call: CallEnded) -> str:
    """Return the span's name, one of few: the operation and its model, or method and route."""
    operation = names.OPERATIONS.get(call.endpoint)
    if operation is None or call.request is None:
        return f"{call.method} {call.endpoint}".rstrip()
    return f"{operation} {call.request.model}"


def attributes(call: CallEnded, sampled_by: str, sample_ratio: float) -> dict[str, Value]:
    """Return the span's attributes; the ratio is one of calls that it decided about."""
    found: dict[str, Value] = {
        names.METHOD: call.method,
        names.STATUS: call.status,
        names.REQUEST_ID: call.request_id,
        names.SERVICE_CLASS: call.service_class,
        names.SAMPLED_BY: sampled_by,
    }
    if sampled_by == "ratio":
        found[names.SAMPLE_RATIO] = sample_ratio
    if call.endpoint:
        found[names.ROUTE] = call.endpoint
    if call.token_id:
        found |= {names.TOKEN_ID: call.token_id, names.KIND: call.kind, names.TENANT: call.tenant}
    if call.error_code is not None:
        found[names.ERROR_TYPE] = call.error_code
    if call.request is not None:
        found |= _of_request(call.request, call.endpoint)
    return found


def _of_request(request: RequestEnded, endpoint: str) -> dict[str, Value]:
    found: dict[str, Value] = {
        names.PROVIDER: names.PROVIDER_NAME,
        names.REQUEST_MODEL: request.model,
        names.RESPONSE_MODEL: request.model,
    }
    operation = names.OPERATIONS.get(endpoint)
    if operation is not None:
        found[names.OPERATION] = operation
    if request.outcome in ("stop", "length"):
        found[names.FINISH_REASONS] = (request.outcome,)
    if request.ttft_ns is not None:
        found[names.TIME_TO_FIRST_CHUNK] = request.ttft_ns / _NS_PER_S
    if request.usage is not None:
        found[names.INPUT_TOKENS] = request.usage.prompt_tokens
        found[names.CACHED_TOKENS] = request.usage.cached_tokens
        found[names.OUTPUT_TOKENS] = request.usage.completion_tokens
    if request.num_preemptions:
        found[names.PREEMPTIONS] = request.num_preemptions
    for stage, took_ns in request.stages:
        found[names.STAGE + stage] = took_ns / _NS_PER_S
    return found
