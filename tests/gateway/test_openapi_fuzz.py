"""Requests made from the OpenAPI document, valid and not, against a real server: what it promises is what comes.

`HEADWAY_FUZZ_EXAMPLES` says how many of each operation.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2
import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from headway.core.caller import Caller
from headway.core.clock import MonotonicClock
from headway.core.errors import Unauthenticated
from headway.core.secret import Secret
from headway.gateway.config import GatewayConfig
from headway.gateway.door import Door
from headway.gateway.guard import OPEN_PATHS
from headway.gateway.streams import Streams
from headway.streams.limits import StreamLimits
from headway.streams.memory_log import MemoryLog
from headway.wire import openapi
from support.gateway_app import service
from support.live_server import live_server
from support.scripted_client import INFO, Batch, answering


def operations_of(document: Mapping[str, Any]) -> dict[str, Any]:
    schema: Any = schemathesis.openapi.from_dict(json.loads(msgspec.json.encode(document)))
    return {operation.ok().label: operation.ok() for operation in schema.get_all_operations()}


OPERATIONS = operations_of(openapi.document(resumable=True))
GUARDED = operations_of(openapi.document(resumable=True, open_paths=OPEN_PATHS))
OF_STREAMS = [label for label in OPERATIONS if "/v1/streams/" in label]
TAKING = [label for label in OPERATIONS if label.startswith("POST") and label not in OF_STREAMS]
TELLING = [label for label in OPERATIONS if label not in TAKING and label not in OF_STREAMS]
NUM_EXAMPLES = int(os.environ.get("HEADWAY_FUZZ_EXAMPLES", "15"))
ROOMY = msgspec.structs.replace(INFO, max_context=100_000, num_blocks=10_000)
TOKEN = "hw_known"


class OneCaller:
    """Knows one token."""

    async def identify(self, shown: Secret | None) -> Caller:
        if shown is None or shown.reveal() != TOKEN:
            raise Unauthenticated("No.")
        return Caller(token_id="tok", user="user", tenant="tenant", kind="admin")

    async def close(self) -> None:
        """Nothing is held."""


@contextmanager
def serving(door: Door | None = None) -> Iterator[str]:
    def script(request: Any) -> Iterator[Batch]:
        yield from answering("ab")(request)

    made = service(
        script,
        config=GatewayConfig(trust_headers=True),
        info=ROOMY,
        streams=Streams(MemoryLog(StreamLimits(), lambda: 1_800_000_000_000), MonotonicClock()),
        metrics=lambda: ("text/plain", b"x 1\n"),
        door=door,
    )
    with live_server(made.app) as (host, port):
        yield f"http://{host}:{port}"


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with serving() as url:
        yield url


@pytest.fixture(scope="module")
def guarded_url() -> Iterator[str]:
    with serving(Door(OneCaller())) as url:
        yield url


def new_stream(base_url: str) -> str:
    """Return the id of a stream that is over and was not acknowledged."""
    response = httpx2.post(
        f"{base_url}/v1/completions",
        json={"prompt": "hi", "stream": True, "max_tokens": 2},
        headers={"x-headway-resumable": "1"},
    )
    return response.headers["x-headway-stream"]


def run(
    operation: Any, mode: GenerationMode, base_url: str, token: str | None = None, *, exists: bool = False
) -> Counter[int]:
    """Send requests of one operation and check every answer against the document; return how often each status came.

    `exists`: name streams that there are.
    """
    statuses: Counter[int] = Counter()
    headers = None if token is None else {"authorization": f"Bearer {token}"}

    @settings(
        max_examples=NUM_EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode), st.integers(0, 5))
    def check(case: Any, seq: int) -> None:
        if isinstance(case.body, dict) and mode is GenerationMode.POSITIVE:
            case.body.pop("model", None)  # else nearly every request names another model
        if token is not None:
            for name in ("authorization", "x-api-key"):
                case.headers.pop(name, None)  # made up
        if exists:
            case.path_parameters["stream"] = stream = new_stream(base_url)
            if "last-event-id" in (case.headers or {}):
                case.headers["last-event-id"] = f"{stream}.1.{seq}"
        response = case.call(base_url=base_url, headers=headers)
        statuses[response.status_code] += 1
        # A document cannot say all: two shapes at once, more tokens than the context, a call that nobody made.
        case.validate_response(response, headers=headers, excluded_checks=[positive_data_acceptance])
        assert response.status_code < 500

    check()
    return statuses


@pytest.mark.parametrize("label", TAKING)
def test_what_the_document_allows_is_answered_as_it_says(label: str, base_url: str) -> None:
    statuses = run(OPERATIONS[label], GenerationMode.POSITIVE, base_url)
    assert set(statuses) <= {200, 400}


@pytest.mark.parametrize("label", TAKING)
def test_what_the_document_forbids_is_the_callers_mistake(label: str, base_url: str) -> None:
    statuses = run(OPERATIONS[label], GenerationMode.NEGATIVE, base_url)
    assert set(statuses) <= {400, 404}  # 404: another model is named


@pytest.mark.parametrize("label", TELLING)
def test_what_only_tells(label: str, base_url: str) -> None:
    assert set(run(OPERATIONS[label], GenerationMode.POSITIVE, base_url)) <= {200, 404}


@pytest.mark.parametrize("label", OF_STREAMS)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_streams_that_there_are_not(label: str, mode: GenerationMode, base_url: str) -> None:
    assert set(run(OPERATIONS[label], mode, base_url)) <= {400, 404, 405}


@pytest.mark.parametrize(
    ("label", "allowed"),
    [
        ("GET /v1/streams/{stream}", {200, 204, 400, 410}),
        ("DELETE /v1/streams/{stream}", {204}),
        ("POST /v1/streams/{stream}/ack", {204, 400, 410}),
    ],
)
def test_streams_that_there_are(label: str, allowed: set[int], base_url: str) -> None:
    statuses = run(OPERATIONS[label], GenerationMode.POSITIVE, base_url, exists=True)
    assert set(statuses) <= allowed
    assert {200, 204} & set(statuses)


@pytest.mark.parametrize("label", GUARDED)
def test_who_says_who_he_is_gets_what_others_are_refused(label: str, guarded_url: str) -> None:
    """Schemathesis sends each request without its token and with a wrong one, too: both must be a 401."""
    assert 401 not in run(GUARDED[label], GenerationMode.POSITIVE, guarded_url, TOKEN)
    if GUARDED[label].path not in OPEN_PATHS:
        assert set(run(GUARDED[label], GenerationMode.POSITIVE, guarded_url, "hw_unknown")) == {401}
