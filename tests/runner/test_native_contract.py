"""Which steps the native core refuses, in words, before it computes anything."""

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
from headway.runner.native_runner import NativeRunner
from headway.runner.step import Step
from support.tiny_llama import Part, greedy, make_model, make_runner, make_step
from support.tiny_shapes import random_tensors, tiny_shape

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
        lambda: runner.bind_block(block),
    ]
    for call in calls:
        with pytest.raises(IndexError, match=str(block)):
            call()


def test_a_block_that_is_given_memory_keeps_what_it_holds(runner: NativeRunner) -> None:
    data = bytes(index % 251 for index in range(len(runner.read_block(0))))
    runner.write_block(1, data)
    for block in range(runner.info.num_blocks):
        runner.bind_block(block)
    assert runner.read_block(1) == data
    assert not any(runner.read_block(2))


def test_block_data_of_another_size_is_refused(runner: NativeRunner) -> None:
    with pytest.raises(ValueError, match="bytes"):
        runner.write_block(0, runner.read_block(0)[:-1])


def test_logits_that_are_no_finite_numbers_crash_nothing() -> None:
    """Sums of weights that are all numbers may still overflow, both ways."""
    tensors = dict(random_tensors(SHAPE))
    for key, factor in ((("output_norm", None), 1e29), (("token_embedding", None), 1e15)):
        tensors[key] = tensors[key] * np.float32(factor)
    for isa in _native.available_isas():
        for weights in ("bf16", "int8"):
            model = make_model(SHAPE, tensors, weights=weights, isa=isa)
            runner = make_runner(model, SHAPE)
            assert not np.isfinite(np.frombuffer(runner.forward(good_step()), np.float32)).any()
            assert len(runner.execute(good_step()).tokens) == 3


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
from support.tiny_shapes import *

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
