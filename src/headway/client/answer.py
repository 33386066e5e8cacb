"""What a call gives: pieces of an answer as they come, and the whole. Frozen values."""

from dataclasses import dataclass
from typing import Literal

Why = Literal["first", "fallback", "retry", "hedge"]
"""Why an endpoint was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallDelta:
    """What a piece adds to a tool call. `id` and `name`: "" unless this piece tells them."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """A piece of an answer, as it came."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A whole call. `arguments`: as the model wrote them, normally a JSON object."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the endpoint counted them. `cached_tokens`: of the prompt, computed before; None = it does not say."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One time that an endpoint was asked.

    start_ns, took_ns  since the call began; until it answered its first token, failed, or was given up
    outcome            "answered", "lost" (another one was quicker, or the call ended), or what went wrong: the endpoint's
                       `code`, else "busy", "slow", "unreachable" … (`client.failure.Kind`)
    status             HTTP status, None = there was none
    """

    endpoint: str
    why: Why
    start_ns: int
    took_ns: int
    outcome: str
    message: str = ""
    status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer.

    finish_reason  the endpoint's: "stop", "length", "tool_calls" …; "fallback" = the canned answer
    endpoint       label of who answered; "" = nobody, it is the canned answer
    model          as the endpoint names it
    ttft_ns        from the call's start to its first token; None = there was none
    total_ns       from the call's start to the answer's end
    num_resumes    how often its stream was cut and went on
    """

    text: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str
    usage: Usage | None = None
    endpoint: str = ""
    model: str = ""
    ttft_ns: int | None = None
    total_ns: int = 0
    num_resumes: int = 0
    attempts: tuple[Attempt, ...] = ()
