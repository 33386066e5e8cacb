"""A request as an OpenAI-compatible server takes it, with tokens instead of text. Pure.

The fields are those of vLLM's `/v1/completions` (its documentation, "OpenAI-Compatible Server"), which are Headway's too.
Every one is sent: what vLLM is not told it takes from the model's `generation_config.json`. Tokens that end an answer are
named and the server's own ignored, so that both sides mean the same. What cannot be said is refused by name, not dropped.
"""

from typing import Any, Final

import msgspec

from headway.core.clock import NS_PER_MS
from headway.core.errors import EngineDied, InvalidRequest
from headway.core.request import Grammar, Request
from headway.wire import service_headers
from headway.wire.options import MAX_STOP_TOKEN_IDS

_GRAMMAR_FIELDS: Final = {"json_schema": "json", "regex": "regex", "gbnf": "grammar", "lark": "grammar"}


def body_of(request: Request, upstream_model: str, *, is_headway: bool) -> bytes:
    """Return the JSON of a streaming completion; raises InvalidRequest that names what the server cannot do.

    EngineDied for the rest of an answer with which it cannot go on exactly.
    """
    sampling = request.sampling
    _check(request)
    fields: dict[str, Any] = {
        "model": upstream_model,
        "prompt": request.token_ids,
        "max_tokens": request.max_tokens,
        "n": request.n,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "ignore_eos": True,
        "stop_token_ids": request.stop_token_ids,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "seed": sampling.seed - 2**64 if sampling.seed >= 2**63 else sampling.seed,  # the same bits, signed
    }
    if sampling.logit_bias:
        fields["logit_bias"] = {str(token_id): bias for token_id, bias in sampling.logit_bias}
    if sampling.num_logprobs is not None:
        fields |= {"logprobs": sampling.num_logprobs, "return_tokens_as_token_ids": True}
    if request.grammar is not None:
        fields["structured_outputs"] = _structured(request.grammar, is_headway=is_headway)
    if request.salt and not is_headway:
        fields["cache_salt"] = request.salt
    return msgspec.json.encode(fields)


def headers_of(request: Request, now_ns: int) -> dict[str, str]:
    """Return what another Headway is told of scheduling, with what is left of a deadline. It counts if we are trusted."""
    headers: dict[str, str] = {service_headers.CLASS: request.service_class}
    if request.tenant:
        headers[service_headers.TENANT] = request.tenant
    if request.session is not None:
        headers[service_headers.SESSION] = request.session
    if request.itl_target_ns is not None:
        headers[service_headers.ITL_MS] = f"{request.itl_target_ns / NS_PER_MS:.3f}"
    if request.ttft_deadline_ns is not None:
        waited_ns = 0 if request.arrival_ns is None else now_ns - request.arrival_ns
        left_ns = max(0, request.ttft_deadline_ns - waited_ns)
        headers[service_headers.TTFT_MS] = f"{left_ns / NS_PER_MS:.3f}"
    return headers


def _check(request: Request) -> None:
    sampling = request.sampling
    if request.pooling is not None:
        raise InvalidRequest("This model's engine is a remote one, which makes no embeddings here.")
    if request.adapter_id:
        raise InvalidRequest("This model's engine is a remote one, which takes no adapters from here.")
    if len(request.stop_token_ids) > MAX_STOP_TOKEN_IDS:
        raise InvalidRequest(
            f"A remote engine takes at most {MAX_STOP_TOKEN_IDS} tokens that end an answer, the model's own included.",
            param="stop_token_ids",
        )
    needs_past = sampling.presence_penalty or sampling.frequency_penalty or request.grammar is not None
    # Nobody could tell it what of the prompt was written before, nor which choice it draws.
    if (request.num_resumed and needs_past) or (request.first_choice and sampling.temperature):
        raise EngineDied(
            "The model's engine ended, and a remote one cannot go on with this answer; send the request again."
        )


def _structured(grammar: Grammar, *, is_headway: bool) -> dict[str, object]:
    if (
        grammar.kind == "lark" and not is_headway
    ):  # of llguidance's dialect, which vLLM's default library cannot read
        raise InvalidRequest(
            f"`{grammar.param}` needs a grammar that this model's engine, a remote one, does not have.",
            param=grammar.param,
        )
    field = _GRAMMAR_FIELDS[grammar.kind]
    return {field: msgspec.Raw(grammar.source.encode()) if field == "json" else grammar.source}
