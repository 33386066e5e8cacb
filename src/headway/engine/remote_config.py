"""How a model that another server runs is reached. It knows no HTTP."""

from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec

from headway.core.errors import ConfigError
from headway.core.secret import Secret


class RemoteConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model of a server with OpenAI's API and vLLM's token ids."""

    model: str
    """The name under which it is served here; a label."""
    url: str
    """The server's API, to its version: `http://host:port/v1`."""
    upstream_model: str | None = None
    """The name that the server has for it; None = the first it lists."""
    api_key: Secret | None = None
    """Shown to the server as a bearer token."""
    max_context: int | None = None
    """Longest prompt plus answer; None = what the server's list of models says."""
    max_concurrent: int | None = None
    """Requests sent to it at once; None = found out from how long first tokens take."""
    connect_timeout_s: float = 5.0
    """For a connection, and for each question about the server's health."""
    first_token_timeout_s: float = 300.0
    """From sending a request to its first token: the server may queue it, and a CPU reads 100 prompt tokens a second."""
    gap_timeout_s: float = 60.0
    """Between two pieces of an answer that has begun."""
    poll_s: float = 5.0
    """How often the server is asked whether it is there while nothing suggests that it is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteText:
    """What the text side knows of the model: the server's tokens must be the same.

    vocab_size   ids are below it
    sample       a text, and its tokens here: the server is asked for the number of its own
    """

    vocab_size: int
    sample: tuple[str, tuple[int, ...]] = ("", ())


def check_url(url: str) -> str:
    """Return an API's address without a slash at its end; raises ConfigError for one that is none."""
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_good = False
    if (
        not is_good
        or parts.username
        or parts.query
        or parts.fragment
        or not (url.isascii() and url.isprintable())
    ):
        raise ConfigError(f"The engine's address {url[:200]!r} is none such as http://127.0.0.1:8000/v1.")
    return url.rstrip("/")
