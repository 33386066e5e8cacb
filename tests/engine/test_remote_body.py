import msgspec
import pytest

from headway.core.errors import EngineDied, InvalidRequest
from headway.core.request import Grammar, Request
from headway.core.sampling import SamplingParams
from headway.engine.remote_body import body_of, headers_of
from headway.wire.completion_request import parse_completion


def request(**fields: object) -> Request:
    asked = {"request_id": "a", "token_ids": (1, 2), "sampling": SamplingParams(), "max_tokens": 4, **fields}
    return Request(**asked)  # type: ignore[arg-type]


EVERYTHING = SamplingParams(
    temperature=0.5,
    top_k=3,
    top_p=0.9,
    min_p=0.1,
    repetition_penalty=1.1,
    presence_penalty=0.5,
    frequency_penalty=-0.5,
    logit_bias=((7, 1.5),),
    seed=2**64 - 3,
    num_logprobs=2,
)


@pytest.mark.parametrize("sampling", [SamplingParams(), EVERYTHING, SamplingParams(temperature=0.0)])
def test_another_headway_understands_it_as_it_was_meant(sampling: SamplingParams) -> None:
    sent = request(sampling=sampling, n=2, stop_token_ids=(0, 5), max_tokens=9)
    call = parse_completion(body_of(sent, "up", is_headway=True))
    options = call.options
    meant = msgspec.structs.replace(options.sampling, seed=options.seed)
    assert meant == sampling
    assert (call.prompts, options.n, options.max_tokens) == ((sent.token_ids,), 2, 9)
    assert (options.stop_token_ids, options.ignore_eos) == ((0, 5), True)
    assert (call.return_token_ids, call.return_tokens_as_token_ids) == (True, sampling is EVERYTHING)
    assert (options.stream, options.include_usage) == (True, True)


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar(kind="json_schema", source='{"type":"object"}'),
        Grammar(kind="regex", source="a|b"),
        Grammar(kind="gbnf", source='root ::= "a"'),
        Grammar(kind="lark", source='start: "a"'),
    ],
)
def test_a_grammar_goes_along(grammar: Grammar) -> None:
    call = parse_completion(body_of(request(grammar=grammar), "up", is_headway=True))
    assert call.options.grammar is not None
    assert (call.options.grammar.kind, call.options.grammar.source) == (grammar.kind, grammar.source)


def test_a_grammar_that_only_we_have_is_refused_by_the_name_of_its_field() -> None:
    with pytest.raises(InvalidRequest) as refused:
        body_of(request(grammar=Grammar(kind="lark", source="", param="tools")), "up", is_headway=False)
    assert refused.value.param == "tools"


@pytest.mark.parametrize(
    "fields",
    [
        {"pooling": "mean"},
        {"adapter_id": 1},
        {"stop_token_ids": tuple(range(65))},
    ],
)
def test_what_cannot_be_said_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        body_of(request(**fields), "up", is_headway=True)


@pytest.mark.parametrize(
    "fields",
    [
        {"num_resumed": 1, "sampling": SamplingParams(presence_penalty=1.0)},
        {"num_resumed": 1, "sampling": SamplingParams(frequency_penalty=1.0)},
        {"num_resumed": 1, "grammar": Grammar(kind="regex", source="a")},
        {"first_choice": 1},
    ],
)
def test_the_rest_of_an_answer_that_would_not_be_the_same_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(EngineDied):
        body_of(request(**fields), "up", is_headway=True)


def test_the_rest_of_an_answer_that_is_the_same_is_asked_for() -> None:
    assert body_of(request(num_resumed=1), "up", is_headway=True)
    assert body_of(request(first_choice=1, sampling=SamplingParams(temperature=0.0)), "up", is_headway=True)


def test_tenants_have_their_own_part_of_vllms_prefix_cache() -> None:
    sent = request(salt="tenant:a")
    assert msgspec.json.decode(body_of(sent, "up", is_headway=False))["cache_salt"] == "tenant:a"
    assert "cache_salt" not in msgspec.json.decode(body_of(sent, "up", is_headway=True)), "its tenant says so"


def test_a_deadline_is_what_is_left_of_it() -> None:
    sent = request(ttft_deadline_ns=5_000_000, arrival_ns=1_000_000, itl_target_ns=50_000_000)
    assert headers_of(sent, 4_000_000) == {
        "x-headway-class": "normal",
        "x-headway-ttft-ms": "2.000",
        "x-headway-itl-ms": "50.000",
    }
    assert headers_of(sent, 9_000_000)["x-headway-ttft-ms"] == "0.000"
