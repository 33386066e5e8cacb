"""What the native core refuses, in words, before it computes anything."""

import random
import subprocess
import sys
import threading
from array import array
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway import _native
from headway.core.plan import LayerShape, TensorType
from headway.runner.native_runner import NativeRunner
from headway.runner.step import Step
from support.tiny_llama import (
    BIASED,
    Part,
    empty_model,
    greedy,
    make_model,
    make_runner,
    make_step,
    random_tensors,
    tiny_rope,
    tiny_shape,
)

pytestmark = pytest.mark.native

SHAPE = tiny_shape()


@pytest.fixture(scope="module")
def runner() -> NativeRunner:
    return make_runner(
        make_model(SHAPE, random_tensors(SHAPE), weights="int8", isa="auto"), SHAPE, num_blocks=48
    )


def good_step(**changes: Any) -> Step:
    parts = [Part([1, 2, 3], 0, [4], [2]), Part([5, 6], 17, [7, 8], [0, 1])]
    return replace(make_step(parts, sampling=greedy(3)), **changes)


def ints(*values: int) -> "array[int]":
    return array("i", values)


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "token too large": ({"tokens": ints(1, 2, SHAPE.vocab_size, 5, 6)}, "not in the vocabulary"),
    "token negative": ({"tokens": ints(1, 2, -1, 5, 6)}, "not in the vocabulary"),
    "positions short": ({"positions": ints(0, 1, 2, 17)}, "positions must have 5 items"),
    "positions not consecutive": ({"positions": ints(0, 1, 3, 17, 18)}, "consecutive"),
    "positions not from context": ({"positions": ints(0, 1, 2, 16, 17)}, "consecutive"),
    "starts fall": ({"sequence_starts": ints(0, 6, 5)}, "must not fall"),
    "starts end wrong": ({"sequence_starts": ints(0, 3, 4)}, "end with 5"),
    "starts begin wrong": ({"sequence_starts": ints(1, 3, 5)}, "begin with 0"),
    "starts short": ({"sequence_starts": ints(0, 5)}, "3 items"),
    "context negative": ({"context_lens": ints(0, -1)}, "negative"),
    "context beyond": ({"context_lens": ints(0, SHAPE.max_context)}, "positions"),
    "context huge": ({"context_lens": ints(0, 2**31 - 1)}, "positions"),
    "table short": ({"block_table": ints(4, 7), "block_table_starts": ints(0, 1, 2)}, "needs 2 blocks"),
    "block too large": ({"block_table": ints(4, 7, 48)}, "block 48"),
    "block negative": ({"block_table": ints(-1, 7, 8)}, "block -1"),
    "table starts fall": ({"block_table_starts": ints(0, 4, 3)}, "must not fall"),
    "block written twice": ({"block_table": ints(8, 7, 8)}, "held elsewhere"),
    "written block read": ({"block_table": ints(7, 7, 8)}, "held elsewhere"),
    "written block twice in a table": ({"block_table": ints(4, 8, 8)}, "held elsewhere"),
    "adapter": ({"adapter_ids": ints(0, 1)}, "Adapter 1"),
    "adapters short": ({"adapter_ids": ints(0)}, "adapter_ids"),
    "output beyond": ({"output_rows": ints(2, 3, 5)}, "output_rows"),
    "output negative": ({"output_rows": ints(-1, 3, 4)}, "output_rows"),
    "output falls": ({"output_rows": ints(3, 2, 4)}, "output_rows"),
    "kinds short": ({"output_kinds": ints(0, 0)}, "output_kinds"),
    "kind unknown": ({"output_kinds": ints(0, 0, 2)}, "output_kinds"),
    "no sampling": ({"sampling": None}, "temperature"),
    "sampling short": ({"sampling": greedy(2)}, "temperature"),
}


@pytest.mark.parametrize(("changes", "words"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_step_is_refused_and_changes_nothing(
    runner: NativeRunner, changes: dict[str, Any], words: str
) -> None:
    before = [runner.read_block(block) for block in (4, 7, 8)]
    with pytest.raises(ValueError, match=words):
        runner.execute(good_step(**changes))
    assert [runner.read_block(block) for block in (4, 7, 8)] == before


def test_the_good_step_is_taken(runner: NativeRunner) -> None:
    assert len(runner.execute(good_step()).tokens) == 3


def test_an_empty_step_is_taken(runner: NativeRunner) -> None:
    result = runner.execute(make_step([]))
    assert (list(result.tokens), result.hidden) == ([], b"")


@pytest.mark.parametrize("name", [field.name for field in fields(Step) if field.name != "sampling"])
def test_arrays_of_another_type_are_refused(runner: NativeRunner, name: str) -> None:
    with pytest.raises(TypeError):
        runner.execute(good_step(**{name: array("q", [0, 1, 2])}))


@pytest.mark.parametrize("name", [field.name for field in fields(greedy(1))])
def test_sampling_arrays_of_another_length_are_refused(runner: NativeRunner, name: str) -> None:
    sampling = greedy(3)
    longer = array(getattr(sampling, name).typecode, [*getattr(sampling, name), 1])
    with pytest.raises(ValueError, match=r"must|Sampling"):
        runner.execute(good_step(sampling=replace(sampling, **{name: longer})))


def test_a_mask_that_does_not_exist_is_refused(runner: NativeRunner) -> None:
    with pytest.raises(ValueError, match="mask 0"):
        runner.execute(good_step(sampling=replace(greedy(3), mask_rows=ints(-1, 0, -1))))


def test_a_row_without_any_allowed_token_gives_minus_one(runner: NativeRunner) -> None:
    words = (SHAPE.vocab_size + 31) // 32
    sampling = replace(greedy(3, num_logprobs=1), mask_rows=ints(-1, 0, -1), masks=array("I", [0] * words))
    result = runner.execute(good_step(sampling=sampling))
    assert result.tokens[1] == -1
    assert result.logprobs[1] is None
    assert min(result.tokens[0], result.tokens[2]) >= 0


@pytest.mark.parametrize("block", [-1, 48, 2**40])
def test_blocks_that_do_not_exist_are_refused(runner: NativeRunner, block: int) -> None:
    data = runner.read_block(0)
    calls: list[Callable[[], object]] = [
        lambda: runner.read_block(block),
        lambda: runner.write_block(block, data),
        lambda: runner.copy_block(block, 0),
        lambda: runner.copy_block(0, block),
    ]
    for call in calls:
        with pytest.raises(IndexError, match=str(block)):
            call()


def test_block_data_of_another_size_is_refused(runner: NativeRunner) -> None:
    with pytest.raises(ValueError, match="bytes"):
        runner.write_block(0, runner.read_block(0)[:-1])


def test_a_block_has_the_size_its_format_says() -> None:
    model = make_model(SHAPE, random_tensors(SHAPE), weights="bf16", isa="portable")
    values = 2 * 16 * SHAPE.head_dim * SHAPE.num_kv_heads * SHAPE.num_layers
    scales = 2 * 16 * SHAPE.num_kv_heads * SHAPE.num_layers
    assert _native.KvCache(model, num_blocks=1, dtype="bf16").block_bytes == values * 2
    assert _native.KvCache(model, num_blocks=1, dtype="int8").block_bytes == values + scales * 4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_blocks": 0}, "num_blocks"),
        ({"num_blocks": 2**40}, "num_blocks"),
        ({"block_size": 32}, "block_size"),
        ({"dtype": "fp8"}, "dtype"),
    ],
)
def test_caches_that_cannot_be_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        _native.KvCache(empty_model(SHAPE), **({"num_blocks": 1} | changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"isa": "avx1024"}, "avx1024"),
        ({"weights": "int3"}, "weights"),
        ({"group_size": 16}, "group_size"),
        ({"threads": 0}, "threads"),
        ({"threads": 10**6}, "threads"),
    ],
)
def test_settings_out_of_range_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        empty_model(SHAPE, **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_size": 0}, "hidden_size"),
        ({"vocab_size": 2**30}, "vocab_size"),
        ({"num_kv_heads": 4}, "num_kv_heads"),
        ({"head_dim": 40}, "head_dim"),
        ({"ropes": ()}, "ropes"),
        ({"ropes": (tiny_rope(),) * 17}, "at most 16 rotations"),
        ({"ropes": (replace(tiny_rope(), dim=7),)}, "dim must be even"),
        ({"ropes": (tiny_rope(64),)}, "at most head_dim, not be 64"),
        ({"ropes": (replace(tiny_rope(), dim=16),)}, "must have 8 frequencies, not 16"),
        ({"ropes": (replace(tiny_rope(), frequencies=(float("inf"),) * 16),)}, "frequencies must be finite"),
        ({"ropes": (tiny_rope(scale=0.0),)}, "scale must be positive"),
        ({"layers": (LayerShape(),)}, "layers must have 2 items, not 1"),
        ({"layers": (LayerShape(), LayerShape(rope=1))}, "names rope 1"),
        ({"layers": (LayerShape(), LayerShape(window=0))}, "window must be at least 1, not 0"),
        ({"layers": (LayerShape(), LayerShape(window=-5))}, "window must be at least 1, not -5"),
        ({"norm_epsilon": -1.0}, "norm_epsilon"),
        ({"norm_epsilon": float("nan")}, "norm_epsilon"),
        ({"activation": "relu"}, "activation"),
        ({"attention_scale": 0.0}, "attention_scale"),
        ({"attention_softcap": -1.0}, "attention_softcap"),
        ({"logit_softcap": float("nan")}, "logit_softcap"),
        ({"embedding_scale": float("inf")}, "embedding_scale"),
        ({"num_experts": -1}, "num_experts"),
        ({"num_experts": 1 << 20}, "num_experts"),
        ({"num_experts": 4}, "num_experts_per_token must lie in 1 .. 4, not be 0"),
        ({"num_experts": 4, "num_experts_per_token": 5}, "must lie in 1 .. 4, not be 5"),
        ({"num_experts_per_token": 1}, "must lie in 0 .. 0, not be 1"),
    ],
)
def test_shapes_out_of_range_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        empty_model(replace(SHAPE, **changes))


GOOD_TENSOR: dict[str, Any] = {
    "role": "query",
    "layer": 0,
    "tensor_type": TensorType.F16,
    "rows": SHAPE.num_heads * SHAPE.head_dim,
    "columns": SHAPE.hidden_size,
    "data": bytes(SHAPE.num_heads * SHAPE.head_dim * SHAPE.hidden_size * 2),
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"role": "qeury"}, "qeury"),
        ({"role": "output_norm"}, "output_norm"),
        ({"layer": None}, "query"),
        ({"layer": 2}, "Layer 2"),
        ({"layer": -1}, "negative"),
        ({"rows": 5}, "must be 192 x 72"),
        ({"columns": -72}, "must be 192 x 72"),
        ({"data": GOOD_TENSOR["data"][:-1]}, "bytes"),
        ({"tensor_type": 99}, "type 99"),
        ({"tensor_type": TensorType.Q8_0}, "blocks of 32"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        empty_model(SHAPE).load(**(GOOD_TENSOR | changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"role": "ffn_gate"}, "Tensor ffn_gate of layer 0 does not exist; a layer has 3 experts"),
        ({"role": "ffn_gate", "expert": 3}, "ffn_gate of expert 3 of layer 0 does not exist"),
        ({"role": "query", "expert": 1}, "that role has no experts"),
        ({"role": "output_norm", "layer": None, "expert": 1}, "within layers"),
        ({"role": "query", "expert": -1}, "expert must not be negative"),
        ({"role": "query_norm"}, 'no tensor "query_norm"'),
        ({"role": "router", "columns": 71}, "router of layer 0 must be 3 x 72"),
        ({"role": "query", "add": 1.0}, "is no vector"),
        ({"role": "query", "first_row": 32}, "goes on with row 0, not 32"),
    ],
)
def test_tensors_of_other_architectures_that_do_not_fit_are_refused(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        empty_model(BIASED).load(**(GOOD_TENSOR | changes))


def test_rows_come_in_whole_tiles_and_in_order() -> None:
    tensors = random_tensors(SHAPE)
    whole = make_runner(make_model(SHAPE, tensors, weights="int8", isa="auto"), SHAPE).forward(good_step())
    model = empty_model(SHAPE)
    for (role, layer), values in tensors.items():
        for first in range(0, len(values), 64):
            part = values[first : first + 64]
            place: dict[str, Any] = {"role": role, "layer": layer, "tensor_type": TensorType.F32}
            place |= {"first_row": first, "columns": part.shape[1]}
            if len(values) > 64 and first == 0:
                with pytest.raises(ValueError, match="must be"):
                    model.load(**place, rows=33, data=part[:33].tobytes())
            model.load(**place, rows=len(part), data=part.tobytes())
    model.finish()
    assert make_runner(model, SHAPE).forward(good_step()) == whole


def test_a_tensor_that_ends_early_is_named() -> None:
    tensors = dict(random_tensors(SHAPE))
    tensors["ffn_down", 1] = tensors["ffn_down", 1][:32]
    with pytest.raises(ValueError, match="ffn_down of layer 1 ends after row 32"):
        make_model(SHAPE, tensors, weights="int8", isa="auto")


def test_what_is_added_to_a_vector_is_added_once() -> None:
    tensors = dict(random_tensors(SHAPE))
    whole = make_runner(make_model(SHAPE, tensors, weights="bf16", isa="auto"), SHAPE).forward(good_step())
    norm = tensors.pop(("output_norm", None))
    model = empty_model(SHAPE, weights="bf16")
    for (role, layer), values in tensors.items():
        rows, columns = values.shape
        model.load(
            role=role,
            layer=layer,
            tensor_type=TensorType.F32,
            rows=rows,
            columns=columns,
            data=values.tobytes(),
        )
    less = norm - np.float32(0.25)
    model.load(
        role="output_norm",
        layer=None,
        tensor_type=TensorType.F32,
        rows=1,
        columns=72,
        data=less.tobytes(),
        add=0.25,
    )
    model.finish()
    logits = make_runner(model, SHAPE).forward(good_step())
    np.testing.assert_allclose(
        np.frombuffer(logits, np.float32), np.frombuffer(whole, np.float32), rtol=1e-4, atol=1e-5
    )


def test_a_tensor_is_loaded_once() -> None:
    model = empty_model(SHAPE)
    model.load(**GOOD_TENSOR)
    with pytest.raises(ValueError, match="query of layer 0 was loaded already"):
        model.load(**GOOD_TENSOR)


def test_a_model_with_a_tensor_missing_does_not_run() -> None:
    tensors = dict(random_tensors(SHAPE))
    del tensors["ffn_down", 1]
    with pytest.raises(ValueError, match="ffn_down of layer 1 is missing"):
        make_model(SHAPE, tensors, weights="int8", isa="auto")
    with pytest.raises(ValueError, match="not finished"):
        _native.Runner(_native.KvCache(empty_model(SHAPE), num_blocks=1))


def test_logits_of_nan_weights_crash_nothing() -> None:
    tensors = {key: np.full_like(value, np.nan) for key, value in random_tensors(SHAPE).items()}
    for isa in _native.available_isas():
        for weights in ("bf16", "int8"):
            model = make_model(SHAPE, tensors, weights=weights, isa=isa)
            result = make_runner(model, SHAPE).execute(good_step())
            assert len(result.tokens) == 3


@pytest.mark.parametrize("seed", range(4))
def test_steps_with_random_numbers_in_them_are_taken_or_refused(runner: NativeRunner, seed: int) -> None:
    """Whatever is in the arrays, the answer is a result or a ValueError."""
    rng = random.Random(seed)
    values = (-(2**31), -2, -1, 0, 1, 2, 3, 5, 17, 47, 48, 49, 130, 131, 639, 640, 2**31 - 1)
    refused = taken = 0
    for _ in range(150):
        step = good_step()
        sampling = step.sampling
        assert sampling is not None
        arrays = [getattr(step, field.name) for field in fields(Step) if field.name != "sampling"]
        arrays += [getattr(sampling, field.name) for field in fields(sampling)]
        for _ in range(rng.randint(1, 2)):
            target = rng.choice(arrays)
            value = rng.choice(values)
            if target.typecode in "IQ":
                value = abs(value)
            if len(target) and rng.random() < 0.9:
                target[rng.randrange(len(target))] = value
            else:
                target.append(value)
        try:
            runner.execute(step)
            taken += 1
        except ValueError:
            refused += 1
    assert taken > 0
    assert refused > 50


def test_a_second_caller_at_the_same_time_is_refused() -> None:
    runner = make_runner(make_model(SHAPE, random_tensors(SHAPE), weights="bf16", isa="portable"), SHAPE)
    long_step = make_step([Part([i % SHAPE.vocab_size for i in range(600)], 0, range(38), range(600))])
    outcomes: list[str] = []

    def call() -> None:
        for _ in range(3):
            try:
                runner.forward(long_step)
                outcomes.append("computed")
            except RuntimeError as error:
                outcomes.append(str(error))

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "computed" in outcomes
    assert set(outcomes) <= {
        "computed",
        "The model is busy on another thread; it takes one caller at a time.",
    }


def test_a_thread_inside_the_core_does_not_abort_the_interpreter_s_end() -> None:
    program = """
import threading
from support.tiny_llama import *

shape = tiny_shape()
runner = make_runner(make_model(shape, random_tensors(shape), weights="bf16", isa="portable"), shape)
step = make_step([Part([7] * 600, 0, range(38), range(600))])
inside = threading.Event()

def work():
    while True:
        runner.forward(step)
        inside.set()

threading.Thread(target=work, daemon=True).start()
inside.wait()
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr  # nanobind tells of what the thread still holds
