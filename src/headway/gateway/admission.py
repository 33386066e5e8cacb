"""Whether a request may come in, with which limits and on whose terms: pure decisions. It knows no sockets and no queue.

What only the engine can know (its queue, its KV cache) it refuses itself; the gateway refuses what is certain earlier.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from headway.core.caller import Caller
from headway.core.errors import (
    ContextExceeded,
    Draining,
    EngineUnavailable,
    HeadwayError,
    InvalidRequest,
)
from headway.core.events import EngineState
from headway.core.messages import EngineInfo
from headway.core.request import Request
from headway.engine.accounts import RANKS
from headway.wire.options import GenerationOptions
from headway.wire.service_headers import CLASS, NOTHING_ASKED, ServiceTerms, parse_service_headers

RESTART_RETRY_AFTER_S = 2.0
"""A small model loads within about a second; a client that asks again too early is told the same."""


def refusal(state: EngineState, *, draining: bool) -> HeadwayError | None:
    """Say why no request can be taken now; None = come in."""
    if draining or state == "draining":
        return Draining("The server is shutting down; send the request to another one.")
    if state in ("starting", "restarting"):
        return EngineUnavailable(
            f"The engine is {state}; send the request again soon.", retry_after_s=RESTART_RETRY_AFTER_S
        )
    if state == "closed":
        return EngineUnavailable("The engine has stopped; the server's log says why.", retry_after_s=None)
    return None


def terms_of(
    caller: Caller, headers: Iterable[tuple[bytes, bytes]], *, trust_headers: bool
) -> ServiceTerms | None:
    """Return what a request asks of scheduling, as far as its caller may; None = it was not asked.

    Whoever has a token has its tenant, and its class or a less urgent one; deadlines and conversations are his own affair.
    A trusted service speaks for others, as does everybody where nobody is asked who he is and headers are trusted.
    Raises InvalidRequest for a header that is malformed.
    """
    if not caller.token_id:
        return parse_service_headers(headers) if trust_headers else None
    asked = parse_service_headers(headers)
    if trust_headers and caller.kind == "service":
        return asked
    less_urgent = max(asked.service_class, caller.service_class, key=RANKS.__getitem__)
    says_class = asked is not NOTHING_ASKED and any(name == CLASS.encode() for name, _ in headers)
    return replace(
        asked,
        tenant=caller.tenant,
        service_class=less_urgent if says_class else caller.service_class,
    )


def on_terms(request: Request, terms: ServiceTerms, *, share_prefixes: bool) -> Request:
    """Return `request` as its terms have it; its part of the prefix cache is its tenant's unless all share one.

    Otherwise the time of a first token would tell one tenant what another has asked (arXiv 2409.20002, 2502.07776).
    """
    return replace(
        request,
        salt=f"tenant:{terms.tenant}" if terms.tenant and not share_prefixes else "",
        service_class=terms.service_class,
        tenant=terms.tenant,
        ttft_deadline_ns=terms.ttft_deadline_ns,
        itl_target_ns=terms.itl_target_ns,
        session=terms.session,
    )


def resolve_max_tokens(
    num_prompt_tokens: int, asked: int | None, default: int, info: EngineInfo, *, prompt_param: str
) -> int:
    """Return how many tokens may be generated per choice; raises ContextExceeded with both lengths.

    A limit nobody asked for also leaves room in a KV cache smaller than the context: else every such request would be
    refused. Whether a limit that was asked for fits the cache, the engine says.
    """
    room = info.max_context - num_prompt_tokens
    if room < 1:
        raise ContextExceeded(
            f"The model's context is {info.max_context} tokens and the prompt has {num_prompt_tokens},"
            " which leaves no room for an answer; shorten the prompt.",
            param=prompt_param,
        )
    if asked is None:
        cache_room = (
            info.num_blocks * info.block_size + 1 - num_prompt_tokens
        )  # the last token is never stored
        return max(1, min(default, room, cache_room))
    if asked > room:
        raise ContextExceeded(
            f"The model's context is {info.max_context} tokens; the prompt has {num_prompt_tokens} and max_tokens asks"
            f" for {asked} more. Shorten the prompt or lower max_tokens to {room}.",
            param="max_tokens",
        )
    return asked


def check_min_length(
    min_num_tokens: int, max_context: int, prompt_param: str, *, answered: bool = True
) -> None:
    """Raise ContextExceeded for a prompt that is too long even at its fewest tokens, before anybody counts them.

    What is not `answered` may fill the whole context.
    """
    if not answered and min_num_tokens > max_context:
        raise ContextExceeded(
            f"The model's context is {max_context} tokens and the text has at least {min_num_tokens};"
            " shorten or divide it.",
            param=prompt_param,
        )
    if answered and min_num_tokens >= max_context:
        raise ContextExceeded(
            f"The model's context is {max_context} tokens and the prompt has at least {min_num_tokens},"
            " which leaves no room for an answer; shorten the prompt.",
            param=prompt_param,
        )


def check_token_ids(token_ids: Sequence[int], vocab_size: int, param: str) -> None:
    """Raise InvalidRequest unless every id is in the vocabulary (all of them in C: prompts may have millions)."""
    if token_ids and not (min(token_ids) >= 0 and max(token_ids) < vocab_size):
        raise InvalidRequest(
            f"`{param}` holds a token id outside the model's vocabulary of {vocab_size}.", param=param
        )


def check_against_model(options: GenerationOptions, info: EngineInfo) -> None:
    """Raise InvalidRequest for options that name tokens the model does not have."""
    check_token_ids(options.stop_token_ids, info.vocab_size, "stop_token_ids")
    check_token_ids([token_id for token_id, _ in options.sampling.logit_bias], info.vocab_size, "logit_bias")
