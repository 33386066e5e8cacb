"""X1: the same prompt and seed give the same bits, whatever else is in the batch and however the prompt came in.

Weight format × KV format × instruction set × threads on a tiny model, and the demo model on the best set. Compared
are the tokens, the logits of every drawn token and the bytes of every full KV block.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec
import pytest

from headway import _native
from headway.core.config import EngineConfig, InstructionSet, KvFormat, SchedulerConfig, WeightFormat
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.models.architectures import open_plan
from headway.models.fetch import resolve_model
from headway.runner.native import load_runner
from headway.runner.native_runner import NativeRunner
from support.engine_on_fake import make_request
from support.recorded_run import Bits, Run, assert_same_bits, record
from support.tiny_gguf import write_tiny_gguf

pytestmark = pytest.mark.native

GREEDY = SamplingParams(temperature=0.0, seed=1_000)
SAMPLED = SamplingParams(temperature=0.9, top_p=0.95, frequency_penalty=0.3, seed=1_000)
"""The target's seed differs from all others, which tells its rows apart."""

TINY_PROMPT = 262
"""Reaches past position 256, where attention's partial sums are merged."""
TINY_ANSWER = 20
DEMO_PROMPT, DEMO_ANSWER = 44, 8
"""As short as still fills two blocks, and takes one more while answering."""


def target(length: int, max_tokens: int, vocab_size: int, sampling: SamplingParams) -> Request:
    return make_request("target", ids(length, 1, vocab_size), max_tokens, sampling)


def ids(length: int, start: int, vocab_size: int) -> list[int]:
    return [(start * 31 + index * 17) % vocab_size for index in range(length)]


def others(count: int, request: Request, vocab_size: int, length: int | None = None) -> list[Request]:
    """Return requests that run longer than `request`, of other prompts, lengths and sampling."""
    longest = min(90, len(request.token_ids))
    return [
        make_request(
            f"other{number}",
            ids(length or 1 + 13 * number % longest, number + 2, vocab_size),
            request.max_tokens + 5,
            SamplingParams(temperature=number % 2, seed=number),
        )
        for number in range(count)
    ]


def chunked(size: int) -> SchedulerConfig:
    return SchedulerConfig(max_prefill_tokens=size)


def ways(request: Request, vocab_size: int) -> dict[str, Run]:
    """Return every way to serve `request`."""
    length = len(request.token_ids)
    again = msgspec.structs.replace(
        request, request_id="before", sampling=msgspec.structs.replace(request.sampling, seed=7)
    )
    held = -(-length // 16)
    return {
        "in a batch of 16": Run(request, beside=others(15, request, vocab_size)),
        "in a batch of 16, in chunks of 16": Run(
            request, beside=others(15, request, vocab_size), limits=chunked(16)
        ),
        "in chunks of 1": Run(request, limits=chunked(1)),
        "in chunks of 16": Run(request, limits=chunked(16)),
        "in chunks of 37": Run(request, limits=chunked(37)),
        "cached": Run(request, before=[again]),
        # A request of the same length came first and both cannot grow: the target is preempted.
        "preempted": Run(request, beside=others(1, request, vocab_size, length), num_blocks=2 * held + 1),
    }


def check_all_ways(
    runner: NativeRunner, request: Request, reference: Bits, skip: tuple[str, ...] = ()
) -> None:
    """Serve `request` in every way and compare each with `reference`."""
    vocab_size = runner.info.vocab_size
    assert_same_bits(record(runner, Run(request)), reference)
    for name, run in ways(request, vocab_size).items():
        if name in skip:
            continue
        bits = record(runner, run)
        assert (bits.num_preemptions > 0) == (name == "preempted"), name
        assert (bits.cached_tokens > 0) == (name == "cached"), name
        assert_same_bits(bits, reference)
    half = request.max_tokens // 2
    resumed = make_request(
        "target",
        [*request.token_ids, *reference.tokens[:half]],
        request.max_tokens - half,
        request.sampling,
        num_resumed=half,
    )
    assert_same_bits(record(runner, Run(resumed)), reference, num_resumed=half)


def load(path: Path, weights: WeightFormat, kv: KvFormat, isa: InstructionSet, threads: int) -> NativeRunner:
    plan = open_plan(path)
    config = EngineConfig(
        model="test",
        model_path=str(path),
        weights=weights,
        kv=kv,
        isa=isa,
        threads=threads,
        max_context=512,
        scheduler=SchedulerConfig(max_num_seqs=8),  # what sizes the KV cache
    )
    return load_runner(plan, config)


@pytest.fixture(scope="module")
def tiny_reference(tmp_path_factory: pytest.TempPathFactory) -> "Callable[..., tuple[Path, Bits]]":
    """Return the tiny model's file and what a request gets alone, with one thread."""
    path = write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf", tied=False).path

    @cache
    def reference(
        weights: WeightFormat, kv: KvFormat, isa: InstructionSet, sampling: SamplingParams
    ) -> tuple[Path, Bits]:
        runner = load(path, weights, kv, isa, threads=1)
        return path, record(runner, Run(target(TINY_PROMPT, TINY_ANSWER, runner.info.vocab_size, sampling)))

    return reference


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("isa", _native.available_isas())
@pytest.mark.parametrize("kv", ["bf16", "int8"])
@pytest.mark.parametrize("weights", ["bf16", "int8"])
def test_a_tiny_model_repeats_exactly(
    tiny_reference: "Callable[..., tuple[Path, Bits]]",
    weights: WeightFormat,
    kv: KvFormat,
    isa: InstructionSet,
    threads: int,
    sampling: SamplingParams,
) -> None:
    path, reference = tiny_reference(weights, kv, isa, sampling)
    assert len(set(reference.tokens)) > 3, "the model says nothing worth comparing"
    assert len(reference.blocks) == (TINY_PROMPT + TINY_ANSWER - 2) // 16
    runner = load(path, weights, kv, isa, threads)
    request = target(TINY_PROMPT, TINY_ANSWER, runner.info.vocab_size, sampling)
    # What reaches sampling is compared bit by bit, so the slow ways need not be gone twice.
    skip = (
        ("in chunks of 1", "in chunks of 16", "in a batch of 16, in chunks of 16")
        if sampling is GREEDY
        else ()
    )
    check_all_ways(runner, request, reference, skip)


@pytest.mark.model
@pytest.mark.parametrize("kv", ["bf16", "int8"])
@pytest.mark.parametrize("weights", ["bf16", "int8"])
def test_the_demo_model_repeats_exactly(weights: WeightFormat, kv: KvFormat) -> None:
    path = resolve_model("smollm2")
    request = target(DEMO_PROMPT, DEMO_ANSWER, 49_152, SAMPLED)
    reference = record(load(path, weights, kv, "auto", threads=1), Run(request))
    skip = ("in a batch of 16, in chunks of 16",)
    check_all_ways(load(path, weights, kv, "auto", threads=2), request, reference, skip)
