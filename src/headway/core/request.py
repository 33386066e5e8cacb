"""A request as the engine accepts it: token ids in, token ids out. It knows no text, no HTTP and no chat template."""

from typing import Literal

import msgspec

from headway.core.sampling import SamplingParams

MAX_CHOICES = 128
"""Most choices a request may have: OpenAI's limit of `n`. Each is a sequence of its own."""


class Grammar(msgspec.Struct, frozen=True, kw_only=True):
    """What every answer to a request must match; the vocabulary is masked to it, token by token.

    kind     "json_schema": `source` is a JSON schema; "regex": a regular expression for the whole answer;
             "lark": a grammar in the dialect of `llguidance` (docs/syntax.md there); "gbnf": one in llama.cpp's
    param    the request's field it came from, for errors
    """

    kind: Literal["json_schema", "regex", "lark", "gbnf"]
    source: str
    param: str = "response_format"


ServiceClass = Literal["high", "normal", "low"]
"""Class of service, most urgent first."""

Pooling = Literal["mean", "last"]
"""How the hidden states of a text become one vector: their mean, or the last token's."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One accepted request; `n` choices share its prompt.

    request_id        unique for the life of the engine; unguessable
    token_ids         the prompt, at least one token
    sampling          how tokens are chosen
    max_tokens        most tokens generated per choice, ≥ 1
    n                 number of choices, 1 to MAX_CHOICES
    first_choice      number of the first of them: each draws, and is reported, by its number; 0 to MAX_CHOICES - n
    stop_token_ids    a choice ends with reason "stop" when it draws one of these (the token is not delivered)
    num_resumed       how many of the last `token_ids` an earlier run generated: penalties count them as output
    resumes           an engine that ended had accepted it: neither a full queue nor its deadline refuses it now
    salt              partition of the prefix cache (tenant + adapter); "" is the shared default
    adapter_id        LoRA adapter, 0 = the base model
    grammar           None = free text
    pooling           None = generate; else the answer is one vector (`Finished.embedding`), no token is generated, and
                      `n` is 1
    arrival_ns        monotonic time of arrival at the gateway; None = when the engine takes it
    service_class     whose share of the engine it is served from
    tenant            whom its tokens are accounted to; "" is the default tenant
    ttft_deadline_ns  the first token is due so long after arrival; None = as its class has it
    itl_target_ns     most between two of its tokens, as far as the engine can; None = as configured
    session           the conversation it belongs to, unique within its tenant; None = none
    """

    request_id: str
    token_ids: tuple[int, ...]
    sampling: SamplingParams
    max_tokens: int
    n: int = 1
    first_choice: int = 0
    stop_token_ids: tuple[int, ...] = ()
    num_resumed: int = 0
    resumes: bool = False
    salt: str = ""
    adapter_id: int = 0
    grammar: Grammar | None = None
    pooling: Pooling | None = None
    arrival_ns: int | None = None
    service_class: ServiceClass = "normal"
    tenant: str = ""
    ttft_deadline_ns: int | None = None
    itl_target_ns: int | None = None
    session: str | None = None
