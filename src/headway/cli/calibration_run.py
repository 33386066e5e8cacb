"""Carries a calibration out: loads the model for its steps, then serves it, each alone on the machine."""

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile

import msgspec

from headway.cli.model_source import find_model, is_random
from headway.core.config import EngineConfig, SchedulerConfig
from headway.core.errors import ConfigError
from headway.core.version import __version__
from headway.lab.endpoint import parse_endpoint
from headway.lab.exchange import Exchange
from headway.lab.measurement import measure
from headway.lab.run_options import RunOptions
from headway.models.fetch import resolve_model
from headway.models.text_side import open_text
from headway.runner.step import Runner
from headway.simulator.calibration import FORMAT, Calibration, MachineRunner
from headway.simulator.fit import fit_steps
from headway.simulator.prompts import TokenizedPrompts
from headway.simulator.time_engine import time_engine
from headway.simulator.time_serving import time_serving
from headway.simulator.time_steps import grid, others, time_cases

_STOP_S = 30
_LIMITS = SchedulerConfig(max_draft_tokens=0)
"""Of the served model while it is measured: drafts depend on what answers say."""


def calibrated(config: EngineConfig, budget_s: float, tell: Callable[[str], None]) -> Calibration:
    """Return what was measured; `tell` hears what is being done. Raises what opening and loading a model raise."""
    tell("1 of 3: steps")
    runner = find_model(config.model, config.weights).load(config)
    found = _steps(runner, config, budget_s)
    del runner  # its memory, before a server takes as much
    tell("2 of 3: the engine's own Python")
    found = msgspec.structs.replace(found, engine_ns=time_engine(_LIMITS))
    if is_random(config.model):
        return found
    tell("3 of 3: serving")
    prompts = TokenizedPrompts(open_text(Path(resolve_model(config.model))))
    with _served(config) as url:
        like = RunOptions(endpoint=parse_endpoint(url), num_processes=1)
        found = time_serving(found, _LIMITS, prompts, like, _measured)
    return msgspec.structs.replace(found, served=True)


def _steps(runner: Runner, config: EngineConfig, budget_s: float) -> Calibration:
    cases = grid()
    timed = time_cases(runner, [*cases, *others()], budget_s=budget_s)
    fitted = [each for each in timed[: len(cases)] if each is not None]
    held_out = [each for each in timed[len(cases) :] if each is not None]
    if not held_out:
        raise ConfigError("The KV cache is too small to time anything in it: give it more --kv-memory.")
    coefficients, fit = fit_steps(fitted, held_out)
    info = runner.info
    return Calibration(
        format=FORMAT,
        headway=__version__,
        model=config.model,
        settings={
            name: getattr(config, name)
            for name in ("weights", "group_size", "activations", "kv", "isa", "threads", "block_size")
        },
        runner=MachineRunner(
            vocab_size=info.vocab_size,
            max_context=info.max_context,
            num_blocks=info.num_blocks,
            block_size=info.block_size,
        ),
        coefficients=dict(coefficients),
        fit=fit,
    )


def _measured(options: RunOptions) -> Sequence[Exchange]:
    result = asyncio.run(measure(replace(options, model=None)))
    if result.interrupted:  # what was over by then would be taken for the whole
        raise KeyboardInterrupt
    return result.exchanges


@contextmanager
def _served(config: EngineConfig) -> Iterator[str]:
    """Run `headway serve` with the same settings on a free port of the loopback; yield its URL. Raises ConfigError."""
    with TemporaryFile("w+") as errors, _exit_on_sigterm():
        process = subprocess.Popen(
            [sys.executable, "-m", "headway.cli.main", "serve", *_arguments(config)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,  # a terminal's Ctrl-C is for us, who end the server
        )
        try:
            assert process.stdout is not None
            found = re.search(r"https?://\S+", process.stdout.readline())
            if found is None:
                process.wait(_STOP_S)
                errors.seek(0)
                said = errors.read().strip().splitlines()
                raise ConfigError(f"The server did not start: {said[-1] if said else 'it said nothing'}")
            yield found[0]
        finally:
            _end(process)


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Let SIGTERM raise SystemExit: unhandled it would leave the server behind."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _arguments(config: EngineConfig) -> Iterator[str]:
    yield from (config.model, "--port", "0", "--log-level", "warning")
    yield from ("--max-draft-tokens", str(_LIMITS.max_draft_tokens))
    settings = {
        "--weights": config.weights,
        "--group-size": config.group_size,
        "--activations": config.activations,
        "--kv": config.kv,
        "--isa": config.isa,
        "--threads": config.threads,
        "--block-size": config.block_size,
        "--kv-memory": config.kv_bytes,
        "--max-context": config.max_context,
    }
    for option, value in settings.items():
        if value is not None:
            yield from (option, str(value))
