"""Runtime formats of weights, from a file to logits: what "auto" keeps, how near the others are, what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway import _native
from headway.core.errors import ConfigError
from headway.core.plan import ModelPlan, TensorType
from headway.models.architectures import open_plan
from headway.runner.formats import MATRIX_ROLES, resolve_weights
from headway.runner.native_runner import NativeRunner
from support.checkpoints import case_named, write_checkpoint
from support.mixed_gguf import MIXED_TYPES, load_with_model, write_mixed_gguf
from support.plan_forward import PlanForward
from support.tiny_gguf import write_tiny_gguf
from support.tiny_llama import Part, make_step

pytestmark = pytest.mark.native

NUM_TOKENS = 300  # two spans of attention
TOKENS = [(i * i * 7 + i * 31) % 320 for i in range(NUM_TOKENS)]
FOUR_BITS = {TensorType.Q4_0, TensorType.Q4_1, TensorType.Q4_K, TensorType.IQ4_NL}


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> ModelPlan:
    return write_mixed_gguf(tmp_path_factory.mktemp("mixed") / "mixed.gguf")


@pytest.fixture(scope="module")
def exact(plan: ModelPlan) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Logits of the file's values in double precision."""
    return PlanForward(plan).logits(TOKENS)


def logits(runner: NativeRunner, chunk: int = NUM_TOKENS, first_block: int = 0) -> bytes:
    """Logits of every position, computed `chunk` tokens a step."""
    blocks = range(first_block, first_block + 19)
    parts = b""
    for begin in range(0, NUM_TOKENS, chunk):
        part = TOKENS[begin : begin + chunk]
        parts += runner.forward(make_step([Part(part, begin, blocks, range(len(part)))]))
    return parts


def error_of(raw: bytes, exact: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """Root-mean-square error relative to the logits."""
    error = np.frombuffer(raw, np.float32).reshape(exact.shape) - exact
    return float(np.sqrt(np.mean(error**2) / np.mean(exact**2)))


def test_auto_keeps_what_a_quantised_file_has(plan: ModelPlan) -> None:
    model, _ = load_with_model(plan)
    num_bytes = 0
    for tensor in plan.tensors:
        if tensor.role not in MATRIX_ROLES:
            continue
        packed = _native.packed_bytes(
            weights="auto", group_size=32, tensor_type=tensor.type, rows=tensor.rows, columns=tensor.columns
        )
        bits = packed * 8 / (tensor.rows * tensor.columns)
        assert bits < (5.2 if tensor.type in FOUR_BITS else 8.7)
        num_bytes += packed
    assert model.weight_bytes == num_bytes
    assert {tensor.type for tensor in plan.tensors} >= set(MIXED_TYPES.values())


@pytest.mark.parametrize("isa", _native.available_isas())
def test_auto_loses_no_more_than_the_activations_of_int8(
    plan: ModelPlan, exact: np.ndarray[Any, np.dtype[np.float64]], isa: str
) -> None:
    errors = {
        weights: error_of(logits(load_with_model(plan, weights=weights, isa=isa)[1]), exact)
        for weights in ("auto", "bf16", "int8", "int4", "nf4")
    }
    assert errors["bf16"] < 0.02
    assert errors["auto"] < min(0.05, errors["int8"])  # which rounds weights, too
    assert errors["int8"] < 0.06
    assert errors["int8"] < errors["int4"] < 0.5  # keeps four of the eight matrices
    assert errors["int4"] < errors["nf4"] < 0.7  # keeps none


@pytest.mark.parametrize("group_size", [32, 64, 128])
def test_int8_comes_in_three_sizes_of_groups(
    plan: ModelPlan, exact: np.ndarray[Any, np.dtype[np.float64]], group_size: int
) -> None:
    model, runner = load_with_model(plan, weights="int8", group_size=group_size)
    assert error_of(logits(runner), exact) < 0.07
    for other in {32, 64, 128} - {group_size}:
        assert (
            load_with_model(plan, weights="int8", group_size=other)[0].weight_bytes < model.weight_bytes
        ) == (other > group_size)


@pytest.mark.parametrize("weights", ["auto", "int4", "nf4"])
@pytest.mark.parametrize("isa", _native.available_isas())
def test_chunks_threads_and_blocks_change_no_bit(plan: ModelPlan, weights: str, isa: str) -> None:
    whole = logits(load_with_model(plan, weights=weights, isa=isa)[1])
    runner = load_with_model(plan, weights=weights, isa=isa, threads=2)[1]
    assert logits(runner) == whole
    assert logits(runner, chunk=37, first_block=9) == whole
    assert logits(runner, chunk=1, first_block=3) == whole


@pytest.mark.parametrize("weights", ["auto", "int4", "nf4"])
@pytest.mark.parametrize("group_size", [64, 128])
def test_four_bits_have_groups_of_32(plan: ModelPlan, weights: str, group_size: int) -> None:
    with pytest.raises(
        ConfigError, match=f"group size {group_size} goes with weights int8 alone, not {weights}"
    ):
        load_with_model(plan, weights=weights, group_size=group_size)


@pytest.mark.parametrize("kind", [TensorType.F32, TensorType.F16, TensorType.BF16])
def test_auto_runs_a_file_of_floats_in_bf16(tmp_path: Path, kind: TensorType) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", tensor_type=kind)
    plan = open_plan(tmp_path / "m.gguf")
    assert resolve_weights("auto", plan.tensors) == "bf16"
    (model, auto), (same, bf16) = load_with_model(plan), load_with_model(plan, weights="bf16")
    assert model.weight_bytes == same.weight_bytes
    assert auto.info.system_fingerprint == bf16.info.system_fingerprint
    assert logits(auto) == logits(bf16)


def test_auto_runs_a_folder_of_floats_in_bf16(tmp_path: Path) -> None:
    plan = open_plan(write_checkpoint(tmp_path, case_named("llama"), "folder"))
    assert resolve_weights("auto", plan.tensors) == "bf16"
    assert load_with_model(plan)[0].weight_bytes == load_with_model(plan, weights="bf16")[0].weight_bytes


@pytest.mark.parametrize("isa", _native.available_isas())
def test_bf16_activations_are_close_where_there_are_such_products_and_refused_elsewhere(
    plan: ModelPlan, exact: np.ndarray[Any, np.dtype[np.float64]], isa: str
) -> None:
    if isa != "avx512bf16":
        with pytest.raises(ConfigError, match=f'activations "bf16" .*"{isa}" .*use "f32"'):
            load_with_model(plan, weights="bf16", activations="bf16", isa=isa)
        return
    f32, bf16 = (
        load_with_model(plan, weights="bf16", activations=activations, isa=isa)[1]
        for activations in ("f32", "bf16")
    )
    assert f32.info.system_fingerprint != bf16.info.system_fingerprint
    assert logits(bf16) != logits(f32)
    assert error_of(logits(bf16), exact) < 0.02
    assert logits(bf16, chunk=37, first_block=9) == logits(bf16)


def test_bf16_activations_are_refused_for_weights_that_never_meet_them(plan: ModelPlan) -> None:
    with pytest.raises(ConfigError, match="go with weights bf16 alone, not int8"):
        load_with_model(plan, weights="int8", activations="bf16")
