from headway.obs import spans
from support.ended_calls import MS, ended_call, ended_request


def test_a_generating_call_has_the_names_of_generative_ai() -> None:
    stages = (("queue", 2 * MS), ("prefill", 3 * MS))
    call = ended_call(
        token_id="t", kind="service", tenant="acme", request=ended_request(num_preemptions=1, stages=stages)
    )
    assert spans.name(call) == "chat m"
    assert spans.attributes(call, "ratio", 0.1) == {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "headway",
        "gen_ai.request.model": "m",
        "gen_ai.response.model": "m",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.response.time_to_first_chunk": 0.005,
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 2,
        "gen_ai.usage.output_tokens": 3,
        "headway.request_id": call.request_id,
        "headway.class": "normal",
        "headway.token_id": "t",
        "headway.kind": "service",
        "headway.tenant": "acme",
        "headway.preemptions": 1,
        "headway.sampled_by": "ratio",
        "headway.sample_ratio": 0.1,
        "headway.stage.queue": 0.002,
        "headway.stage.prefill": 0.003,
    }


def test_another_call_is_called_by_its_route_never_by_its_path() -> None:
    assert spans.name(ended_call(method="GET", endpoint="/v1/models/{name:path}")) == (
        "GET /v1/models/{name:path}"
    )
    unknown = ended_call(method="GET", endpoint="", status=404, token_id=None)
    assert spans.name(unknown) == "GET"
    assert set(spans.attributes(unknown, "class", 0.1)) == {
        "http.request.method",
        "http.response.status_code",
        "headway.request_id",
        "headway.class",
        "headway.sampled_by",
    }


def test_an_error_is_named_by_its_code() -> None:
    request = ended_request(outcome="error", usage=None, ttft_ns=None)
    found = spans.attributes(ended_call(error_code="engine_died", request=request), "error", 0.1)
    assert found["error.type"] == "engine_died"
    assert "gen_ai.response.finish_reasons" not in found
