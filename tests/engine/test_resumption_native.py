"""Engines on the native core end at any step, drafts and grammars on: the next ones go on with the same tokens."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from headway.core.clock import ManualClock
from headway.core.config import EngineConfig, SchedulerConfig
from headway.core.request import Grammar, Request
from headway.core.sampling import SamplingParams
from headway.engine.engine import Engine, engine_info
from headway.engine.grammars import InlineGrammars
from headway.models.architectures import open_plan
from headway.models.grammar_compiler import GrammarCompiler
from headway.models.text_side import open_text
from headway.models.tokenizer import Tokenizer
from headway.runner.native import load_runner
from headway.runner.native_runner import NativeRunner
from support.resuming import Answers, run_through
from support.tiny_gguf import write_tiny_gguf

pytestmark = pytest.mark.native

LIMITS = SchedulerConfig(max_num_seqs=5, max_prefill_tokens=64, max_draft_tokens=8)
FEW = tuple((token, 100.0) for token in (3, 5, 8))
"""Leaves three tokens, so that answers repeat themselves and drafts are right."""
WORDS = Grammar(kind="regex", source="([a-z]{1,4} ){3,9}end", param="guided_regex")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf", tied=False).path


@pytest.fixture(scope="module")
def runner(path: Path) -> NativeRunner:
    config = EngineConfig(model="test", model_path=str(path), threads=2, max_context=256, scheduler=LIMITS)
    return load_runner(open_plan(path), config)


@pytest.fixture(scope="module")
def tokenizer(path: Path) -> Tokenizer:
    return open_text(path).tokenizer


@pytest.fixture(scope="module")
def compiler(tokenizer: Tokenizer, runner: NativeRunner) -> Iterator[GrammarCompiler]:
    made = GrammarCompiler(lambda: tokenizer, runner.info.vocab_size)
    yield made
    made.close()


def work(stops: tuple[int, ...]) -> list[Request]:
    sampled = {
        "plain": SamplingParams(temperature=0.9, seed=1, num_logprobs=2),
        "drafted": SamplingParams(temperature=0.8, seed=2, logit_bias=FEW, num_logprobs=1),
        "penalised": SamplingParams(
            temperature=0.8, seed=3, logit_bias=FEW, presence_penalty=0.3, frequency_penalty=0.02
        ),
        "words": SamplingParams(temperature=0.9, seed=4, frequency_penalty=0.3),
    }
    return [
        Request(
            request_id=name,
            token_ids=tuple((index * 17 + params.seed) % 256 for index in range(35)),
            sampling=params,
            max_tokens=24,
            n=2,
            stop_token_ids=stops if name == "words" else (),
            grammar=WORDS if name == "words" else None,
        )
        for name, params in sampled.items()
    ]


def test_drafts_are_accepted_and_a_grammar_decides(
    runner: NativeRunner, compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    """What the property below compares is worth comparing."""
    answers, engine = run(runner, compiler, tokenizer, ())
    assert engine.statistics().accepted_tokens_total > 10
    assert len(set(map(tuple, answers.tokens.values()))) == len(answers.tokens)
    assert {key: len(ids) for key, ids in answers.logprobs.items() if key[0] == "plain"} == {
        ("plain", choice): 24 for choice in range(2)
    }


def run(
    runner: NativeRunner, compiler: GrammarCompiler, tokenizer: Tokenizer, lives: tuple[int, ...]
) -> tuple[Answers, Engine]:
    engines: list[Engine] = []

    def new_engine() -> Engine:
        info = engine_info("tiny", runner)
        engines.append(Engine(runner, LIMITS, ManualClock(), info, InlineGrammars(compiler)))
        return engines[-1]

    stops = tuple(tokenizer.eos_ids)
    return run_through(new_engine, work(stops), lives), engines[-1]


@settings(max_examples=20, deadline=None, derandomize=True)
@given(lives=st.lists(st.integers(0, 30), min_size=1, max_size=3).map(tuple))
def test_whenever_engines_end_the_answers_are_those_of_one(
    runner: NativeRunner, compiler: GrammarCompiler, tokenizer: Tokenizer, lives: tuple[int, ...]
) -> None:
    expected, _ = run(runner, compiler, tokenizer, ())
    got, last = run(runner, compiler, tokenizer, lives)
    assert got == expected
    event("drafts accepted after a cut" if last.statistics().accepted_tokens_total else "none after a cut")
