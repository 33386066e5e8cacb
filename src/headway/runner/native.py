"""Loads a model: from a plan and a configuration to a runner that is ready.

Decides what "auto" means (and logs it), maps the file, hands every tensor to the native core to be packed, and lets the
file go. It knows no file format: the plan says where tensors lie.
"""

import hashlib
import logging
import mmap
import os
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any

from headway import _native
from headway.core.config import EngineConfig
from headway.core.errors import ConfigError, ModelFileError
from headway.core.plan import ModelPlan, ModelShape
from headway.core.version import __version__
from headway.runner.native_runner import NativeRunner
from headway.runner.step import RunnerInfo

__all__ = [
    "NativeRunner",
    "auto_num_blocks",
    "auto_threads",
    "available_memory_bytes",
    "group_available_bytes",
    "load_runner",
    "shape_arguments",
    "system_fingerprint",
]

_log = logging.getLogger(__name__)

_AUTO_KV_SHARE = 0.25
"""Of the memory available: leaves room for the weights' page cache, the gateway and the machine's other work."""

_MAX_THREADS = 1024
"""The native core's limit."""

_CGROUP = Path("/sys/fs/cgroup")

_IDENTITY_SAMPLE_BYTES = 4096
"""Of each tensor, when the file's digest is not known: a page, which loading reads anyway."""


def load_runner(plan: ModelPlan, config: EngineConfig) -> NativeRunner:
    """Pack the plan's tensors and return a runner with an empty KV cache.

    Raises ConfigError (a setting that this machine or model cannot meet), ModelFileError (tensors missing, truncated or
    of another shape), OSError (the file cannot be read).
    """
    max_context = _resolve_max_context(plan.shape, config.max_context)
    threads = _resolve_threads(config.threads)
    model = _make_model(plan.shape, config, max_context=max_context, threads=threads)
    _check_weights_fit(model.weight_bytes, config)
    with ExitStack() as stack:
        files = [stack.enter_context(_map_file(path)) for path in plan.files]
        _load_tensors(model, plan, files)
        identity = plan.file_sha256 or _sampled_identity(plan, files)
    cache = _make_cache(model, config, max_context)
    fingerprint = system_fingerprint(identity, config, isa=model.isa)
    _log.info(
        "model ready: %s, isa %s%s, threads %d%s, weights %s %.1f MiB, kv %s %d blocks of %.1f KiB (%.1f MiB)%s, "
        "context %d, fingerprint %s",
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
        fingerprint,
    )
    info = RunnerInfo(
        vocab_size=plan.shape.vocab_size,
        max_context=max_context,
        num_blocks=cache.num_blocks,
        block_size=config.block_size,
        system_fingerprint=fingerprint,
    )
    return NativeRunner(cache, info)


def system_fingerprint(identity: str, config: EngineConfig, *, isa: str) -> str:
    """Name everything that decides the bits of an answer: model, formats, instruction set, version."""
    parts = (
        identity,
        config.weights,
        str(config.group_size) if config.weights == "int8" else "-",
        config.kv,
        isa,
        f"{__version__}/{_native.NUMERICS_VERSION}",
    )
    return "hw_" + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def auto_num_blocks(
    *, max_num_seqs: int, blocks_per_context: int, block_bytes: int, available_bytes: int
) -> int:
    """Blocks of an automatic KV cache: full contexts for all sequences, at most a quarter of the memory available, and
    never less than one full context."""
    affordable = int(available_bytes * _AUTO_KV_SHARE) // block_bytes
    return max(blocks_per_context, min(max_num_seqs * blocks_per_context, affordable))


def available_memory_bytes() -> int:
    """Memory that this process may still take: the machine's, or its control group's where that is less."""
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in _read_lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
    return min(available, group_available_bytes(_CGROUP, available))


def group_available_bytes(group: Path, otherwise: int) -> int:
    """What a control group's limit leaves, or `otherwise` without one.

    The group is charged for the files it read, too, a model among them; the kernel takes their pages back when memory is
    asked for (cgroup-v2.rst, memory.stat).
    """
    limit, used = (_read_lines(group / name) for name in ("memory.max", "memory.current"))
    if not (limit and used and limit[0].isdigit()):
        return otherwise
    stat = dict(line.split(maxsplit=1) for line in _read_lines(group / "memory.stat"))
    num_cached_bytes = sum(int(stat.get(name, 0)) for name in ("active_file", "inactive_file"))
    return max(0, int(limit[0]) - max(0, int(used[0]) - num_cached_bytes))


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _resolve_max_context(shape: ModelShape, wanted: int | None) -> int:
    if wanted is None:
        return shape.max_context
    if not 1 <= wanted <= shape.max_context:
        raise ConfigError(
            f"The context must lie in 1 .. {shape.max_context} tokens, what the model was trained for; {wanted} does not."
        )
    return wanted


def _resolve_threads(wanted: int | None) -> int:
    if wanted is not None:
        return wanted
    quota = _read_lines(_CGROUP / "cpu.max")  # "quota period" in microseconds, or "max period"
    return auto_threads(len(os.sched_getaffinity(0)), quota[0] if quota else "max 100000")


def auto_threads(num_cpus: int, quota: str) -> int:
    """Threads for the CPUs this process may use, no more than its control group's quota pays for."""
    limit, _, period = quota.partition(" ")
    if not (limit.isdigit() and period.isdigit() and int(period) > 0):
        return num_cpus
    return max(1, min(num_cpus, int(limit) // int(period)))


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
    if not 1 <= threads <= _MAX_THREADS:
        raise ConfigError(f"threads must lie in 1 .. {_MAX_THREADS}, not be {threads}.")
    try:
        return _native.Model(
            **shape_arguments(shape, max_context=max_context),
            weights=config.weights,
            group_size=config.group_size,
            isa=config.isa,
            threads=threads,
        )
    except ValueError as error:
        raise ModelFileError(f"This model cannot be run: {error}") from error
    except (MemoryError, RuntimeError) as error:  # of the machine: no address space, no threads
        raise ConfigError(
            f"This machine has no room for the model and {threads} threads: {error}."
        ) from error


def _check_weights_fit(num_bytes: int, config: EngineConfig) -> None:
    """Refuse now what would otherwise end with the kernel killing the process: nothing is written yet."""
    available_bytes = available_memory_bytes()
    if num_bytes > available_bytes:
        hint = "" if config.weights == "int8" else ' or weights "int8"'
        raise ConfigError(
            f"The weights take {num_bytes / 2**30:.1f} GiB as {config.weights}; {available_bytes / 2**30:.1f} GiB of memory"
            f" are available. Use a smaller model{hint}."
        )


def _map_file(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:  # cannot be mapped
            raise ModelFileError(f"{path.name} is empty; fetch the file again.")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _load_tensors(model: _native.Model, plan: ModelPlan, files: list[mmap.mmap]) -> None:
    for data in files:
        data.madvise(mmap.MADV_WILLNEED)
    for tensor in plan.tensors:
        name, data = plan.files[tensor.file].name, files[tensor.file]
        end = tensor.offset + tensor.num_bytes
        if tensor.offset < 0 or end > len(data):
            raise ModelFileError(f"{name} ends inside a tensor ({tensor.role}); fetch the file again.")
        try:
            with memoryview(data) as whole, whole[tensor.offset : end] as view:
                model.load(
                    role=tensor.role,
                    layer=tensor.layer,
                    expert=tensor.expert,
                    tensor_type=tensor.type,
                    rows=tensor.rows,
                    columns=tensor.columns,
                    data=view,
                    add=tensor.add,
                )
        except ValueError as error:
            raise ModelFileError(f"{name}: {error}") from error
    try:
        model.finish()
    except ValueError as error:
        raise ModelFileError(f"{plan.path.name}: {error}") from error


def _sampled_identity(plan: ModelPlan, files: list[mmap.mmap]) -> str:
    """Stand-in for the files' digest: their sizes, the plan, and the first bytes of every tensor."""
    sizes = " ".join(str(len(data)) for data in files)
    digest = hashlib.sha256(f"{sizes}\n{plan.shape}\n".encode())
    for tensor in plan.tensors:
        digest.update(f"{tensor}\n".encode())
        length = min(tensor.num_bytes, _IDENTITY_SAMPLE_BYTES)
        digest.update(files[tensor.file][tensor.offset : tensor.offset + length])
    return digest.hexdigest()


def _make_cache(model: _native.Model, config: EngineConfig, max_context: int) -> _native.KvCache:
    def make(num_blocks: int) -> _native.KvCache:
        return _native.KvCache(model, num_blocks=num_blocks, block_size=config.block_size, dtype=config.kv)

    try:
        block_bytes = make(1).block_bytes
        if config.kv_bytes is None:
            return make(
                auto_num_blocks(
                    max_num_seqs=config.scheduler.max_num_seqs,
                    blocks_per_context=-(-max_context // config.block_size),
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
