import msgspec
import pytest

from headway.core.errors import ContextExceeded, Draining, EngineUnavailable, InvalidRequest
from headway.core.events import EngineState
from headway.gateway import admission
from headway.wire.chat_request import parse_chat
from support.scripted_client import INFO


@pytest.mark.parametrize(
    ("state", "draining", "error"),
    [
        ("ready", False, None),
        ("ready", True, Draining),
        ("draining", False, Draining),
        ("starting", False, EngineUnavailable),
        ("restarting", False, EngineUnavailable),
        ("closed", False, EngineUnavailable),
        ("starting", True, Draining),
    ],
)
def test_only_a_ready_engine_takes_requests(
    state: EngineState, draining: bool, error: type[Exception] | None
) -> None:
    refusal = admission.refusal(state, draining=draining)
    assert type(refusal) is (error or type(None))
    assert refusal is None or refusal.status == 503


CONTEXT_100 = msgspec.structs.replace(INFO, max_context=100, num_blocks=10)
CACHE_80 = msgspec.structs.replace(CONTEXT_100, num_blocks=5)


@pytest.mark.parametrize(
    ("num_prompt", "asked", "default", "expected"),
    [(10, None, 16, 16), (10, 5, 16, 5), (90, None, 4096, 10), (99, None, 16, 1), (90, 10, 16, 10)],
)
def test_the_limit_of_an_answer(num_prompt: int, asked: int | None, default: int, expected: int) -> None:
    limit = admission.resolve_max_tokens(num_prompt, asked, default, CONTEXT_100, prompt_param="prompt")
    assert limit == expected


@pytest.mark.parametrize(
    ("num_prompt", "asked", "expected"), [(60, None, 21), (60, 40, 40), (80, None, 1), (95, None, 1)]
)
def test_only_a_limit_nobody_asked_for_follows_a_small_cache(
    num_prompt: int, asked: int | None, expected: int
) -> None:
    assert admission.resolve_max_tokens(num_prompt, asked, 4096, CACHE_80, prompt_param="prompt") == expected


@pytest.mark.parametrize(
    ("num_prompt", "asked", "param", "numbers"),
    [
        (90, 11, "max_tokens", ("100", "90", "11", "10")),
        (100, None, "prompt", ("100",)),
        (150, 1, "prompt", ("150",)),
    ],
)
def test_what_exceeds_the_context_is_refused_with_the_lengths(
    num_prompt: int, asked: int | None, param: str, numbers: tuple[str, ...]
) -> None:
    with pytest.raises(ContextExceeded) as info:
        admission.resolve_max_tokens(num_prompt, asked, 16, CONTEXT_100, prompt_param="prompt")
    assert (info.value.status, info.value.code) == (400, "context_length_exceeded")
    assert info.value.param == param
    assert all(number in info.value.message for number in numbers)


def test_a_prompt_that_is_certainly_too_long_is_refused_before_it_is_encoded() -> None:
    admission.check_min_length(99, 100, "prompt")
    with pytest.raises(ContextExceeded, match="at least 100"):
        admission.check_min_length(100, 100, "prompt")


@pytest.mark.parametrize(
    ("field", "ok"),
    [
        (b'"stop_token_ids":[299]', True),
        (b'"stop_token_ids":[300]', False),
        (b'"stop_token_ids":[-1]', False),
        (b'"logit_bias":{"299":1}', True),
        (b'"logit_bias":{"300":1}', False),
    ],
)
def test_options_may_name_only_tokens_of_the_vocabulary(field: bytes, ok: bool) -> None:
    options = parse_chat(b'{"messages":[{"role":"user","content":"x"}],' + field + b"}").options
    if ok:
        admission.check_against_model(options, INFO)
    else:
        with pytest.raises(InvalidRequest, match="vocabulary of 300"):
            admission.check_against_model(options, INFO)
