"""Requests made from the OpenAPI document, valid and not, against a real server: what it promises is what comes.

`scripts/fuzz http` runs the same for as long as one likes.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from headway.gateway.config import GatewayConfig
from headway.wire import openapi
from support.gateway_app import service
from support.live_server import live_server
from support.scripted_client import INFO, Batch, answering

SCHEMA: Any = schemathesis.openapi.from_dict(json.loads(msgspec.json.encode(openapi.document())))
OPERATIONS = {operation.ok().label: operation.ok() for operation in SCHEMA.get_all_operations()}
TAKING = [label for label in OPERATIONS if label.startswith("POST")]
NUM_EXAMPLES = int(os.environ.get("HEADWAY_FUZZ_EXAMPLES", "15"))
ROOMY = msgspec.structs.replace(INFO, max_context=100_000, num_blocks=10_000)


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    def script(request: Any) -> Iterator[Batch]:
        yield from answering("ab")(request)

    with live_server(service(script, config=GatewayConfig(trust_headers=True), info=ROOMY).app) as (
        host,
        port,
    ):
        yield f"http://{host}:{port}"


def run(label: str, mode: GenerationMode, base_url: str) -> Counter[int]:
    """Send requests of one operation and check every answer against the document; return how often each status came."""
    statuses: Counter[int] = Counter()

    @settings(
        max_examples=NUM_EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(OPERATIONS[label].as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        if isinstance(case.body, dict) and mode is GenerationMode.POSITIVE:
            case.body.pop("model", None)  # else nearly every request names another model
        response = case.call(base_url=base_url)
        statuses[response.status_code] += 1
        # A document cannot say all: two shapes at once, more tokens than the context, a call that nobody made.
        case.validate_response(response, excluded_checks=[positive_data_acceptance])
        assert response.status_code < 500

    check()
    return statuses


@pytest.mark.parametrize("label", TAKING)
def test_what_the_document_allows_is_answered_as_it_says(label: str, base_url: str) -> None:
    statuses = run(label, GenerationMode.POSITIVE, base_url)
    assert set(statuses) <= {200, 400}


@pytest.mark.parametrize("label", TAKING)
def test_what_the_document_forbids_is_the_callers_mistake(label: str, base_url: str) -> None:
    statuses = run(label, GenerationMode.NEGATIVE, base_url)
    assert set(statuses) <= {400, 404}  # 404: another model is named


@pytest.mark.parametrize("label", [label for label in OPERATIONS if label not in TAKING])
def test_what_only_tells(label: str, base_url: str) -> None:
    assert set(run(label, GenerationMode.POSITIVE, base_url)) <= {200, 404}
