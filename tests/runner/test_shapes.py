"""Named shapes against what their models' publishers tell, and that random weights fill any shape in any format."""

import math
from typing import get_args

import pytest

from headway import _native
from headway.core.config import EngineConfig, WeightFormat
from headway.core.errors import ConfigError, ModelFileError
from headway.core.plan import ModelShape
from headway.runner.measure import Workload, measure
from headway.runner.native import shape_arguments
from headway.runner.random_weights import random_plan, random_runner
from headway.runner.roofline import kv_tokens, matmul_ops, read_once
from headway.runner.shapes import SHAPES, find_shape
from support.tiny_shapes import BIASED, CAPPED, EXPERTS, tiny_shape

PARAMETERS = {  # of the model cards and safetensors headers
    "smollm2-135m": 134_515_008,
    "llama-1.4b": 1_385_780_736,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3-8b": 8_030_261_248,
    "mistral-7b": 7_248_023_552,
    "phi-3-mini": 3_821_079_552,
    "qwen2.5-coder-0.5b": 494_032_768,
    "qwen2.5-coder-1.5b": 1_543_714_304,
    "qwen2.5-coder-3b": 3_085_938_688,
    "qwen2.5-coder-7b": 7_615_616_512,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-coder-14b": 14_770_033_664,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-30b-a3b": 30_532_122_624,
    "gemma-3-1b": 999_885_952,
}


def parameters(shape: ModelShape) -> int:
    return sum(tensor.rows * tensor.columns for tensor in random_plan("m", shape, "int8").tensors)


def test_every_shape_has_as_many_parameters_as_its_model() -> None:
    assert {name: parameters(shape) for name, shape in SHAPES.items()} == PARAMETERS


@pytest.mark.native
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_the_core_can_run_every_shape(shape: ModelShape) -> None:
    model = _native.Model(
        **shape_arguments(shape, max_context=shape.max_context),
        weights="int8",
        group_size=32,
        isa="auto",
        threads=1,
    )
    assert model.weight_bytes >= parameters(shape)


def test_an_unknown_shape_is_told_which_there_are() -> None:
    with pytest.raises(ConfigError, match=r"There is no shape 'x'; there are smollm2-135m, llama-1\.4b, "):
        find_shape("x")


@pytest.mark.native
@pytest.mark.parametrize("weights", get_args(WeightFormat))
@pytest.mark.parametrize(
    "shape",
    [
        tiny_shape(hidden_size=64, ffn_size=96, tied_embeddings=False),
        *(
            tiny_shape(
                hidden_size=64,
                ffn_size=96,
                **{
                    name: getattr(other, name)
                    for name in ("qkv_bias", "qk_norm", "post_norms", "num_experts", "num_experts_per_token")
                },
            )
            for other in (CAPPED, EXPERTS, BIASED)
        ),
    ],
    ids=["untied", "norms", "experts", "biases"],
)
def test_random_weights_fill_any_shape_and_it_can_be_measured(
    shape: ModelShape, weights: WeightFormat
) -> None:
    work = Workload(prompt_tokens=20, output_tokens=2, context=33, batches=(1, 3), chunk_tokens=16, repeat=2)
    config = EngineConfig(model="m", weights=weights, threads=2, max_context=work.longest, kv_bytes=1 << 20)
    between: list[None] = []
    runner = random_runner("m", shape, config)
    measured = measure(runner, work, between=lambda: between.append(None))
    assert len(measured.prefill_s) == 2
    assert {batch: len(runs) for batch, runs in measured.decode_s.items()} == {1: 2, 3: 2}
    assert min(*measured.prefill_s, *measured.decode_s[1], *measured.decode_s[3]) > 0
    assert len(between) == 2 * (1 + 2 + 1)
    assert runner.phases() == (0, 0, dict.fromkeys(runner.phases()[2], 0))
    assert runner.info.system_fingerprint == random_runner("m", shape, config).info.system_fingerprint


def test_rows_that_fill_no_blocks_are_refused() -> None:
    with pytest.raises(ModelFileError, match="72 columns"):
        random_plan("m", tiny_shape(), "int8")


def test_every_sequence_of_a_batch_has_its_own_blocks() -> None:
    work = Workload(prompt_tokens=20, output_tokens=2, context=31, batches=(1, 3), chunk_tokens=16, repeat=2)
    assert work.longest == 33
    assert work.num_blocks(16) == 9
    assert work.num_blocks(64) == 3


def test_operations_are_two_a_weight_and_token() -> None:
    shape = SHAPES["llama-1.4b"]
    table = shape.vocab_size * shape.hidden_size
    norms = (2 * shape.num_layers + 1) * shape.hidden_size
    assert matmul_ops(shape, num_tokens=1) == 2 * (parameters(shape) - norms)
    assert matmul_ops(shape, num_tokens=10) == 2 * (10 * (parameters(shape) - norms - table) + table)


def test_a_step_reads_its_own_experts_and_no_table_of_embeddings() -> None:
    shape = SHAPES["qwen3-30b-a3b"]
    read = read_once(shape)
    assert (read.tied_embeddings, read.num_experts) == (True, 8)
    assert matmul_ops(read, num_tokens=1) < matmul_ops(shape, num_tokens=1)  # by the router alone
    assert read_once(SHAPES["llama-1.4b"]) == SHAPES["llama-1.4b"]


def test_windows_bound_the_keys_and_values_that_are_read() -> None:
    assert kv_tokens(SHAPES["llama-1.4b"], context=3000) == 3000
    assert kv_tokens(SHAPES["phi-3-mini"], context=3000) == 2047
    assert math.isclose(kv_tokens(SHAPES["gemma-3-1b"], context=3000), (22 * 512 + 4 * 3000) / 26)
