"""How queries and keys rotate, from a GGUF header: base, method of scaling, factors.

The method is named by rope.scaling.type ("linear" if it is not), its parameters by other keys; Llama 3.1's scaling and
LongRoPE come as tensors of factors that divide the frequencies. Meaning and defaults: llama.cpp (src/llama-model.cpp,
src/llama-context.cpp, ggml's rope_yarn), except that the betas of YaRN count for every architecture.
"""

import math
import struct
from typing import Final

from headway.core.plan import LongContext, Rope, TensorType
from headway.models.architecture_table import Architecture
from headway.models.gguf_keys import Keys
from headway.models.limits import MAX_HEAD_DIM, MAX_ROPE_FACTOR, MAX_ROPE_THETA
from headway.models.quote import quoted
from headway.models.rope import (
    float32,
    linear_frequencies,
    longrope_frequencies,
    plain_frequencies,
    yarn_frequencies,
    yarn_scale,
)

_LLAMA3, _LONG, _SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"
ROTATION_TENSORS: Final = frozenset({_LLAMA3, _LONG, _SHORT})
"""No weights: `read_ropes` has used them, or refused the file."""


def read_ropes(
    keys: Keys, row: Architecture, *, head_dim: int, max_context: int, local: bool
) -> tuple[tuple[Rope, ...], LongContext | None]:
    """Return the rotation of global layers and, where an architecture has another for `local` ones, that as well."""
    if head_dim > MAX_HEAD_DIM:
        keys.fail(f"heads of {head_dim} dimensions are not supported, at most {MAX_HEAD_DIM}")
    dim = keys.size("rope.dimension_count", head_dim)
    if dim > head_dim or dim % 2:
        keys.fail(f"rope.dimension_count {dim} is odd or exceeds the head's {head_dim} dimensions")
    theta = _theta(keys, "rope.freq_base", row.gguf_theta)
    whole, long_context = _scaled(keys, row, dim, theta, max_context)
    if row.local_theta is None:
        if "rope.freq_base_swa" in keys and _theta(keys, "rope.freq_base_swa", theta) != theta:
            keys.fail(
                f"{keys.name('rope.freq_base_swa')} differs from rope.freq_base, which is not supported"
            )
        return (whole,), long_context
    if not local:
        return (whole,), long_context
    if long_context is not None:
        keys.fail("longrope beside local layers is not supported")
    frequencies = plain_frequencies(dim, _theta(keys, "rope.freq_base_swa", row.local_theta))
    return (whole, Rope(dim=dim, interleaved=row.gguf_interleaved, frequencies=frequencies)), None


def _scaled(
    keys: Keys, row: Architecture, dim: int, theta: float, max_context: int
) -> tuple[Rope, LongContext | None]:
    """Return the rotation, and what replaces it beyond the original context."""

    def rope(frequencies: tuple[float, ...], scale: float = 1.0) -> Rope:
        return Rope(dim=dim, interleaved=row.gguf_interleaved, frequencies=frequencies, scale=scale)

    kind = keys.text("rope.scaling.type", "linear")
    factor = keys.number("rope.scaling.factor", keys.number("rope.scale_linear", 0.0)) or 1.0
    if not (math.isfinite(factor) and 1 / MAX_ROPE_FACTOR <= factor <= MAX_ROPE_FACTOR):
        keys.fail(f"{keys.name('rope.scaling.factor')} is {factor}, out of range")
    attention = keys.positive("rope.scaling.attn_factor", 1.0, maximum=MAX_ROPE_FACTOR)
    original = keys.size("rope.scaling.original_context_length", max_context)
    present = ROTATION_TENSORS & keys.file.tensors.keys()
    if kind == "yarn":
        if attention != 1 or present:
            keys.fail("yarn with an attn_factor or with tensors of factors is not supported")
        return rope(_yarn(keys, dim, theta, factor, original), yarn_scale(factor)), None
    if kind == "longrope" or present - {_LLAMA3}:
        # The converter of phi3 names no type; llama.cpp takes its factors whatever the type is.
        if present != {_LONG, _SHORT} or factor != 1 or (kind != "longrope" and row.name != "phi3"):
            keys.fail(
                "longrope is supported with rope_factors_long and rope_factors_short, and without rope.scaling.factor"
            )
        if "rope.scaling.attn_factor" not in keys and original < max_context:
            keys.fail(
                f"{keys.name('rope.scaling.attn_factor')} is missing, and readers differ in what that means"
            )
        short, long = (
            longrope_frequencies(dim, theta, _factors(keys, name, dim)) for name in (_SHORT, _LONG)
        )
        beyond = LongContext(original_context=original, ropes=(rope(long, attention),))
        return rope(short, attention), beyond if original < max_context else None
    if kind not in ("none", "linear"):
        keys.fail(
            f"{keys.name('rope.scaling.type')} is {quoted(kind)}, which is not supported "
            "(supported: none, linear, yarn, longrope)"
        )
    frequencies = linear_frequencies(dim, theta, factor if kind == "linear" else 1.0)
    if _LLAMA3 in present:
        if row.name != "llama":
            keys.fail(f"the tensor {_LLAMA3} is not supported in {row.name}, it would change the output")
        pairs = zip(frequencies, _factors(keys, _LLAMA3, dim), strict=True)
        frequencies = tuple(float32(frequency / divisor) for frequency, divisor in pairs)
    return rope(frequencies, attention), None


def _yarn(keys: Keys, dim: int, theta: float, factor: float, original: int) -> tuple[float, ...]:
    return yarn_frequencies(
        dim,
        theta,
        factor=factor,
        original_context=original,
        beta_fast=keys.positive("rope.scaling.yarn_beta_fast", 32.0, maximum=MAX_ROPE_FACTOR),
        beta_slow=keys.positive("rope.scaling.yarn_beta_slow", 1.0, maximum=MAX_ROPE_FACTOR),
    )


def _theta(keys: Keys, name: str, default: float | None) -> float:
    theta = keys.number(name, default)
    if not 1 < theta <= MAX_ROPE_THETA:
        keys.fail(f"{keys.name(name)} is {theta}, but must be above 1 and at most {MAX_ROPE_THETA:.0e}")
    return theta


def _factors(keys: Keys, name: str, dim: int) -> tuple[float, ...]:
    """Read a tensor of `dim` / 2 factors."""
    tensor = keys.file.tensors[name]
    if tensor.type is not TensorType.F32 or tensor.dims != (dim // 2,):
        keys.fail(
            f"the tensor {name} has {tensor.type.name} and shape {tensor.dims} instead of F32 and {(dim // 2,)}"
        )
    try:
        with keys.file.files[tensor.file].open("rb") as stream:
            stream.seek(tensor.offset)
            data = stream.read(tensor.num_bytes)
    except OSError as error:
        keys.fail(f"cannot be read ({error.strerror or error})")
    if len(data) < tensor.num_bytes:
        keys.fail(f"the file ends within the tensor {name}")
    factors = struct.unpack(f"<{dim // 2}f", data)
    if not all(
        math.isfinite(factor) and 1 / MAX_ROPE_FACTOR <= factor <= MAX_ROPE_FACTOR for factor in factors
    ):
        keys.fail(f"the tensor {name} holds a factor that is out of range")
    return factors
