"""Batch invariance (X1) of the native core: a sequence's bits depend on nothing but the sequence.

Logits of every position and the bytes of every block, however the prompt is chunked, whatever else is in the batch, at any
number of threads; for every weight format, cache format and instruction set.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import pytest

from headway import _native
from headway.core.plan import ModelShape
from headway.runner.native_runner import NativeRunner
from support.tiny_llama import Part, drawing, make_model, make_runner, make_step
from support.tiny_shapes import OTHER_SHAPES, Tensors, random_tensors, tiny_shape

pytestmark = pytest.mark.native

SHAPE = tiny_shape()
WIDE = tiny_shape(head_dim=64, num_heads=3, num_kv_heads=1, hidden_size=100, vocab_size=97)
NUM_TOKENS = 528  # three spans of 256 positions, and full blocks: no slot keeps what was there before
FORMATS = [
    (weights, kv, isa)
    for weights, kv in (
        ("bf16", "bf16"),
        ("bf16", "int8"),
        ("int8", "bf16"),
        ("int8", "int8"),
        ("int8 in 128", "bf16"),
        ("int4", "int8"),
        ("nf4", "bf16"),
    )
    for isa in _native.available_isas()
]
"""All but "auto", which takes a file of many types: test_weight_formats.py."""


@dataclass(frozen=True, slots=True)
class Trace:
    """All that a sequence left: logits of its positions, one after another, and its blocks."""

    logits: bytes
    blocks: tuple[bytes, ...]


@cache
def tensors(shape: ModelShape) -> Tensors:
    return random_tensors(shape)


def runner(
    shape: ModelShape, weights: str, kv: str, isa: str, threads: int, num_blocks: int = 96
) -> NativeRunner:
    weights, _, group_size = weights.partition(" in ")
    model = make_model(
        shape, tensors(shape), weights=weights, isa=isa, threads=threads, group_size=int(group_size or 32)
    )
    return make_runner(model, shape, kv=kv, num_blocks=num_blocks)


def prompt(shape: ModelShape, salt: int = 0, count: int = NUM_TOKENS) -> list[int]:
    return [(i * i * 7 + i * 31 + salt * 13) % shape.vocab_size for i in range(count)]


def blocks_for(count: int, first: int, stride: int = 1) -> list[int]:
    return [first + i * stride for i in range((count + 15) // 16)]


def compute(runner: NativeRunner, tokens: Sequence[int], blocks: Sequence[int], chunk: int) -> Trace:
    """Compute the tokens alone, `chunk` a step."""
    logits = b""
    for begin in range(0, len(tokens), chunk):
        part = tokens[begin : begin + chunk]
        logits += runner.forward(make_step([Part(part, begin, blocks, range(len(part)))]))
    return Trace(logits, tuple(runner.read_block(block) for block in blocks))


@pytest.mark.parametrize(("weights", "kv", "isa"), FORMATS)
def test_chunks_and_threads_change_no_bit(weights: str, kv: str, isa: str) -> None:
    tokens = prompt(SHAPE)
    one, two = (runner(SHAPE, weights, kv, isa, threads) for threads in (1, 2))
    whole = compute(one, tokens, blocks_for(NUM_TOKENS, 3), NUM_TOKENS)
    assert compute(two, tokens, blocks_for(NUM_TOKENS, 90, -2), NUM_TOKENS) == whole
    assert compute(one, tokens, blocks_for(NUM_TOKENS, 40), 37) == whole
    assert compute(two, tokens, blocks_for(NUM_TOKENS, 1), 16) == whole
    assert compute(two, tokens, blocks_for(NUM_TOKENS, 50), 1) == whole


@pytest.mark.parametrize(
    ("weights", "kv", "isa"), [(weights, kv, isa) for weights, kv, isa in FORMATS if weights == kv]
)
@pytest.mark.parametrize("name", OTHER_SHAPES)
def test_other_architectures_are_invariant(name: str, weights: str, kv: str, isa: str) -> None:
    """Windows, soft caps, biases, norms and experts: chunks, threads, spread spans and company change no bit."""
    shape = OTHER_SHAPES[name]
    tokens = prompt(shape)
    one, three = (runner(shape, weights, kv, isa, threads) for threads in (1, 3))
    whole = compute(one, tokens, blocks_for(NUM_TOKENS, 3), NUM_TOKENS)
    assert compute(three, tokens, blocks_for(NUM_TOKENS, 90, -2), 37) == whole
    assert compute(one, tokens, blocks_for(NUM_TOKENS, 40), 130) == whole
    mine, other = blocks_for(NUM_TOKENS, 5), prompt(shape, 3, 300)
    logits = b""
    for begin, end in ((0, 500), (500, 515), *((i, i + 1) for i in range(515, NUM_TOKENS))):
        company = other[min(begin, 299) : min(end, 300)]
        parts = [
            Part(company, min(begin, 299), blocks_for(300, 50)),
            Part(tokens[begin:end], begin, mine, range(end - begin)),
        ]
        logits += three.forward(make_step(parts))
    assert Trace(logits, tuple(three.read_block(block) for block in mine)) == whole


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("weights", "kv", "isa"), FORMATS)
def test_the_batch_changes_no_bit(weights: str, kv: str, isa: str, threads: int) -> None:
    """Sixteen sequences of other lengths and contexts, one of them the subject: in prefill, then in decode."""
    tokens = prompt(WIDE, count=280)
    alone = compute(runner(WIDE, weights, kv, isa, 1), tokens, blocks_for(280, 0), 280)
    crowd = runner(WIDE, weights, kv, isa, threads, num_blocks=16 * 20)
    others = [prompt(WIDE, salt, count=20 + salt * 16) for salt in range(1, 16)]
    mine = blocks_for(280, 300)

    def others_parts(begin: int, end: int) -> list[Part]:
        return [
            Part(other[begin:end], min(begin, len(other)), blocks_for(len(other), 20 * i), [])
            for i, other in enumerate(others)
        ]

    logits = b""
    for begin, end in ((0, 130), (130, 270), *((i, i + 1) for i in range(270, 280))):
        parts = others_parts(begin, end)
        parts.insert(7, Part(tokens[begin:end], begin, mine, range(end - begin)))
        logits += crowd.forward(make_step(parts))
    assert Trace(logits, tuple(crowd.read_block(block) for block in mine)) == alone


@pytest.mark.parametrize(("weights", "kv", "isa"), FORMATS)
def test_copied_and_restored_blocks_continue_with_the_same_bits(weights: str, kv: str, isa: str) -> None:
    tokens = prompt(SHAPE, count=80)
    first = runner(SHAPE, weights, kv, isa, 2)
    whole = compute(first, tokens, blocks_for(80, 0), 80)
    second = runner(SHAPE, weights, kv, isa, 1)
    for target, block in zip((11, 13, 12), range(3), strict=True):
        second.write_block(20, first.read_block(block))
        second.copy_block(20, target)
    blocks = [11, 13, 12, 14, 15]
    logits = second.forward(make_step([Part(tokens[48:], 48, blocks, range(32))]))
    assert Trace(logits, tuple(second.read_block(block) for block in blocks)) == Trace(
        whole.logits[48 * SHAPE.vocab_size * 4 :], whole.blocks
    )


@pytest.mark.parametrize("isa", _native.available_isas())
def test_a_block_used_before_leaves_no_trace(isa: str) -> None:
    """Stale keys and values beyond a sequence's end, infinities and NaN among them, are never read."""
    tokens = prompt(SHAPE, count=21)
    clean = runner(SHAPE, "int8", "bf16", isa, 1)
    expected = compute(clean, tokens, [0, 1], 21).logits
    dirty = runner(SHAPE, "int8", "bf16", isa, 1)
    for block in (0, 1):
        dirty.write_block(block, b"\xff\x7f" * (len(dirty.read_block(block)) // 2))
    assert compute(dirty, tokens, [0, 1], 21).logits == expected


def test_sampled_tokens_do_not_depend_on_the_batch() -> None:
    tokens = prompt(SHAPE, count=40)
    alone = runner(SHAPE, "int8", "bf16", "auto", 1)
    single = [
        alone.execute(
            make_step([Part(tokens[: i + 1], 0, [0, 1, 2], [i])], sampling=drawing(1, positions=[i + 1]))
        ).tokens[0]
        for i in range(40)
    ]
    crowd = runner(SHAPE, "int8", "bf16", "auto", 2)
    parts = [Part(prompt(SHAPE, 5, 9), 0, [9], [8]), Part(tokens, 0, [3, 4, 5], range(40))]
    result = crowd.execute(make_step(parts, sampling=drawing(41, positions=[9, *range(1, 41)])))
    assert list(result.tokens[1:]) == single
    assert len(set(single)) > 10
