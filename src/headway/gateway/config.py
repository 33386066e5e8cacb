"""Limits of the HTTP service, parsed once and frozen."""

import msgspec

from headway.core.request import Pooling
from headway.wire.profile import ProfileSettings


class GatewayConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the gateway takes, and for how long."""

    max_body_bytes: int = 8 * 1024 * 1024
    """About 2 million tokens of English: more than any context served here."""
    body_grace_s: float = 30.0
    """How long a body may take to arrive, besides what its size allows at `min_body_bytes_per_s`."""
    min_body_bytes_per_s: int = 4096
    """Slower than any modem of this century; 8 MiB may take half an hour, a drip of bytes half a minute."""
    max_pending_prompts: int = 1024
    """Most prompts that wait for the tokenising thread (the engine's own queue has the same default)."""
    max_pending_prompt_bytes: int = 64 * 1024 * 1024
    """Eight of the largest bodies; bounds memory when long prompts arrive together."""
    max_received_bytes: int = 256 * 1024 * 1024
    """Of all bodies being received, beyond the first 64 KiB of each: 32 of the largest at a time."""
    default_chat_max_tokens: int = 4096
    """Tokens of an answer when a chat request names no limit, as far as the context has room."""
    default_completion_max_tokens: int = 16
    """OpenAI's default for text completions."""
    slow_reader_timeout_s: float = 30.0
    """A reader that takes nothing for so long, its socket buffers full, is cut off and its request cancelled."""
    pooling: Pooling | None = None
    """How texts are embedded; None = as the model's files say, and not at all if they say nothing."""
    trust_headers: bool = False
    """Whether requests may say their class, tenant, deadlines and session (`wire.service_headers`). Only where every client
    is known, or a proxy sets those headers and drops what strangers sent; else anybody could promote himself."""
    share_prefixes: bool = False
    """Whether tenants share one prefix cache. Then how fast an answer begins tells a tenant what others have asked."""
    streams: str = "memory"
    """Where resumable streams are kept: "memory", the path of an SQLite file, or a Redis URL (`streams.places`)."""
    stream_grace_s: float = 30.0
    """How long the answer of a resumable stream goes on while nobody reads it."""
    profile: ProfileSettings = ProfileSettings()
    """What `/v1/profile` tells programs of role and domain."""
    allow_origins: tuple[str, ...] = ()
    """Web origins whose pages may call the service (CORS); empty = none, ("*",) = all."""
