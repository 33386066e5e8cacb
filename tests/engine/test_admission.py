from typing import Any

import msgspec
import pytest

from headway.core.config import SchedulerConfig
from headway.core.errors import ContextExceeded, Draining, InvalidRequest, QueueFull
from headway.core.messages import EngineInfo
from headway.core.sampling import SamplingParams
from headway.engine.admission import QueueLoad, refusal
from support.engine_on_fake import make_request

INFO = EngineInfo(
    model="m", vocab_size=100, max_context=64, num_blocks=3, block_size=16, system_fingerprint="f"
)
IDLE = QueueLoad(num_sequences=0, num_tokens=0, wait_s=2.0, draining=False)
LIMITS = SchedulerConfig(max_queued_requests=2, max_queued_tokens=50)


def test_a_sound_request_is_accepted() -> None:
    assert refusal(make_request("r", range(40), max_tokens=9), INFO, LIMITS, IDLE) is None


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"token_ids": ()}, "prompt"),
        ({"token_ids": (1, 100)}, "prompt"),
        ({"token_ids": (1, -1)}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"num_resumed": -1}, "num_resumed"),
        ({"num_resumed": 3}, "num_resumed"),
        ({"sampling": SamplingParams(seed=2**64)}, "seed"),
        ({"sampling": SamplingParams(top_k=2**31)}, "top_k"),
        ({"adapter_id": 1}, "adapter_id"),
        ({"sampling": SamplingParams(temperature=-0.1)}, "temperature"),
        ({"sampling": SamplingParams(temperature=float("nan"))}, "temperature"),
        ({"sampling": SamplingParams(temperature=1e300)}, "temperature"),
        ({"sampling": SamplingParams(top_p=0.0)}, "top_p"),
        ({"sampling": SamplingParams(top_p=1e-50)}, "top_p"),
        ({"sampling": SamplingParams(top_p=1e-40)}, "top_p"),
        ({"sampling": SamplingParams(repetition_penalty=1e-40)}, "repetition_penalty"),
        ({"sampling": SamplingParams(min_p=1.1)}, "min_p"),
        ({"sampling": SamplingParams(repetition_penalty=0.0)}, "repetition_penalty"),
        ({"sampling": SamplingParams(presence_penalty=2.1)}, "presence_penalty"),
        ({"sampling": SamplingParams(frequency_penalty=float("nan"))}, "frequency_penalty"),
        ({"sampling": SamplingParams(logit_bias=((100, 1.0),))}, "logit_bias"),
        ({"sampling": SamplingParams(logit_bias=((1, float("nan")),))}, "logit_bias"),
        ({"sampling": SamplingParams(num_logprobs=257)}, "logprobs"),
    ],
)
def test_what_would_break_a_step_is_refused_by_name(changed: dict[str, Any], param: str) -> None:
    request = msgspec.structs.replace(make_request("r", range(3)), **changed)
    error = refusal(request, INFO, LIMITS, IDLE)
    assert isinstance(error, InvalidRequest)
    assert error.param == param


def test_the_context_is_exceeded_by_prompt_and_answer_together() -> None:
    info = msgspec.structs.replace(INFO, num_blocks=100)
    assert refusal(make_request("r", range(60), max_tokens=4), info, LIMITS, IDLE) is None
    error = refusal(make_request("r", range(60), max_tokens=5), info, LIMITS, IDLE)
    assert isinstance(error, ContextExceeded)
    assert "65 tokens: 60 in the prompt and 5 for max_tokens" in error.message
    assert "context is 64" in error.message
    assert error.param == "max_tokens"


def test_what_can_never_fit_the_cache_is_refused() -> None:
    assert refusal(make_request("r", range(40), max_tokens=9), INFO, LIMITS, IDLE) is None  # 48 computed
    error = refusal(make_request("r", range(40), max_tokens=10), INFO, LIMITS, IDLE)
    assert isinstance(error, ContextExceeded)
    assert "holds 48 tokens" in error.message


def test_the_queue_is_bounded_in_requests() -> None:
    load = QueueLoad(num_sequences=2, num_tokens=2, wait_s=7.0, draining=False)
    error = refusal(make_request("r", range(3)), INFO, LIMITS, load)
    assert isinstance(error, QueueFull)
    assert error.retry_after_s == 7.0


def test_the_queue_is_bounded_in_tokens_but_never_refuses_into_emptiness() -> None:
    load = QueueLoad(num_sequences=1, num_tokens=48, wait_s=7.0, draining=False)
    assert refusal(make_request("r", range(2)), INFO, LIMITS, load) is None
    assert isinstance(refusal(make_request("r", range(3)), INFO, LIMITS, load), QueueFull)
    assert isinstance(refusal(make_request("r", range(2), n=2), INFO, LIMITS, load), QueueFull)
    tight = SchedulerConfig(max_queued_tokens=1)
    assert refusal(make_request("r", range(3)), INFO, tight, IDLE) is None


def test_a_draining_engine_takes_nothing() -> None:
    load = QueueLoad(num_sequences=0, num_tokens=0, wait_s=2.0, draining=True)
    assert isinstance(refusal(make_request("r", range(3)), INFO, LIMITS, load), Draining)
