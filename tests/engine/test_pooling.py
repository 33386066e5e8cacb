"""Embeddings: hidden states of a text become one vector, whatever the chunks, the cache and the rest of the batch."""

from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.config import SchedulerConfig
from headway.core.messages import Submit
from headway.core.request import Pooling
from headway.engine.pooling import Pooler
from headway.runner.fake import FakeRunner
from headway.runner.step import OutputKind
from support.engine_on_fake import Received, assert_idle, make_engine, make_request, prompt, run_until_idle

SIZE = 5


def rows_of(values: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> memoryview:
    return memoryview(values.tobytes())


def pooled(
    kind: Pooling, values: np.ndarray[tuple[int, int], np.dtype[np.float32]], cuts: list[int]
) -> bytes | None:
    """Push `values` in chunks that end at `cuts`, giving only the rows that the pooler asks for."""
    pooler = Pooler(kind)
    start = 0
    for end in [*cuts, len(values)]:
        num_rows = pooler.num_rows(end - start, ends=end == len(values))
        pooler.push(rows_of(values[end - num_rows : end]), num_rows)
        start = end
    return pooler.result()


@given(st.integers(1, 40), st.lists(st.integers(1, 39), unique=True), st.integers(0, 99))
def test_a_mean_is_that_of_all_rows_and_its_bits_do_not_depend_on_the_chunks(
    num_rows: int, cuts: list[int], seed: int
) -> None:
    values = np.random.default_rng(seed).standard_normal((num_rows, SIZE)).astype(np.float32)
    whole = pooled("mean", values, [])
    assert whole == pooled("mean", values, sorted(cut for cut in cuts if cut < num_rows))
    assert whole is not None
    mean = values.astype(np.float64).mean(axis=0)
    assert np.allclose(array("f", whole), mean / np.linalg.norm(mean), rtol=1e-5, atol=1e-6)


def test_the_last_row_alone_counts_and_alone_is_asked_for() -> None:
    values = np.arange(4 * SIZE, dtype=np.float32).reshape(4, SIZE)
    vector = pooled("last", values, [1, 3])
    assert vector is not None
    assert np.allclose(array("f", vector), values[3] / np.linalg.norm(values[3]))
    assert Pooler("last").num_rows(7, ends=False) == 0


@pytest.mark.parametrize("value", [0.0, np.inf, np.nan])
def test_what_has_no_direction_gives_no_vector(value: float) -> None:
    assert pooled("last", np.full((1, SIZE), value, dtype=np.float32), []) is None


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_a_text_that_was_cached_gives_the_same_vector(pooling: Pooling) -> None:
    runner = FakeRunner(keep_steps=True)
    engine = make_engine(runner, limits=SchedulerConfig(max_prefill_tokens=7))
    got = Received()
    for name in ("first", "second"):
        engine.handle(Submit(make_request(name, prompt(40), pooling=pooling)))
        run_until_idle(engine, got)
    assert got.finished["first"].embedding == got.finished["second"].embedding is not None
    assert got.finished["second"].usage.cached_tokens == (32 if pooling == "last" else 0)
    assert got.tokens == {}
    assert runner.steps is not None
    assert {kind for step in runner.steps for kind in step.output_kinds} == {OutputKind.HIDDEN}
    assert_idle(engine)


def test_a_mean_leaves_nothing_in_the_prefix_cache_and_waits_for_nobody() -> None:
    engine = make_engine(FakeRunner(), limits=SchedulerConfig(max_prefill_tokens=16))
    got = Received()
    engine.handle(Submit(make_request("text", prompt(40), 2)))
    engine.handle(Submit(make_request("mean", prompt(40), pooling="mean")))
    run_until_idle(engine, got)
    assert got.finished["text"].error is None
    assert engine.statistics().num_cached_blocks == 2


def test_a_text_may_fill_context_and_cache_to_the_last_token() -> None:
    engine = make_engine(FakeRunner(num_blocks=4, max_context=64))
    got = Received()
    for length in (64, 65):
        engine.handle(Submit(make_request(str(length), prompt(length), 1000, pooling="last")))
    run_until_idle(engine, got)
    assert got.finished["64"].error is None
    refusal = got.finished["65"].error
    assert refusal is not None
    assert (refusal.code, refusal.param) == ("context_length_exceeded", "input")


def test_an_embedding_has_one_choice_and_no_grammar() -> None:
    engine = make_engine(FakeRunner())
    got = Received()
    engine.handle(Submit(make_request("n", prompt(4), n=2, pooling="last")))
    run_until_idle(engine, got)
    assert got.finished["n"].error is not None


def test_a_runner_that_gives_no_hidden_states_ends_the_request_with_an_error() -> None:
    runner = FakeRunner()
    engine = make_engine(runner)
    runner.fail_next(ValueError("broken"))
    got = Received()
    engine.handle(Submit(make_request("r", prompt(4), pooling="mean")))
    run_until_idle(engine, got)
    error = got.finished["r"].error
    assert error is not None
    assert error.code == "internal_error"
