"""What happened, as frozen values for whoever listens: metrics, logs and traces subscribe; nothing here depends on them.

A hook is a callable that takes one event and returns at once; no hook, no cost. Durations are nanoseconds of one
machine's monotonic clock. No event carries what was asked or answered. They are msgspec's Structs as one is made for every
token: a frozen dataclass of this size takes five times as long.

In every event `token_id` is the public id of what its caller showed (`core.caller`): "" = nobody was asked for one, None =
what was shown is no token of ours, whose words must not reach anybody's page.
"""

from collections.abc import Callable
from typing import Literal

import msgspec

from headway.core.caller import Kind
from headway.core.messages import EngineStats, Usage
from headway.core.request import ServiceClass
from headway.core.stages import Stages
from headway.core.trace_parent import TraceParent

EngineState = Literal["starting", "ready", "draining", "restarting", "closed"]
"""Where an engine client stands; requests are taken only when it is "ready"."""
Outcome = Literal["stop", "length", "cancelled", "refused", "error"]
"""How a request ended: finished by itself, by its limit, by its caller, not admitted, failed."""
StreamEventKind = Literal["content", "control"]
"""Of a resumable stream: what the model said, or what is said about the stream."""


class FirstToken(msgspec.Struct, frozen=True, kw_only=True):
    """The first token of a request reached the gateway. `ttft_ns`: since the request's arrival."""

    request_id: str
    model: str
    ttft_ns: int
    service_class: ServiceClass = "normal"
    token_id: str | None = ""
    kind: Kind = "user"
    tenant: str = ""
    endpoint: str = ""
    """The route, never a caller's path; "" = not known."""


class TokensArrived(msgspec.Struct, frozen=True, kw_only=True):
    """A later step's tokens for one choice reached the gateway. `interval_ns`: since that choice's previous tokens."""

    request_id: str
    model: str
    num_tokens: int
    interval_ns: int


class RequestEnded(msgspec.Struct, frozen=True, kw_only=True):
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
    token_id: str | None = ""
    kind: Kind = "user"
    tenant: str = ""
    endpoint: str = ""
    stages: Stages = ()
    """Where `e2e_ns` went; their sum."""


class CallEnded(msgspec.Struct, frozen=True, kw_only=True):
    """A call of the API was answered, or its client left: exactly one per HTTP call, whatever it named; probes have none.

    endpoint       the route, never a caller's path; "" = there is no such address
    status         as sent; 499 where the client left before it
    error_code     why it failed, also after a stream had begun
    request        of a call that named a model we serve, how that ended
    trace_parent   the caller's place in its trace, where it is believed
    """

    request_id: str
    method: str
    endpoint: str
    status: int
    duration_ns: int
    error_code: str | None = None
    service_class: ServiceClass = "normal"
    token_id: str | None = ""
    kind: Kind = "user"
    tenant: str = ""
    request: RequestEnded | None = None
    trace_parent: TraceParent | None = None


class CallRefused(msgspec.Struct, frozen=True, kw_only=True):
    """A call was turned away before anything was generated: who it is, its own limit, or the server's.

    `reason` is the error's code, `status` 401, 403, 429 or 503.
    """

    reason: str
    status: int
    service_class: ServiceClass = "normal"
    token_id: str | None = ""


class TokensSettled(msgspec.Struct, frozen=True, kw_only=True):
    """What a call reserved of its tokens per minute was replaced by what it used; the rest was refunded."""

    reserved: int
    used: int
    service_class: ServiceClass = "normal"


class FlowDegraded(msgspec.Struct, frozen=True, kw_only=True):
    """Shared limits (Redis) were lost and local ones stand in (`degraded`), or they are back. `reason`: a sentence."""

    degraded: bool
    reason: str = ""


class RiskAssessed(msgspec.Struct, frozen=True, kw_only=True):
    """A call's rate was set by its caller's behaviour. `risk`: 0 to 2."""

    risk: float


class StreamResumed(msgspec.Struct, frozen=True, kw_only=True):
    """A client came back for a stream. `replayed`: events sent again; `resync`: it could not go on where it was."""

    replayed: int = 0
    resync: bool = False


class StreamResent(msgspec.Struct, frozen=True, kw_only=True):
    """Events that nobody acknowledged in time were sent again on a live connection."""

    kind: StreamEventKind
    num_events: int = 1


class StreamAbandoned(msgspec.Struct, frozen=True, kw_only=True):
    """A stream's client did not come back in time: it was cancelled, and settled."""

    num_unacknowledged: int = 0


class EngineStepped(msgspec.Struct, frozen=True, kw_only=True):
    """The engine reported a step."""

    model: str
    stats: EngineStats


class EngineStateChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's process changed its state; `reason` is a sentence for people."""

    model: str
    state: EngineState
    reason: str = ""
    num_blocks: int = 0
    """Blocks of the KV cache, once it is ready."""


Event = (
    FirstToken
    | TokensArrived
    | RequestEnded
    | CallEnded
    | CallRefused
    | TokensSettled
    | FlowDegraded
    | RiskAssessed
    | StreamResumed
    | StreamResent
    | StreamAbandoned
    | EngineStepped
    | EngineStateChanged
)
Hook = Callable[[Event], None]
