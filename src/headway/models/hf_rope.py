"""How queries and keys rotate, from a config.json: base, method of scaling, parameters, as `transformers` reads them.

Both layouts are read: `rope_theta` and `rope_scaling` of its fourth major version, `rope_parameters` of the fifth (per
type of layer where an architecture has two rotations). Parameters that the method does not have are refused by name.
"""

import math
from typing import Final

from headway.core.plan import LongContext, Rope
from headway.models.architecture_table import Architecture
from headway.models.hf_config import HfConfig
from headway.models.limits import MAX_HEAD_DIM, MAX_INT32, MAX_ROPE_FACTOR, MAX_ROPE_THETA
from headway.models.quote import quoted
from headway.models.rope import (
    linear_frequencies,
    llama3_frequencies,
    longrope_frequencies,
    longrope_scale,
    plain_frequencies,
    yarn_frequencies,
    yarn_scale,
)

_DEFAULT_THETA: Final = 10_000.0

_PARAMETERS: Final = {
    "default": (),
    # Dynamic NTK changes nothing up to max_position_embeddings, and no context is longer than that.
    "dynamic": ("factor",),
    "linear": ("factor",),
    "llama3": ("factor", "high_freq_factor", "low_freq_factor", "original_max_position_embeddings"),
    "longrope": (
        "attention_factor",
        "factor",
        "long_factor",
        "original_max_position_embeddings",
        "short_factor",
    ),
    "yarn": (
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "factor",
        "mscale",
        "mscale_all_dim",
        "original_max_position_embeddings",
        "truncate",
    ),
}
_ALWAYS: Final = ("finetuned", "partial_rotary_factor", "rope_theta", "rope_type", "type")


def read_ropes(
    config: HfConfig, row: Architecture, *, head_dim: int, max_context: int, local: bool
) -> tuple[tuple[Rope, ...], LongContext | None]:
    """Return the rotation of global layers and, where an architecture has another for `local` ones, that as well."""
    if head_dim > MAX_HEAD_DIM:
        config.fail(f"heads of {head_dim} dimensions are not supported, at most {MAX_HEAD_DIM}")
    written = _written(config)
    if row.local_theta is None:
        theta = _theta(config, "rope_theta", _DEFAULT_THETA)
        short, long = _rope(config, written, row, head_dim, max_context, theta)
        if long is None:
            return (short,), None
        original = _original_context(config, written, max_context)
        return (short,), LongContext(original_context=original, ropes=(long,))
    by_type = written if "rope_scaling" not in config else HfConfig(config.where, {}, path=written.path)
    by_type.refuse_unsupported({"full_attention", "sliding_attention"}, {})
    whole_parameters = written if "rope_scaling" in config else written.inner("full_attention")
    theta = _theta(config, "rope_theta", _DEFAULT_THETA)
    ropes = [_rope(config, whole_parameters, row, head_dim, max_context, theta)]
    if local:
        theta = _theta(config, "rope_local_base_freq", row.local_theta)
        ropes.append(_rope(config, by_type.inner("sliding_attention"), row, head_dim, max_context, theta))
    if any(long is not None for _, long in ropes):
        config.fail("longrope beside local layers is not supported")
    return tuple(short for short, _ in ropes), None


def longest_context(config: HfConfig, max_positions: int) -> int:
    """Return how long a context may be: `max_positions`, or what yarn stretches the original one to.

    Qwen's model cards tell to add yarn to config.json and leave max_position_embeddings as it is. The factor is the
    longest context divided by the original one (YaRN, arXiv 2309.00071, section 3).
    """
    written = _written(config)
    keys = ("factor", "original_max_position_embeddings")
    if written.get("rope_type") != "yarn" and written.get("type") != "yarn":
        return max_positions
    if not all(key in written for key in keys):
        return max_positions
    original = written.size(keys[1])
    factor = written.number(keys[0], above=1 / MAX_ROPE_FACTOR, maximum=MAX_ROPE_FACTOR)
    return min(max(max_positions, int(original * factor)), MAX_INT32)


def _written(config: HfConfig) -> HfConfig:
    """Return the object with the parameters, wherever it is."""
    old, new = config.inner("rope_scaling"), config.inner("rope_parameters")
    if old.values and new.values:
        config.fail("it has rope_scaling and rope_parameters, of which only one is supported")
    return old if old.values else new


def _rope(
    config: HfConfig,
    parameters: HfConfig,
    row: Architecture,
    head_dim: int,
    max_context: int,
    theta: float,
) -> tuple[Rope, Rope | None]:
    """Return the rotation, and what replaces it beyond the original context."""
    kind = parameters.text("rope_type", parameters.text("type", "default"))
    if row.name == "phi3" and kind in ("su", "yarn"):
        kind = "longrope"  # what it was called before it had that name
    if kind not in _PARAMETERS:
        parameters.fail(
            f"{parameters.path}rope_type is {quoted(kind)}, which is not supported (supported: {', '.join(_PARAMETERS)})"
        )
    parameters.refuse_unsupported((*_ALWAYS, *_PARAMETERS[kind]), {})
    theta = _theta(parameters, "rope_theta", theta)
    part = parameters.number(
        "partial_rotary_factor", config.number("partial_rotary_factor", 1.0, maximum=1.0), maximum=1.0
    )
    if part != 1 and not row.partial_rotation:
        parameters.fail(f"partial_rotary_factor is {part}, which is not supported in {row.name}")
    dim = int(head_dim * part)
    if dim < 2 or dim % 2:
        parameters.fail(f"{dim} of a head's {head_dim} dimensions rotate, which has to be an even number")

    def rope(frequencies: tuple[float, ...], scale: float = 1.0) -> Rope:
        return Rope(dim=dim, interleaved=False, frequencies=frequencies, scale=scale)

    def factor(default: float | None = None) -> float:
        return parameters.number("factor", default, above=1 / MAX_ROPE_FACTOR, maximum=MAX_ROPE_FACTOR)

    original = _original_context(config, parameters, max_context)
    match kind:
        case "linear":
            return rope(linear_frequencies(dim, theta, factor())), None
        case "llama3":
            return rope(_llama3(parameters, dim, theta, factor(), original)), None
        case "yarn":
            ratio = factor(max_context / original if "factor" in parameters.values else None)
            return rope(
                _yarn(parameters, row, dim, theta, ratio, original), _yarn_scale(parameters, ratio)
            ), None
        case "longrope":
            ratio = factor(max_context / original)
            scale = parameters.number(
                "attention_factor",
                longrope_scale(ratio, original) if original > 1 else None,
                maximum=MAX_ROPE_FACTOR,
            )
            short, long = (
                longrope_frequencies(
                    dim,
                    theta,
                    parameters.numbers(key, dim // 2, above=1 / MAX_ROPE_FACTOR, maximum=MAX_ROPE_FACTOR),
                )
                for key in ("short_factor", "long_factor")
            )
            return rope(short, scale), rope(long, scale) if original < max_context else None
    return rope(plain_frequencies(dim, theta)), None


def _llama3(parameters: HfConfig, dim: int, theta: float, factor: float, original: int) -> tuple[float, ...]:
    low = parameters.number("low_freq_factor", maximum=MAX_ROPE_FACTOR)
    high = parameters.number("high_freq_factor", above=low, maximum=MAX_ROPE_FACTOR)
    return llama3_frequencies(
        dim, theta, factor=factor, low_freq_factor=low, high_freq_factor=high, original_context=original
    )


def _yarn(
    parameters: HfConfig, row: Architecture, dim: int, theta: float, factor: float, original: int
) -> tuple[float, ...]:
    truncate = parameters.flag("truncate", True)
    if not truncate and row.local_theta is not None:
        parameters.fail(f"{parameters.path}truncate is False, which `transformers` does not heed")
    return yarn_frequencies(
        dim,
        theta,
        factor=factor,
        original_context=original,
        beta_fast=parameters.number("beta_fast", 32.0, maximum=MAX_ROPE_FACTOR),
        beta_slow=parameters.number("beta_slow", 1.0, maximum=MAX_ROPE_FACTOR),
        truncate=truncate,
    )


def _yarn_scale(parameters: HfConfig, factor: float) -> float:
    if "attention_factor" in parameters:
        return parameters.number("attention_factor", maximum=MAX_ROPE_FACTOR)
    scales = [
        parameters.number(key, 0.0, above=-math.inf, maximum=MAX_ROPE_FACTOR)
        for key in ("mscale", "mscale_all_dim")
    ]
    if not all(scales):
        return yarn_scale(factor)
    ratio = yarn_scale(factor, scales[0]) / (yarn_scale(factor, scales[1]) or math.inf)
    if not 0 < ratio <= MAX_ROPE_FACTOR:
        parameters.fail(
            f"{parameters.path}mscale {scales[0]} with mscale_all_dim {scales[1]} is out of range"
        )
    return ratio


def _original_context(config: HfConfig, parameters: HfConfig, max_context: int) -> int:
    """Return the context before scaling. `transformers` prefers what stands outside the parameters."""
    key = "original_max_position_embeddings"
    inside = parameters.size(key, max_context)
    outside = config.size(key, inside)
    if key in parameters and outside != inside:
        config.fail(f"{key} is {outside}, but {parameters.path}{key} is {inside}")
    return outside


def _theta(config: HfConfig, key: str, default: float) -> float:
    return config.number(key, default, above=1.0, maximum=MAX_ROPE_THETA)
