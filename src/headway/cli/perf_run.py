"""One run of `headway perf`: finds the model, checks that all of it fits, measures it and the machine by turns."""

import contextlib
import itertools
import math
import signal
import threading
from collections.abc import Iterator

from msgspec import structs

from headway.cli.model_source import find_model, is_random
from headway.cli.perf_result import PerfResult
from headway.core.config import EngineConfig
from headway.core.errors import ConfigError
from headway.core.plan import ModelShape
from headway.models.progress import stderr_progress
from headway.models.sources import cache_folder
from headway.runner.estimate import MemoryNeeds, memory_needs
from headway.runner.formats import resolve_formats
from headway.runner.machine import available_memory_bytes, size_text
from headway.runner.machine_limits import (
    READ_BYTES,
    LimitMeter,
    Limits,
    raise_record,
    read_record,
    record_key,
    with_record,
)
from headway.runner.measure import Workload, measure
from headway.runner.native_runner import NativeRunner
from headway.runner.roofline import read_once

_LEAST_LIMIT_RUNS = 5
_RECORD_FILE = "peaks.json"
_USE_LESS = "Use a smaller model or format, a smaller batch or a shorter context."


def measure_model(config: EngineConfig, workload: Workload, *, phases: bool) -> PerfResult:
    """Load the model that `config.model` names and measure it.

    Raises ConfigError (an unknown shape, no room for the work), and what fetching and loading a model raise.
    """
    if is_random(config.model) and config.weights == "auto":  # there is no file to keep the formats of
        config = structs.replace(config, weights="int8")
    source = find_model(config.model, config.weights)
    plan = source.plan
    _check_context(plan.shape, workload)
    config = resolve_formats(config, plan.tensors)
    needs = memory_needs(plan.shape, group_size=config.group_size, tensors=plan.tensors)
    config = _sized(config, workload, needs)
    step_bytes = _step_bytes(plan.shape, workload)
    _check_memory(config, step_bytes, needs)
    progress = stderr_progress()

    def note(line: str) -> None:
        if progress.interactive:
            progress.note(line)

    with _interrupt_ends(), _lack_of_memory_is_told():
        note(f"loading {config.model}")
        runner = source.load(config)
        # Neither the KV cache nor what a step computes has been written yet: both still count as available.
        spare_bytes = available_memory_bytes() - (config.kv_bytes or 0) - step_bytes
        slots_a_repeat = len(workload.batches) + 2
        runs_at_once = math.ceil(_LEAST_LIMIT_RUNS / (workload.repeat * slots_a_repeat))
        slots = itertools.count()

        def between() -> None:
            repeat, slot = divmod(next(slots), slots_a_repeat)
            if slot == 0:
                note(f"repeat {repeat + 1}/{workload.repeat}")
            for _ in range(runs_at_once):
                meter.run()

        meter = LimitMeter(
            isa=runner.model.isa,
            threads=runner.model.threads,
            num_bytes=min(READ_BYTES, max(0, spare_bytes) // 4 + 1),
        )
        note("warming up")
        measured = measure(runner, workload, phases=phases, between=between)
    return PerfResult(
        config=config,
        workload=workload,
        shape=plan.shape,
        isa=runner.model.isa,
        threads=runner.model.threads,
        weight_bytes=runner.model.weight_bytes,
        step_weight_bytes=_step_weight_bytes(plan.shape, runner),
        kv_token_bytes=needs.kv_token_bytes[config.kv],
        system_fingerprint=runner.info.system_fingerprint,
        measured=measured,
        limits=_judged(meter.runs.best(), isa=runner.model.isa, threads=runner.model.threads),
        limit_runs=meter.runs,
        runs_at_once=runs_at_once,
    )


@contextlib.contextmanager
def _interrupt_ends() -> Iterator[None]:
    """Let Ctrl-C end the process at once, as nothing has to be saved: Python itself would wait for a step's end."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def _lack_of_memory_is_told() -> Iterator[None]:
    """Turn a MemoryError into a ConfigError: others may take what was available when it was checked."""
    try:
        yield
    except MemoryError as error:
        raise ConfigError(f"The memory did not suffice to measure this. {_USE_LESS}") from error


def _check_context(shape: ModelShape, workload: Workload) -> None:
    if workload.longest > shape.max_context:
        raise ConfigError(
            f"The work takes a context of {workload.longest} tokens; the model has {shape.max_context}. Use a shorter "
            "prompt, a smaller --context or fewer --output-tokens."
        )


def _sized(config: EngineConfig, workload: Workload, needs: MemoryNeeds) -> EngineConfig:
    """Return the settings with a KV cache that holds the work and no more."""
    num_blocks = workload.num_blocks(config.block_size)
    kv_bytes = num_blocks * config.block_size * needs.kv_token_bytes[config.kv]
    return structs.replace(config, max_context=workload.longest, kv_bytes=kv_bytes)


def _step_bytes(shape: ModelShape, workload: Workload) -> int:
    """Return what a step computes at most: activations as floats and the same in int8, and a row of logits a sequence."""
    rows = max(min(workload.chunk_tokens, workload.prompt_tokens), *workload.batches, 1)
    widths = 2 * shape.hidden_size + 2 * shape.num_heads * shape.head_dim + shape.ffn_size
    logits_bytes = 4 * max(workload.batches) * shape.vocab_size
    return 5 * rows * widths * max(1, shape.num_experts_per_token) + logits_bytes


def _check_memory(config: EngineConfig, step_bytes: int, needs: MemoryNeeds) -> None:
    """Refuse what does not fit before anything is written."""
    weight_bytes = needs.weight_bytes.get(config.weights, 0)
    kv_bytes = config.kv_bytes or 0
    available_bytes = available_memory_bytes()
    if weight_bytes + step_bytes + kv_bytes > available_bytes:
        raise ConfigError(
            f"This takes {size_text(weight_bytes)} for the weights as {config.weights}, {size_text(kv_bytes)} for the KV "
            f"cache as {config.kv} and {size_text(step_bytes)} for activations and logits; {size_text(available_bytes)} of "
            f"memory are available. {_USE_LESS}"
        )


def _step_weight_bytes(shape: ModelShape, runner: NativeRunner) -> int:
    """Return what a step of one token reads of the weights: the share that it would read of int8."""
    whole, read = (
        memory_needs(each, group_size=None).weight_bytes["int8"] for each in (shape, read_once(shape))
    )
    return runner.model.weight_bytes * read // whole


def _judged(measured: Limits, *, isa: str, threads: int) -> Limits:
    path, key = cache_folder() / _RECORD_FILE, record_key(isa=isa, threads=threads)
    limits = with_record(measured, read_record(path, key))
    raise_record(path, key, measured)
    return limits
