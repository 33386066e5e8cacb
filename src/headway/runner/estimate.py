"""How much memory a model would take, before anything of it is loaded.

The native core is asked, so that no format is known twice: for a model of one layer and for one of two. All that it
packs grows by the same for every further layer, and one layer fits where a whole model would not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from headway import _native
from headway.core.config import KvFormat, WeightFormat
from headway.core.errors import ModelFileError
from headway.core.plan import ModelShape, TensorRef
from headway.runner.formats import GroupSize, packed_bytes, resolve_group_size, resolve_weights
from headway.runner.native import shape_arguments

_BLOCK_TOKENS = 16  # any: a block's bytes are proportional to it


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeeds:
    """Bytes of the weights by runtime format, and of one token in the KV cache by its format.

    Without the tensors of a file there is no "auto", and "int4" is the most it may take.
    """

    weight_bytes: Mapping[WeightFormat, int]
    kv_token_bytes: Mapping[KvFormat, int]


def memory_needs(
    shape: ModelShape, *, group_size: GroupSize | None, tensors: Sequence[TensorRef] = ()
) -> MemoryNeeds:
    """Return what a model of this shape takes, with `tensors` or of any; `group_size` as in EngineConfig.

    Raises ModelFileError if the native core cannot run it.
    """
    try:
        weights: dict[WeightFormat, int] = {}
        # What is no matrix, routers, is the same in every format.
        others = _linear(shape, "bf16", 32) - packed_bytes(tensors, "bf16", 32) if tensors else 0
        for kind in get_args(WeightFormat):
            group = resolve_group_size(kind, group_size if kind == "int8" else None)
            if tensors:
                resolved = resolve_weights(kind, tensors)
                weights[kind] = packed_bytes(tensors, resolved, group) + others
            elif kind != "auto":
                weights[kind] = _linear(shape, kind, group)
        cut = _model(shape, 1, "bf16", 32)
        kv = {
            kind: _native.KvCache(cut, num_blocks=1, block_size=_BLOCK_TOKENS, dtype=kind).block_bytes
            * shape.num_layers
            // _BLOCK_TOKENS
            for kind in get_args(KvFormat)
        }
    except (ValueError, MemoryError) as error:
        raise ModelFileError(f"This model cannot be run: {error}") from error
    return MemoryNeeds(weight_bytes=weights, kv_token_bytes=kv)


def _linear(shape: ModelShape, weights: str, group_size: int) -> int:
    one = _model(shape, 1, weights, group_size).weight_bytes
    if shape.num_layers == 1:
        return one
    return one + (_model(shape, 2, weights, group_size).weight_bytes - one) * (shape.num_layers - 1)


def _model(shape: ModelShape, num_layers: int, weights: str, group_size: int) -> _native.Model:
    cut = replace(shape, num_layers=num_layers, layers=shape.layers[:num_layers])
    return _native.Model(
        **shape_arguments(cut, max_context=shape.max_context),
        weights=weights,
        group_size=group_size,
        isa="auto",
        threads=1,
    )
