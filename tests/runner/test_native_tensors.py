"""Which shapes, settings, tensors and caches the native core refuses, in words; how tensors reach it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headway import _native
from headway.core.plan import LayerShape, TensorType
from support.tiny_llama import Part, empty_model, make_model, make_runner, make_step
from support.tiny_shapes import BIASED, random_tensors, tiny_rope, tiny_shape

pytestmark = pytest.mark.native

SHAPE = tiny_shape()
STEP = make_step([Part([1, 2, 3], 0, [4], [2]), Part([5, 6], 17, [7, 8], [0, 1])])


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
        ({"block_size": 0}, "multiple of 16"),
        ({"block_size": 24}, "multiple of 16"),
        ({"block_size": 16 * (SHAPE.max_context // 16 + 2)}, "multiple of 16"),
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
        ({"hidden_size": 2**24, "vocab_size": 2**24}, "would exceed 64 TiB"),
        (
            {"hidden_size": 2**24, "ffn_size": 2**24, "num_experts": 1024, "num_experts_per_token": 1},
            "64 TiB",
        ),
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


@pytest.mark.parametrize("weights", ["bf16", "int8"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.parametrize(
    "role", ["token_embedding", "output_norm", "query", "query_bias", "router", "ffn_down"]
)
def test_a_tensor_with_a_value_that_no_model_has_is_refused(role: str, value: float, weights: str) -> None:
    tensors = dict(random_tensors(BIASED))
    layer = 1 if (role, 1) in tensors else None
    tensors[role, layer] = tensors[role, layer].copy()
    tensors[role, layer].flat[-1] = value
    with pytest.raises(ValueError, match=rf"Tensor {role}.* holds values that are not numbers"):
        make_model(BIASED, tensors, weights=weights, isa="auto")


def test_rows_come_in_whole_tiles_and_in_order() -> None:
    tensors = random_tensors(SHAPE)
    whole = make_runner(make_model(SHAPE, tensors, weights="int8", isa="auto"), SHAPE).forward(STEP)
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
    assert make_runner(model, SHAPE).forward(STEP) == whole


def test_a_tensor_that_ends_early_is_named() -> None:
    tensors = dict(random_tensors(SHAPE))
    tensors["ffn_down", 1] = tensors["ffn_down", 1][:32]
    with pytest.raises(ValueError, match="ffn_down of layer 1 ends after row 32"):
        make_model(SHAPE, tensors, weights="int8", isa="auto")


def test_what_is_added_to_a_vector_is_added_once() -> None:
    tensors = dict(random_tensors(SHAPE))
    whole = make_runner(make_model(SHAPE, tensors, weights="bf16", isa="auto"), SHAPE).forward(STEP)
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
    logits = make_runner(model, SHAPE).forward(STEP)
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
