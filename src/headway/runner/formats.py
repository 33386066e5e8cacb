"""Which runtime formats a model's weights get: what "auto" means, which group size goes with what, how many bytes it takes.

It knows no kernel: the native core is asked for sizes.
"""

from collections.abc import Iterable
from typing import Literal

from headway import _native
from headway.core.config import WeightFormat
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
    if weights in ("int8", "bf16"):
        return group_size or DEFAULT_GROUP_SIZE
    if group_size not in (None, 32):
        raise ConfigError(f"weights {weights} have groups of 32, not {group_size}; leave the group size out.")
    return 32


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
