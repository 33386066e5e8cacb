"""`headway serve --disk-kv`: a conversation that had to make room, or whose server was restarted, is not computed again."""

from pathlib import Path

import httpx2
import pytest

from support.real_server import LIMIT_S, RealServer, eventually, real_server

pytestmark = pytest.mark.native

OPENING = "The conversation begins like this, and fills a few blocks of the cache. " * 4
RESTORED = "headway_kv_restored_blocks_total{tier=disk}"
HEADERS = {"x-headway-session": "talk", "x-headway-tenant": "somebody"}


def ask(server: RealServer, prompt: str, headers: dict[str, str]) -> tuple[str, int]:
    """Return the answer, and how much of the prompt had been computed before."""
    body = {"prompt": prompt, "max_tokens": 8, "temperature": 0}
    answer = httpx2.post(f"{server.url}/v1/completions", json=body, headers=headers, timeout=LIMIT_S).json()
    cached: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return answer["choices"][0]["text"], cached


def crowd(server: RealServer) -> None:
    """Fill the cache with others'."""
    for number in range(3):
        ask(server, f"{number} is another one's number, and goes on as long as it can. " * 12, {})


def test_a_conversation_outlives_little_memory_and_a_restart(tiny_model: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    options = ("--disk-kv", str(tmp_path / "kv"), "--kv-memory", "160K", "--trust-headers")
    with real_server(tiny_model, tmp_path / "first", *options) as server:
        text, cached = ask(server, OPENING, HEADERS)
        assert cached == 0
        crowd(server)
        assert eventually(lambda: server.metrics().get("headway_sessions{state=parked}") == 1)
        assert list((tmp_path / "kv").glob("kv-*/*"))
    with real_server(tiny_model, tmp_path / "second", *options) as server:
        again, cached = ask(server, OPENING, HEADERS)
        assert again == text
        assert cached > 0
        assert server.metrics()[RESTORED] > 0
        url = f"{server.url}/v1/sessions/talk"
        tenant = {"x-headway-tenant": "somebody"}
        assert httpx2.delete(url, timeout=LIMIT_S).status_code == 404
        assert httpx2.delete(url, headers=tenant, timeout=LIMIT_S).status_code == 204
        assert httpx2.delete(url, headers=tenant, timeout=LIMIT_S).status_code == 404
