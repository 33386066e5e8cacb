"""URLs of endpoints, and the bytes of a request."""

import pytest

from headway.core.errors import ConfigError
from headway.lab.endpoint import parse_endpoint


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "tls", "authority"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1", 8000, "/v1", False, "127.0.0.1:8000"),
        ("http://127.0.0.1:8000/", "127.0.0.1", 8000, "/v1", False, "127.0.0.1:8000"),
        ("http://localhost/v1/", "localhost", 80, "/v1", False, "localhost"),
        ("https://models.example/v3", "models.example", 443, "/v3", True, "models.example"),
        ("https://models.example:8443", "models.example", 8443, "/v1", True, "models.example:8443"),
        ("http://[::1]:8000", "::1", 8000, "/v1", False, "[::1]:8000"),
        ("localhost:8000", "localhost", 8000, "/v1", False, "localhost:8000"),
        ("http://bücher.example", "xn--bcher-kva.example", 80, "/v1", False, "xn--bcher-kva.example"),
    ],
)
def test_an_endpoint_is_read(url: str, host: str, port: int, path: str, tls: bool, authority: str) -> None:
    found = parse_endpoint(url)
    assert (found.host, found.port, found.path, found.tls) == (host, port, path, tls)
    assert found.authority == authority


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://x",
        "http://",
        "http://x:99999",
        "http://[::1",
        "http://x/v1?a=b",
        "http://u:p@x",
        "http://x/a b",
    ],
)
def test_what_is_no_endpoint_is_refused_in_a_sentence(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_endpoint(url)
    assert str(refused.value).endswith(".")


def test_a_request_is_written_whole() -> None:
    assert parse_endpoint("http://127.0.0.1:8000", "secret").post("/chat/completions", b'{"a":1}') == (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nUser-Agent: headway-lab\r\n"
        b"Accept: text/event-stream\r\nContent-Type: application/json\r\nContent-Length: 7\r\n"
        b'Authorization: Bearer secret\r\n\r\n{"a":1}'
    )


def test_a_key_cannot_add_headers() -> None:
    with pytest.raises(ConfigError, match="printable"):
        parse_endpoint("http://x", "k\r\nX-Evil: 1")


@pytest.mark.parametrize(
    ("url", "request_line"),
    [
        ("http://localhost:1", "GET /metrics"),
        ("http://localhost:1/v1/", "GET /metrics"),
        ("http://localhost:1/v3", "GET /metrics"),
        ("http://localhost:1/proxy/v1", "GET /proxy/metrics"),
        ("http://localhost:1/v1/models", "GET /v1/models/metrics"),
    ],
)
def test_routes_beside_the_api_lie_at_its_root(url: str, request_line: str) -> None:
    assert parse_endpoint(url).at_root().get("/metrics").decode().startswith(f"{request_line} HTTP/1.1\r\n")
