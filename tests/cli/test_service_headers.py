"""`headway serve --trust-headers`: what a request says of itself counts there, and nowhere else."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.real_server import LIMIT_S, RealServer, eventually, real_server

pytestmark = pytest.mark.native

MALFORMED = {"x-headway-class": "urgent"}
PROMPT = "What tenants ask begins alike and fills a few blocks of the cache. " * 4


@pytest.fixture(scope="module")
def trusting_server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with real_server(
        tiny_model, tmp_path_factory.mktemp("trusting"), "--trust-headers", "--log-json"
    ) as server:
        yield server


def ask(server: RealServer, headers: dict[str, str]) -> httpx2.Response:
    body = {"prompt": PROMPT, "max_tokens": 1}
    return httpx2.post(f"{server.url}/v1/completions", json=body, headers=headers, timeout=LIMIT_S)


def access_line(server: RealServer, response: httpx2.Response) -> dict[str, Any]:
    request_id = response.headers["x-request-id"]
    assert eventually(lambda: request_id in server.stderr)
    return next(json.loads(line) for line in server.stderr.splitlines() if request_id in line)


def test_they_count_with_the_option(trusting_server: RealServer) -> None:
    answer = ask(trusting_server, {"X-Headway-Class": "low", "X-Headway-Tenant": "a"})
    assert answer.status_code == 200
    line = access_line(trusting_server, answer)
    assert (line["class"], line["tenant"], line["outcome"]) == ("low", "a", "length")
    name = "headway_requests_total{class=low}{outcome=length}"
    assert eventually(lambda: trusting_server.metrics().get(name) == 1)


def test_a_malformed_one_is_refused_by_name(trusting_server: RealServer) -> None:
    answer = ask(trusting_server, MALFORMED)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "x-headway-class"
    assert access_line(trusting_server, answer)["param"] == "x-headway-class"


def test_a_tenant_finds_its_own_prompts_cached_and_no_others(trusting_server: RealServer) -> None:
    def cached_tokens(tenant: str) -> int:
        usage = ask(trusting_server, {"x-headway-tenant": tenant}).json()["usage"]
        cached: int = usage["prompt_tokens_details"]["cached_tokens"]
        return cached

    assert cached_tokens("first") == 0
    assert cached_tokens("first") > 0
    assert cached_tokens("second") == 0


def test_a_deadline_that_has_passed_is_refused_at_once_with_when_to_come_again(
    trusting_server: RealServer,
) -> None:
    answer = ask(trusting_server, {"x-headway-ttft-ms": "0", "x-headway-class": "high"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "deadline_unmet")
    assert int(answer.headers["retry-after"]) >= 1
    name = "headway_requests_total{class=high}{error=deadline_unmet}{outcome=refused}"
    assert eventually(lambda: trusting_server.metrics().get(name) == 1)


def test_without_the_option_they_are_ignored(shared_server: RealServer) -> None:
    answer = ask(shared_server, MALFORMED)
    assert answer.status_code == 200
    assert "class" not in access_line(shared_server, answer)
