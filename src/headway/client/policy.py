"""What a program declares before it calls: whom it asks, in which order, how long, and what else may be tried.

Values only. Everything here is in seconds, as people write it; decisions (`client/plan.py`) take nanoseconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from headway.core.clock import NS_PER_S
from headway.core.errors import ConfigError

_OURS: Final = frozenset({"model", "stream", "stream_options", "n"})
"""Fields of a request that the client sets, or that would break its promise of one answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Somebody who may answer. Raises ConfigError for what can never work.

    url            of an OpenAI-compatible server: `http://127.0.0.1:8000` or with its path, such as `https://host/v1`
    model          its name there; "" = the one that it serves, where it serves one
    api_key        sent as a bearer token; shown nowhere
    name           what answers and errors call it (default: model and address)
    headers        sent with every request, names as the server knows them
    fields         of every request's JSON, over those of the call: a smaller model may get a smaller `max_tokens`
    first_token_s  how long it may take before the next of the chain is asked (default: half of what is left, the last
                   one all of it)
    resumable      ask for a stream that can be resumed after a cut (a Headway server)
    send_deadline  tell it by when the first token is due, so that it refuses at once what it cannot keep (a Headway
                   server that trusts such headers)
    """

    url: str
    model: str = ""
    api_key: str | None = field(default=None, repr=False)
    name: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    fields: Mapping[str, object] = field(default_factory=dict)
    first_token_s: float | None = None
    resumable: bool = False
    send_deadline: bool = False

    def __post_init__(self) -> None:
        try:
            address = urlsplit(self.url)
            known = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
        except ValueError:
            known = False
        if not known:
            raise ConfigError(
                f"{self.url!r} is no address of an endpoint: one begins with http:// or https://."
            )
        if self.first_token_s is not None and not self.first_token_s > 0:
            raise ConfigError("`first_token_s` is more than 0.")
        if ours := _OURS & set(self.fields):
            raise ConfigError(f"`{min(ours)}` is set by the client; leave it out of an endpoint's fields.")

    @property
    def base_url(self) -> str:
        """The address in front of `/chat/completions`."""
        bare = self.url.rstrip("/")
        return bare if urlsplit(bare).path else f"{bare}/v1"

    @property
    def label(self) -> str:
        """What answers and errors call it."""
        address = urlsplit(self.url).netloc.rpartition("@")[2]
        return self.name or (f"{self.model} at {address}" if self.model else address)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long a call may take, from its start; its end is an answer or an error by then.

    first_token_s  to the first text, reasoning or tool call (row C3: a developer is lost after seconds)
    total_s        to the end of the answer
    idle_s         most between two reads of a stream; keep-alive comments count as life
    """

    first_token_s: float = 4.0
    total_s: float = 120.0
    idle_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("first_token_s", "total_s", "idle_s"):
            if not 0 < getattr(self, name) < 1e9:
                raise ConfigError(f"`{name}` is a number of seconds above 0.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CannedAnswer:
    """What a call returns when nobody answered in time and nobody said that the call itself is wrong."""

    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hedging:
    """Ask a second time when the first token is later than usual ("The Tail at Scale", Dean and Barroso, 2013).

    share        of calls that may be asked twice
    percentile   of the times to the first token seen, after which that happens
    min_samples  before anything is usual
    """

    share: float = 0.05
    percentile: float = 0.95
    min_samples: int = 20

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1 or not 0 < self.percentile < 1 or self.min_samples < 1:
            raise ConfigError(
                "Hedging takes a share within (0, 1], a percentile within (0, 1), a sample or more."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttling:
    """Stop sending to who only refuses ("Site Reliability Engineering", 2016, chapter 21, client-side throttling).

    k             calls that are sent for each that is accepted; 2 as in the book
    window_s      what counts; two minutes as in the book
    min_requests  below which nothing is held back: the book's services ask thousands, an editor's first failure would
                  have every second call of the next two minutes refused
    probe_s       one call is sent at least so often: a person's calls are not held back, and a server that is back is found
    """

    k: float = 2.0
    window_s: float = 120.0
    min_requests: int = 10
    probe_s: float = 1.0

    def __post_init__(self) -> None:
        if not self.k >= 1 or not self.window_s > 0 or self.min_requests < 1 or not self.probe_s > 0:
            raise ConfigError("Throttling takes k ≥ 1, min_requests ≥ 1, and times above 0 s.")


def to_ns(seconds: float) -> int:
    """Return nanoseconds."""
    return round(seconds * NS_PER_S)


def check_fields(fields: Mapping[str, object]) -> None:
    """Raise ConfigError for a request field that is the client's own."""
    if ours := _OURS & set(fields):
        raise ConfigError(
            f"`{min(ours)}` is set by the client: leave it out (a call has one answer, from any endpoint)."
        )
