"""Which runtime formats a model's weights get: what "auto" means, which group size goes with what, how many bytes it takes.

It knows no kernel: the native core is asked for sizes.
"""

from collections.abc import Iterable
from typing import Literal

from msgspec import structs

from headway import _native
from headway.core.config import EngineConfig, WeightFormat
from headway.core.errors import ConfigError
from headway.core.plan import TensorRef, TensorType

GroupSize = Literal[32, 64, 128]

DEFAULT_GROUP_SIZE: GroupSize = 32
"""Values per scale in int8 (docs/log.md has accuracy and speed of the others)."""

MATRIX_ROLES = frozenset(
    (
        "token_embedding",
        "output",
        "query",
        "key",
        "value",
        "attention_output",
        "ffn_gate",
        "ffn_up",
        "ffn_down",
    )
)
"""Roles of tensors that are packed; all others stay float32."""

_FLOATS = frozenset((TensorType.F32, TensorType.F16, TensorType.BF16))


def resolve_formats(config: EngineConfig, tensors: Iterable[TensorRef]) -> EngineConfig:
    """Return the settings with weights and group size as these tensors get them; resolved ones stay as they are.

    Raises ConfigError for a group size or activations that do not go with the weights.
    """
    weights = resolve_weights(config.weights, tensors)
    group_size = resolve_group_size(weights, config.group_size)
    if config.activations != "f32" and weights != "bf16":
        raise ConfigError(
            f'activations "{config.activations}" go with weights bf16 alone, not {weights}; leave them out or choose '
            "weights bf16."
        )
    return structs.replace(config, weights=weights, group_size=group_size)


def resolve_weights(weights: WeightFormat, tensors: Iterable[TensorRef]) -> WeightFormat:
    """Return what "auto" means for these tensors: it keeps what the file has.

    A file of floats is run in bf16. In a file with quantised matrices those of 4 bits stay what they are, and all others
    become int8 (the native core's own "auto").
    """
    if weights != "auto":
        return weights
    types = {tensor.type for tensor in tensors if tensor.role in MATRIX_ROLES}
    return "bf16" if types <= _FLOATS else "auto"


def resolve_group_size(weights: WeightFormat, group_size: GroupSize | None) -> GroupSize:
    """Return the values per scale; raises ConfigError for a size that the format does not have."""
    if weights == "int8":
        return group_size or DEFAULT_GROUP_SIZE
    if group_size not in (None, DEFAULT_GROUP_SIZE):
        raise ConfigError(
            f"The group size {group_size} goes with weights int8 alone, not {weights}; leave it out or choose weights int8."
        )
    return DEFAULT_GROUP_SIZE


def packed_bytes(tensors: Iterable[TensorRef], weights: WeightFormat, group_size: GroupSize) -> int:
    """Return the bytes of these tensors' matrices in memory. Raises ValueError for a size that no matrix has."""
    return sum(
        _native.packed_bytes(
            weights=weights,
            group_size=group_size,
            tensor_type=tensor.type,
            rows=tensor.rows,
            columns=tensor.columns,
        )
        for tensor in tensors
        if tensor.role in MATRIX_ROLES
    )
