"""Sampling through the native runner: seeds, choices, masks, log-probabilities, penalties."""

from array import array
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from headway.core.messages import TokenLogprobs
from headway.runner.native_runner import NativeRunner
from headway.runner.step import SamplingBatch, Step, StepResult
from support.tiny_llama import Part, drawing, greedy, make_model, make_runner, make_step
from support.tiny_shapes import random_tensors, tiny_shape

pytestmark = pytest.mark.native

SHAPE = tiny_shape()
VOCAB = SHAPE.vocab_size
WORDS_PER_MASK = -(-VOCAB // 32)
PROMPT = [3, 14, 15, 92, 65, 35, 89, 79]


@pytest.fixture(scope="module")
def runner() -> NativeRunner:
    return make_runner(make_model(SHAPE, random_tensors(SHAPE), weights="int8", isa="auto"), SHAPE)


def prompt_step(num_rows: int, sampling: SamplingBatch | None) -> Step:
    """The prompt `num_rows` times side by side, its last position sampled."""
    parts = [Part(PROMPT, 0, [row], [len(PROMPT) - 1]) for row in range(num_rows)]
    return make_step(parts, sampling=sampling)


def draw(runner: NativeRunner, sampling: SamplingBatch) -> StepResult:
    return runner.execute(prompt_step(len(sampling.seeds), sampling))


def prompt_logits(runner: NativeRunner) -> NDArray[np.float64]:
    logits: NDArray[np.float64] = np.frombuffer(
        runner.forward(prompt_step(1, None)), dtype=np.float32
    ).astype(np.float64)
    return logits


def log_softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = logits - logits.max()
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum())
    return result


def mask_of(tokens: Sequence[int]) -> list[int]:
    words = [0] * WORDS_PER_MASK
    for token in tokens:
        words[token // 32] |= 1 << token % 32
    return words


def test_the_same_seed_gives_the_same_tokens_in_any_row(runner: NativeRunner) -> None:
    hot = drawing(16, positions=[8] * 16, temperature=2.0)
    assert len(set(draw(runner, hot).tokens)) == 1
    alone = [
        draw(runner, replace(drawing(1, positions=[8], temperature=2.0), seeds=array("Q", [seed]))).tokens[0]
        for seed in range(16)
    ]
    together = draw(runner, replace(hot, seeds=array("Q", range(16)))).tokens
    assert list(together) == alone
    assert len(set(alone)) > 4


def test_choices_and_positions_draw_for_themselves(runner: NativeRunner) -> None:
    hot = drawing(16, positions=[8] * 16, temperature=2.0)
    assert len(set(draw(runner, replace(hot, choices=array("i", range(16)))).tokens)) > 4
    assert len(set(draw(runner, replace(hot, positions=array("i", range(16)))).tokens)) > 4
    # The largest seed crosses the boundary whole.
    large = replace(hot, seeds=array("Q", [2**64 - 1] * 16))
    assert len(set(draw(runner, large).tokens)) == 1


def test_draws_follow_the_probabilities(runner: NativeRunner) -> None:
    num_draws = 40 * 50
    logits = prompt_logits(runner) / 1.5
    expected = np.exp(log_softmax(logits)) * num_draws
    counts = np.zeros(VOCAB)
    for first in range(0, num_draws, 50):
        for token in draw(runner, drawing(50, positions=range(first, first + 50), temperature=1.5)).tokens:
            counts[token] += 1
    common = expected >= 5
    chi_square = float((((counts - expected) ** 2) / expected)[common].sum())
    assert common.sum() > 10
    assert chi_square < 2.0 * float(common.sum())  # mean: their number; the draws are fixed by the seed


def test_a_mask_is_honoured_row_by_row(runner: NativeRunner) -> None:
    allowed = [[7], [31, 32], list(range(VOCAB)), []]
    masks = array("I", [word for tokens in allowed for word in mask_of(tokens)])
    for base in (greedy(5), drawing(5, positions=[8] * 5, temperature=3.0)):
        tokens = draw(runner, replace(base, masks=masks, mask_rows=array("i", [0, 1, 2, -1, 3]))).tokens
        assert tokens[0] == 7
        assert tokens[1] in (31, 32)
        assert tokens[2] == tokens[3]
        assert tokens[4] == -1  # nothing may be drawn: the engine ends the request


def test_logprobs_are_those_of_the_raw_logits(runner: NativeRunner) -> None:
    expected = log_softmax(prompt_logits(runner))
    best = np.argsort(-expected, kind="stable")
    asked = replace(
        greedy(4),
        num_logprobs=array("i", [5, -1, 0, VOCAB]),
        temperature=array("f", [0.0, 0.0, 1.7, 0.3]),
        bias_starts=array("i", [0, 1, 1, 1, 1]),
        bias_ids=array("i", [int(best[-1])]),
        bias_values=array("f", [100.0]),
    )
    result = draw(runner, asked)
    first, none, chosen_only, everything = result.logprobs
    assert none is None
    assert isinstance(first, TokenLogprobs)
    assert isinstance(chosen_only, TokenLogprobs)
    assert isinstance(everything, TokenLogprobs)
    assert first.token_id == result.tokens[0] == best[-1]  # the bias moves the choice, not the probabilities
    assert first.logprob == pytest.approx(expected[best[-1]], abs=1e-5)
    assert [token for token, _ in first.top] == list(best[:5])
    assert chosen_only.top == ()
    assert chosen_only.logprob == pytest.approx(expected[result.tokens[2]], abs=1e-5)
    assert [token for token, _ in everything.top] == list(best)
    assert np.exp([logprob for _, logprob in everything.top]).sum() == pytest.approx(1.0, abs=1e-5)


def test_penalties_push_away_what_was_said(runner: NativeRunner) -> None:
    best = draw(runner, greedy(1)).tokens[0]
    told = replace(
        greedy(4),
        history=array("i", [best] * 4),
        history_starts=array("i", [0, 1, 2, 3, 4]),
        history_prompt_lens=array("i", [0, 1, 0, 1]),
        presence_penalty=array("f", [1e6, 1e6, 0.0, 0.0]),
        repetition_penalty=array("f", [1.0, 1.0, 100.0, 100.0]),
    )
    tokens = draw(runner, told).tokens
    assert tokens[0] != best  # said by the model itself
    assert tokens[1] == best  # only in the prompt: presence does not count it
    assert tokens[2] != best
    assert tokens[3] != best  # repetition counts the prompt too
