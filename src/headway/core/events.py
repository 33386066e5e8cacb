"""What happened, as frozen values for whoever listens: metrics, logs and traces subscribe; nothing here depends on them.

A hook is a callable that takes one event and returns at once; no hook, no cost. Durations are nanoseconds of one
process's monotonic clock.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from headway.core.messages import EngineStats, Usage
from headway.core.request import ServiceClass

EngineState = Literal["starting", "ready", "draining", "restarting", "closed"]
"""Where an engine client stands; requests are taken only when it is "ready"."""
Outcome = Literal["stop", "length", "cancelled", "refused", "error"]
"""How a request ended: finished by itself, by its limit, by its caller, not admitted, failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstToken:
    """The first token of a request reached the gateway. `ttft_ns`: since the request's arrival."""

    request_id: str
    model: str
    ttft_ns: int
    service_class: ServiceClass = "normal"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensArrived:
    """A later step's tokens for one choice reached the gateway. `interval_ns`: since that choice's previous tokens."""

    request_id: str
    model: str
    num_tokens: int
    interval_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEnded:
    """A request ended; emitted exactly once per request that named a model we serve. None = not reached."""

    request_id: str
    model: str
    outcome: Outcome
    status: int
    usage: Usage | None
    ttft_ns: int | None
    queue_ns: int | None
    tpot_ns: int | None
    e2e_ns: int
    num_preemptions: int = 0
    error_code: str | None = None
    service_class: ServiceClass = "normal"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStepped:
    """The engine reported a step."""

    model: str
    stats: EngineStats


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStateChanged:
    """The engine's process changed its state; `reason` is a sentence for people."""

    model: str
    state: EngineState
    reason: str = ""
    num_blocks: int = 0
    """Blocks of the KV cache, once it is ready."""


Event = FirstToken | TokensArrived | RequestEnded | EngineStepped | EngineStateChanged
Hook = Callable[[Event], None]
