"""The endpoint that is measured: where it is, and the bytes of a request to it."""

import re
import ssl
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from headway.core.errors import ConfigError
from headway.lab.request_headers import Headers

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An OpenAI-compatible API. `path` is what its routes begin with, without a slash at the end: `/v1` as a rule."""

    host: str
    port: int
    path: str
    tls: bool = False
    api_key: str | None = field(default=None, repr=False)
    headers: Headers = field(default=(), repr=False)
    """Sent with every request; their values may be secrets."""

    @property
    def authority(self) -> str:
        """The host as a Host header names it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS["https" if self.tls else "http"] else f"{host}:{self.port}"

    def at_root(self) -> "Endpoint":
        """Return where routes lie that are not of OpenAI's API, such as `/metrics`: beside the version, not under it."""
        return replace(self, path=re.sub(r"/v[0-9]+\Z", "", self.path))

    def tls_context(self) -> ssl.SSLContext | None:
        """Return how to connect: None without TLS, else verified by the system's certificates."""
        return ssl.create_default_context() if self.tls else None

    def post(self, route: str, body: bytes, headers: Headers = ()) -> bytes:
        """Return a whole request with a JSON body; `route` follows the path, as in `/chat/completions`.

        `headers` are this request's own, beside those that all have.
        """
        about = [
            "Accept: text/event-stream",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            *(f"{name}: {value}" for name, value in headers),
        ]
        return self._head("POST", route, *about) + body

    def get(self, route: str) -> bytes:
        """Return a whole request without a body."""
        return self._head("GET", route, "Accept: application/json")

    def _head(self, method: str, route: str, *about: str) -> bytes:
        key = [] if self.api_key is None else [f"Authorization: Bearer {self.api_key}"]
        first = [
            f"{method} {self.path}{route} HTTP/1.1",
            f"Host: {self.authority}",
            "User-Agent: headway-lab",
        ]
        own = [f"{name}: {value}" for name, value in self.headers]
        return "\r\n".join([*first, *about, *key, *own, "", ""]).encode("ascii")


def parse_endpoint(url: str, api_key: str | None = None) -> Endpoint:
    """Read `http://host:port`, with or without `/v1`, or any path that routes begin with; raises ConfigError.

    The host alone means `/v1`. A name without a scheme is taken as http.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{url} is not a URL: {error}.") from error
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ConfigError(f"{url} is not the URL of an endpoint; write one such as http://127.0.0.1:8000/v1.")
    if parts.query or parts.fragment or parts.username is not None:
        raise ConfigError(
            f"{url} has a query, a fragment or a user name, which an endpoint's URL does not have."
        )
    if not (parts.path + (api_key or "")).isascii() or any(
        not character.isprintable() or character == " " for character in parts.path + (api_key or "")
    ):
        raise ConfigError(
            "The path of the URL and the API key consist of printable ASCII characters without spaces."
        )
    return Endpoint(
        host=parts.hostname.encode("idna").decode("ascii")
        if not parts.hostname.isascii()
        else parts.hostname,
        port=_PORTS[parts.scheme] if port is None else port,
        path=parts.path.rstrip("/") or "/v1",
        tls=parts.scheme == "https",
        api_key=api_key,
    )
