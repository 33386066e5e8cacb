"""Loads a model: from a plan and a configuration to a runner that is ready.

Decides what "auto" means (and logs it) and makes the native core's parts. It knows no file format: the plan says where
tensors lie, `headway.runner.packing` reads them.
"""

import hashlib
import logging
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from headway import _native
from headway.core.config import EngineConfig
from headway.core.errors import ConfigError, ModelFileError
from headway.core.plan import ModelPlan, ModelShape, Rope
from headway.core.version import __version__
from headway.runner.formats import DEFAULT_GROUP_SIZE, packed_bytes, resolve_formats
from headway.runner.machine import available_memory_bytes, available_threads, size_text
from headway.runner.native_runner import NativeRunner
from headway.runner.packing import pack_tensors
from headway.runner.step import RunnerInfo

_log = logging.getLogger(__name__)

AUTO_KV_SHARE = 0.25
"""Of the memory available: leaves room for the weights' page cache, the gateway and the machine's other work."""

PackModel = Callable[[_native.Model, ModelPlan], str]
"""Loads every tensor of a plan into a model, finishes it and returns what tells its weights from others."""

_MAX_THREADS = 1024
"""The native core's limit."""


def load_runner(
    plan: ModelPlan,
    config: EngineConfig,
    pack: PackModel = pack_tensors,
) -> NativeRunner:
    """Pack the plan's tensors and return a runner with an empty KV cache. `pack` does it.

    Raises ConfigError (a setting that this machine or model cannot meet), ModelFileError (tensors missing, truncated or
    of another shape), OSError (a file cannot be read).
    """
    wanted_context = _wanted_context(plan.shape, config.max_context)
    shape = _rotated_for(plan.shape, wanted_context)
    config = resolve_formats(config, plan.tensors)
    num_cpus = available_threads()
    threads = num_cpus if config.threads is None else config.threads
    model = _make_model(shape, config, max_context=wanted_context, threads=threads)
    _check_weights_fit(_packed_bytes(plan, config), config)
    identity = pack(model, plan)
    cache = _make_cache(model, config, wanted_context)
    max_context = wanted_context
    if config.max_context is None:  # what fits
        max_context = min(wanted_context, cache.num_blocks * config.block_size)
    fingerprint = system_fingerprint(identity, config, isa=model.isa, ropes=shape.ropes)
    _log.info(
        "model ready: %s, isa %s%s, threads %d%s, weights %s %.1f MiB, kv %s %d blocks of %.1f KiB (%.1f MiB)%s, "
        "context %d%s of %d, fingerprint %s",
        plan.path.name,
        model.isa,
        " (auto)" if config.isa == "auto" else "",
        threads,
        " (auto)" if config.threads is None else "",
        config.weights,
        model.weight_bytes / 2**20,
        config.kv,
        cache.num_blocks,
        cache.block_bytes / 2**10,
        cache.num_blocks * cache.block_bytes / 2**20,
        " (auto)" if config.kv_bytes is None else "",
        max_context,
        " (auto)" if config.max_context is None else "",
        plan.shape.max_context,
        fingerprint,
    )
    if threads > num_cpus:
        _log.warning("%d threads are slower than as many as this process has CPUs: %d", threads, num_cpus)
    if max_context < wanted_context:
        _log.warning(
            "the context is %d tokens instead of %d: more do not fit into the memory for the KV cache",
            max_context,
            wanted_context,
        )
    elif config.max_context is None and wanted_context < plan.shape.max_context:
        _log.info(
            "the context is the original %d tokens; up to %d may be asked for, for which all positions rotate differently",
            wanted_context,
            plan.shape.max_context,
        )
    info = RunnerInfo(
        vocab_size=shape.vocab_size,
        max_context=max_context,
        num_blocks=cache.num_blocks,
        block_size=config.block_size,
        system_fingerprint=fingerprint,
    )
    return NativeRunner(cache, info)


def system_fingerprint(identity: str, config: EngineConfig, *, isa: str, ropes: tuple[Rope, ...]) -> str:
    """Name everything that decides the bits of an answer: model, rotations, formats, instruction set, version."""
    parts = (
        identity,
        repr(ropes),
        config.weights,
        config.activations if config.weights == "bf16" else str(config.group_size),
        config.kv,
        isa,
        f"{__version__}/{_native.NUMERICS_VERSION}",
    )
    return "hw_" + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def auto_num_blocks(
    *, max_num_seqs: int, blocks_per_context: int, min_blocks: int, block_bytes: int, available_bytes: int
) -> int:
    """Blocks of an automatic KV cache: full contexts for all sequences, at most a quarter of the memory available, and
    never less than `min_blocks`."""
    affordable = int(available_bytes * AUTO_KV_SHARE) // block_bytes
    return max(min_blocks, min(max_num_seqs * blocks_per_context, affordable))


def _wanted_context(shape: ModelShape, wanted: int | None) -> int:
    if wanted is None:  # a long one has to be asked for: short texts are answered worse with its rotations
        long = shape.long_context
        return shape.max_context if long is None else min(long.original_context, shape.max_context)
    if not 1 <= wanted <= shape.max_context:
        raise ConfigError(
            f"The context must lie in 1 .. {shape.max_context} tokens, what the model was trained for; {wanted} does not."
        )
    return wanted


def _rotated_for(shape: ModelShape, max_context: int) -> ModelShape:
    """The shape with the rotations that every position of so long a context takes (LongRoPE)."""
    long = shape.long_context
    if long is None or max_context <= long.original_context:
        return shape
    return replace(shape, ropes=long.ropes)


def shape_arguments(shape: ModelShape, *, max_context: int) -> dict[str, Any]:
    """Return a shape as the native core takes it (`_native.Model`)."""
    kept = {field.name: getattr(shape, field.name) for field in fields(shape)}
    for name in ("architecture", "long_context"):  # decided before
        del kept[name]
    ropes = [(rope.dim, rope.interleaved, rope.frequencies, rope.scale) for rope in shape.ropes]
    layers = [(layer.rope, layer.window) for layer in shape.layers]
    return kept | {"ropes": ropes, "layers": layers, "max_context": max_context}


def _make_model(shape: ModelShape, config: EngineConfig, *, max_context: int, threads: int) -> _native.Model:
    isas = _native.available_isas()
    if config.isa not in ("auto", *isas):
        raise ConfigError(f'isa is "{config.isa}"; this processor runs {", ".join(isas)}. Use "auto".')
    isa = isas[-1] if config.isa == "auto" else config.isa
    if config.weights == config.activations == "bf16" and isa != "avx512bf16":
        raise ConfigError(
            f'activations "bf16" need the instruction set "avx512bf16"; "{isa}" has no such products: use "f32".'
        )
    if not 1 <= threads <= _MAX_THREADS:
        raise ConfigError(f"threads must lie in 1 .. {_MAX_THREADS}, not be {threads}.")
    try:
        return _native.Model(
            **shape_arguments(shape, max_context=max_context),
            weights=config.weights,
            group_size=config.group_size or DEFAULT_GROUP_SIZE,
            activations=config.activations,
            isa=config.isa,
            threads=threads,
        )
    except ValueError as error:
        raise ModelFileError(f"This model cannot be run: {error}") from error
    except (MemoryError, RuntimeError) as error:  # of the machine: no address space, no threads
        raise ConfigError(
            f"This machine has no room for the model and {threads} threads: {error}."
        ) from error


def _packed_bytes(plan: ModelPlan, config: EngineConfig) -> int:
    try:
        return packed_bytes(plan.tensors, config.weights, config.group_size or DEFAULT_GROUP_SIZE)
    except ValueError as error:
        raise ModelFileError(f"{plan.path.name}: {error}") from error


def _check_weights_fit(num_bytes: int, config: EngineConfig) -> None:
    """Refuse now what would otherwise end with the kernel killing the process: nothing is written yet."""
    available_bytes = available_memory_bytes()
    if num_bytes > available_bytes:
        hint = ' or weights "int8"' if config.weights == "bf16" else ""
        raise ConfigError(
            f"The weights take {size_text(num_bytes)} as {config.weights}; {size_text(available_bytes)} of memory are "
            f"available. Use a smaller model{hint}."
        )


def _check_context_fits(max_context: int, num_bytes: int, config: EngineConfig) -> None:
    given = config.kv_bytes
    available_bytes = available_memory_bytes() if given is None else given
    if num_bytes > available_bytes:
        hint = "" if config.kv == "int8" else ' or a KV cache in "int8"'
        raise ConfigError(
            f"The context of {max_context} tokens takes {size_text(num_bytes)} of KV cache as {config.kv}; "
            f"{size_text(available_bytes)} {'of memory are available' if given is None else 'were given'}. "
            f"Use a shorter context{hint}."
        )


def _make_cache(model: _native.Model, config: EngineConfig, max_context: int) -> _native.KvCache:
    def make(num_blocks: int) -> _native.KvCache:
        return _native.KvCache(model, num_blocks=num_blocks, block_size=config.block_size, dtype=config.kv)

    try:
        block_bytes = make(1).block_bytes
        blocks_per_context = -(-max_context // config.block_size)
        if config.max_context is not None:
            _check_context_fits(max_context, blocks_per_context * block_bytes, config)
        if config.kv_bytes is None:
            return make(
                auto_num_blocks(
                    max_num_seqs=config.scheduler.max_num_seqs,
                    blocks_per_context=blocks_per_context,
                    min_blocks=1 if config.max_context is None else blocks_per_context,
                    block_bytes=block_bytes,
                    available_bytes=available_memory_bytes(),
                )
            )
        if config.kv_bytes < block_bytes:
            raise ConfigError(
                f"The KV cache needs at least {block_bytes} bytes, one block of this model; {config.kv_bytes} are too few."
            )
        if config.kv_bytes > available_memory_bytes():
            raise ConfigError(
                f"The KV cache would take {config.kv_bytes} bytes; only {available_memory_bytes()} are available."
            )
        return make(config.kv_bytes // block_bytes)
    except (ValueError, MemoryError) as error:
        raise ConfigError(f"The KV cache cannot be made: {error}") from error
