"""Speculation on the native core: the same tokens, logits and KV blocks, bit for bit, in fewer steps.

Compared are a run without drafts and one with them, on a tiny model, whose answers repeat themselves where few tokens are
left to choose from.
"""

from pathlib import Path

import msgspec
import pytest

from headway.core.clock import ManualClock
from headway.core.config import EngineConfig, KvFormat, SchedulerConfig, WeightFormat
from headway.core.messages import Submit
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.engine.engine import Engine, engine_info
from headway.models.architectures import open_plan
from headway.runner.native import load_runner
from headway.runner.native_runner import NativeRunner
from support.engine_on_fake import Received, make_request, run_until_idle
from support.recorded_run import Run, assert_same_bits, record
from support.tiny_gguf import write_tiny_gguf

pytestmark = pytest.mark.native

WITHOUT = SchedulerConfig(max_prefill_tokens=4096, max_draft_tokens=0)
WITH = SchedulerConfig(max_prefill_tokens=4096, max_draft_tokens=8)
FEW = tuple((token, 100.0) for token in (3, 5, 8))
"""Leaves three tokens, whose order the model decides."""
SAMPLING = {
    "greedy": SamplingParams(temperature=0.0, seed=1_000, logit_bias=FEW),
    "sampled": SamplingParams(temperature=0.8, seed=1_000, logit_bias=FEW),
    "penalised": SamplingParams(
        temperature=0.8, seed=1_000, logit_bias=FEW, presence_penalty=0.3, frequency_penalty=0.02
    ),
    "repetition": SamplingParams(
        temperature=0.9, seed=1_000, logit_bias=FEW, repetition_penalty=1.05, top_k=2
    ),
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf", tied=False).path


def load(path: Path, weights: WeightFormat = "int8", kv: KvFormat = "bf16") -> NativeRunner:
    config = EngineConfig(
        model="test",
        model_path=str(path),
        weights=weights,
        kv=kv,
        threads=2,
        max_context=512,
        scheduler=SchedulerConfig(max_num_seqs=8),
    )
    return load_runner(open_plan(path), config)


def ids(length: int, start: int) -> list[int]:
    return [(start * 31 + index * 17) % 60 for index in range(length)]


@pytest.mark.parametrize("sampling", SAMPLING.values(), ids=SAMPLING.keys())
@pytest.mark.parametrize("kv", ["bf16", "int8"])
@pytest.mark.parametrize("weights", ["bf16", "int8"])
def test_the_bits_are_those_of_one_token_a_step(
    tiny: Path, weights: WeightFormat, kv: KvFormat, sampling: SamplingParams
) -> None:
    """The answer runs past position 256, where attention's partial sums are merged."""
    target = make_request("target", ids(230, 1), 90, sampling)
    runner = load(tiny, weights, kv)
    expected = record(runner, Run(target, limits=WITHOUT))
    got = record(runner, Run(target, limits=WITH))
    assert expected.num_accepted == 0
    assert got.num_accepted > 10
    assert_same_bits(got, expected)


@pytest.mark.parametrize("sampling", [SAMPLING["sampled"], SAMPLING["penalised"]])
def test_the_bits_are_the_same_in_a_batch_preempted_and_cached(tiny: Path, sampling: SamplingParams) -> None:
    target = make_request("target", ids(60, 1), 60, sampling)
    runner = load(tiny)
    expected = record(runner, Run(target, limits=WITHOUT))
    beside = [
        make_request(f"r{i}", ids(60, i), 70, msgspec.structs.replace(sampling, seed=i)) for i in (2, 3, 4)
    ]
    batched = record(runner, Run(target, beside=beside, limits=WITH))
    again = msgspec.structs.replace(target, request_id="before", sampling=beside[0].sampling)
    cached = record(runner, Run(target, before=[again], limits=WITH))
    preempted = record(runner, Run(target, beside=beside[:1], limits=WITH, num_blocks=10))
    assert preempted.num_preemptions > 0
    assert cached.cached_tokens > 0
    for bits in (batched, cached, preempted):
        assert bits.num_accepted > 0
        assert_same_bits(bits, expected)


def test_log_probabilities_and_choices_are_the_same(tiny: Path) -> None:
    sampling = SamplingParams(temperature=0.8, seed=5, logit_bias=FEW, num_logprobs=3)
    request = make_request("r", ids(40, 1), 60, sampling, n=2, stop_token_ids=(3,))
    unstopped = msgspec.structs.replace(request, request_id="s", stop_token_ids=())
    runner = load(tiny)

    def answered(limits: SchedulerConfig) -> tuple[Received, int]:
        engine = Engine(runner, limits, ManualClock(), engine_info("tiny", runner))
        for one in (request, unstopped):
            engine.handle(Submit(one))
        return run_until_idle(engine), engine.statistics().accepted_tokens_total

    (expected, none), (got, some) = answered(WITHOUT), answered(WITH)
    assert none == 0
    assert some > 10
    assert got == expected


def test_requests_alone_and_resumed_are_the_same(tiny: Path) -> None:
    runner = load(tiny)

    def tokens(request: Request, limits: SchedulerConfig) -> list[int]:
        engine = Engine(runner, limits, ManualClock(), engine_info("tiny", runner))
        engine.handle(Submit(request))
        return run_until_idle(engine).of("r")

    whole = make_request("r", ids(40, 1), 60, SAMPLING["penalised"])
    expected = tokens(whole, WITHOUT)
    resumed = make_request("r", [*ids(40, 1), *expected[:25]], 35, SAMPLING["penalised"], num_resumed=25)
    assert tokens(whole, WITH) == expected
    assert tokens(resumed, WITH) == expected[25:]
