"""X1 with grammars in the native core: masked rows repeat bit by bit, and leave the bits of the others alone."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from headway.core.config import EngineConfig, SchedulerConfig
from headway.core.request import Grammar, Request
from headway.core.sampling import SamplingParams
from headway.engine.grammars import InlineGrammars
from headway.models.architectures import open_plan
from headway.models.grammar_compiler import GrammarCompiler
from headway.models.text_side import open_text
from headway.models.tokenizer import Tokenizer
from headway.runner.native import load_runner
from headway.runner.native_runner import NativeRunner
from support.recorded_run import Bits, Run, assert_same_bits, record
from support.tiny_gguf import write_tiny_gguf

pytestmark = pytest.mark.native

WORDS = Grammar(kind="regex", source="([a-z]{1,4} ){3,9}end", param="guided_regex")
OBJECT = Grammar(
    kind="json_schema",
    source='{"type": "array", "items": {"enum": [true, false, null, "a", "b"]}, "minItems": 6, "maxItems": 9}',
)
PROMPT, ANSWER = 40, 20
GREEDY = SamplingParams(temperature=0.0, seed=1_000)
SAMPLED = SamplingParams(temperature=0.9, top_p=0.95, frequency_penalty=0.3, seed=1_000)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf", tied=False).path


@pytest.fixture(scope="module")
def tokenizer(path: Path) -> Tokenizer:
    return open_text(path).tokenizer


@pytest.fixture(scope="module")
def runner(path: Path) -> NativeRunner:
    limits = SchedulerConfig(max_num_seqs=8)
    config = EngineConfig(model="test", model_path=str(path), threads=2, max_context=256, scheduler=limits)
    return load_runner(open_plan(path), config)


@pytest.fixture(scope="module")
def compiler(tokenizer: Tokenizer, runner: NativeRunner) -> Iterator[GrammarCompiler]:
    made = GrammarCompiler(lambda: tokenizer, runner.info.vocab_size)
    yield made
    made.close()


def request(
    request_id: str, grammar: Grammar | None, sampling: SamplingParams, stops: tuple[int, ...], start: int = 1
) -> Request:
    return Request(
        request_id=request_id,
        token_ids=tuple((start * 31 + index * 17) % 256 for index in range(PROMPT)),
        sampling=sampling,
        max_tokens=ANSWER,
        stop_token_ids=stops,
        grammar=grammar,
    )


def others(stops: tuple[int, ...], count: int = 7) -> list[Request]:
    """Requests of other prompts, with and without grammars, that run beside the target."""
    grammars = (None, WORDS, OBJECT)
    return [
        request(
            f"other{number}",
            grammars[number % 3],
            SamplingParams(temperature=number % 2, seed=number),
            stops if number % 3 else (),
            number + 2,
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("grammar", [None, WORDS, OBJECT], ids=["free", "words", "object"])
def test_every_way_gives_the_same_bits(
    runner: NativeRunner,
    compiler: GrammarCompiler,
    tokenizer: Tokenizer,
    grammar: Grammar | None,
    sampling: SamplingParams,
) -> None:
    stops = tokenizer.eos_ids if grammar is not None else ()
    target = request("target", grammar, sampling, stops)

    def serve(run: Run) -> Bits:
        return record(runner, run, InlineGrammars(compiler))

    reference = serve(Run(target))
    assert len(set(reference.tokens)) > 3, "the model says nothing worth comparing"
    if grammar is not None:
        matcher = compiler(target)[0]
        assert matcher.advance(reference.tokens)
        assert serve(Run(msgspec.structs.replace(target, grammar=None))).tokens != reference.tokens
    else:  # nor do grammars beside it need to be compiled by this engine
        assert_same_bits(record(runner, Run(target)), reference)
    # One token a step of the prompt; and too few blocks for two, so that the later one is preempted.
    for run, preempts in (
        (Run(target, beside=others(stops)), False),
        (Run(target, beside=others(stops), limits=SchedulerConfig(max_prefill_tokens=16)), False),
        (Run(target, limits=SchedulerConfig(max_prefill_tokens=1)), False),
        (Run(target, beside=others((), 1), num_blocks=2 * -(-PROMPT // 16) + 1), True),
    ):
        bits = serve(run)
        assert (bits.num_preemptions > 0) == preempts
        assert_same_bits(bits, reference)
    half = len(reference.tokens) // 2
    resumed = msgspec.structs.replace(
        target,
        token_ids=(*target.token_ids, *reference.tokens[:half]),
        num_resumed=half,
        max_tokens=ANSWER - half,
    )
    assert_same_bits(serve(Run(resumed)), reference, num_resumed=half)
