"""The estimate against the core itself: what it says is what a loaded model takes."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from headway import _native
from headway.core.config import WeightFormat
from headway.core.errors import ModelFileError
from headway.core.plan import ModelShape
from headway.models.architectures import open_plan
from headway.runner.estimate import memory_needs
from headway.runner.formats import GroupSize
from headway.runner.native import shape_arguments
from support.mixed_gguf import load_with_model, write_mixed_gguf
from support.tiny_gguf import write_tiny_gguf

pytestmark = pytest.mark.native


def shape(tmp_path: Path, layers: int) -> ModelShape:
    write_tiny_gguf(tmp_path / "m.gguf", layers=layers)
    return open_plan(tmp_path / "m.gguf").shape


@pytest.mark.parametrize("layers", [1, 2, 5])
@pytest.mark.parametrize("group_size", [32, 64, 128])
def test_the_estimate_is_exact(tmp_path: Path, layers: int, group_size: GroupSize) -> None:
    plan = shape(tmp_path, layers)
    needs = memory_needs(plan, group_size=group_size)
    for weights, num_bytes in needs.weight_bytes.items():
        model = _native.Model(
            **shape_arguments(plan, max_context=plan.max_context),
            weights=weights,
            group_size=group_size if weights == "int8" else 32,
            isa="auto",
            threads=1,
        )
        assert num_bytes == model.weight_bytes
        for kv, token_bytes in needs.kv_token_bytes.items():
            cache = _native.KvCache(model, num_blocks=1, block_size=16, dtype=kv)
            assert token_bytes * 16 == cache.block_bytes
    assert set(needs.weight_bytes) == {"bf16", "int8", "int4", "nf4"}
    assert set(needs.kv_token_bytes) == {"bf16", "int8"}


def test_with_the_tensors_of_a_file_the_estimate_is_what_loading_takes(tmp_path: Path) -> None:
    plan = write_mixed_gguf(tmp_path / "m.gguf")
    needs = memory_needs(plan.shape, group_size=None, tensors=plan.tensors)
    assert set(needs.weight_bytes) == set(get_args(WeightFormat))
    for weights, num_bytes in needs.weight_bytes.items():
        assert load_with_model(plan, weights=weights)[0].weight_bytes == num_bytes


def test_a_model_larger_than_the_machine_can_be_estimated(tmp_path: Path) -> None:
    plan = shape(tmp_path, 2)
    huge = replace(plan, num_layers=10**6, layers=plan.layers[:1] * 10**6)
    per_layer = memory_needs(plan, group_size=32).weight_bytes["bf16"]
    assert memory_needs(huge, group_size=32).weight_bytes["bf16"] > per_layer * 10**5


def test_a_shape_that_the_core_refuses_is_a_model_error(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="cannot be run"):
        memory_needs(replace(shape(tmp_path, 1), num_kv_heads=3), group_size=32)
