"""Contiguous, paged and chunked KV memory on the same work: three block sizes of one kernel (register row E6).

    .venv/bin/python benchmarks/kv_layouts.py [--model smollm2] [--kv bf16] [--max-context 1024] [--kv-tokens 4096]

All layouts get the same memory, `--kv-tokens` tokens, and the same requests of mixed lengths. A block of 16 is paged memory,
of 256 chunked, one as long as the context contiguous: a sequence then holds room for the longest text from its first token
on, so that fewer run at once. `--model shape:llama-1.4b` has random weights, which change no time. Prints one JSON object,
per layout:

    tok_s          tokens of the answers per second, from the first request to the last token
    kv_read_gb_s   keys and values read per second in the steps that only decode
    sequences      run at once, mean over the steps
    wasted_bytes   mean over the steps of memory that is held and empty
    wasted_share   the same of what is held

Numbers are medians of `--repeat` runs, interleaved; `same_tokens` says that all layouts gave the same answers.
"""

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headway.cli.model_source import find_model
from headway.cli.options import not_negative, positive
from headway.core.clock import MonotonicClock
from headway.core.config import EngineConfig
from headway.core.errors import HeadwayError
from headway.core.messages import Submit
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.engine.engine import Engine, engine_info
from headway.runner.estimate import memory_needs
from headway.runner.native_runner import NativeRunner
from headway.runner.step import RunnerInfo, Step, StepResult
from kv_caches import with_cache


@dataclass(slots=True)
class StepRecord:
    """What one step held and read, in tokens."""

    duration_ns: int
    num_sequences: int
    held: int
    used: int
    read: int | None
    """Positions that decoding read; None when the step carried prompts, too."""


@dataclass(slots=True)
class Recorder:
    """A runner that notes every step."""

    runner: NativeRunner
    steps: list[StepRecord] = field(default_factory=list)

    @property
    def info(self) -> RunnerInfo:
        """What the runner is."""
        return self.runner.info

    def execute(self, step: Step) -> StepResult:
        """Compute the step and note it."""
        started_ns = time.monotonic_ns()
        result = self.runner.execute(step)
        duration_ns = time.monotonic_ns() - started_ns
        used = sum(step.context_lens) + len(step.tokens)
        decodes = len(step.tokens) == len(step.context_lens)
        self.steps.append(
            StepRecord(
                duration_ns=duration_ns,
                num_sequences=len(step.context_lens),
                held=len(step.block_table) * self.info.block_size,
                used=used,
                read=used if decodes else None,
            )
        )
        return result

    def read_block(self, block: int) -> bytes:
        """Return a block's bytes."""
        return self.runner.read_block(block)

    def write_block(self, block: int, data: bytes) -> None:
        """Overwrite a block."""
        self.runner.write_block(block, data)

    def copy_block(self, source: int, target: int) -> None:
        """Copy a block onto another."""
        self.runner.copy_block(source, target)

    def bind_block(self, block: int) -> None:
        """Give a block its memory."""
        self.runner.bind_block(block)


@dataclass(frozen=True, slots=True)
class Run:
    """One layout's pass over the work; the fields are explained above."""

    tok_s: float
    kv_read_gb_s: float
    sequences: float
    wasted_bytes: float
    wasted_share: float


def requests(args: argparse.Namespace, vocab_size: int, salt: str) -> list[Request]:
    """Mixed lengths, the same for every layout and repeat; many short, few long."""
    rng = random.Random(args.seed)
    made = []
    for index in range(args.sequences):
        length = int(args.max_prompt ** rng.uniform(0.4, 1.0))
        tokens = tuple(rng.randrange(100, vocab_size) for _ in range(length))
        made.append(
            Request(
                request_id=f"{salt}-{index}",
                token_ids=tokens,
                sampling=SamplingParams(temperature=0.0),
                max_tokens=args.output_tokens,
                salt=salt,  # nothing is found in the prefix cache
            )
        )
    return made


def run_layout(
    engine: Engine, recorder: Recorder, work: list[Request], kv_token_bytes: int
) -> tuple[Run, dict[int, list[int]]]:
    """Run all requests to their ends; returns the run and each request's tokens."""
    recorder.steps.clear()
    tokens: dict[int, list[int]] = {index: [] for index in range(len(work))}
    started_ns = time.monotonic_ns()
    for request in work:
        engine.handle(Submit(request))
    while engine.has_work:
        outputs = engine.step()
        assert outputs is not None
        for delta in outputs.deltas:
            tokens[int(delta.request_id.rsplit("-", 1)[1])].extend(delta.token_ids)
    elapsed_ns = time.monotonic_ns() - started_ns
    steps = recorder.steps
    decoding = [(step.read, step.duration_ns) for step in steps if step.read is not None]
    held = sum(step.held for step in steps)
    wasted = held - sum(step.used for step in steps)
    run = Run(
        tok_s=sum(map(len, tokens.values())) * 1e9 / elapsed_ns,
        kv_read_gb_s=sum(read for read, _ in decoding)
        * kv_token_bytes
        / max(1, sum(duration for _, duration in decoding)),
        sequences=statistics.mean(step.num_sequences for step in steps),
        wasted_bytes=wasted * kv_token_bytes / len(steps),
        wasted_share=wasted / held,
    )
    return run, tokens


def layouts_of(max_context: int) -> dict[str, int]:
    """Return the block size of each layout."""
    return {"paged": 16, "chunked": 256, "contiguous": -(-max_context // 16) * 16}


def misfit(args: argparse.Namespace, layouts: Mapping[str, int]) -> str | None:
    """Return why the layouts cannot hold the work, or None if they can."""
    if (largest := max(layouts.values())) > layouts["contiguous"]:
        return f"--max-context {args.max_context} is shorter than a chunk of {largest} tokens"
    if (longest := args.max_prompt + args.output_tokens) > args.max_context:
        return (
            f"--max-prompt and --output-tokens, together {longest}, exceed --max-context {args.max_context}"
        )
    needed = max(-(-args.max_context // size) * size for size in layouts.values())
    if args.kv_tokens < needed:
        return f"--kv-tokens {args.kv_tokens} hold no whole context in every layout: at least {needed}"
    return None


def measure(args: argparse.Namespace, layouts: Mapping[str, int]) -> dict[str, Any]:
    """Run the work in every layout; return all that is printed. Raises what loading the model raises."""
    source = find_model(args.model, args.weights)
    kv_token_bytes = memory_needs(source.plan.shape, group_size=32).kv_token_bytes[args.kv]
    config = EngineConfig(
        model=args.model,
        weights=args.weights,
        kv=args.kv,
        threads=args.threads,
        max_context=args.max_context,
        kv_bytes=args.kv_tokens * kv_token_bytes,
    )
    loaded = source.load(config)
    engines: dict[str, tuple[Engine, Recorder]] = {}
    for name, block_size in layouts.items():
        num_blocks = args.kv_tokens // block_size
        recorder = Recorder(with_cache(loaded, kv=args.kv, block_size=block_size, num_blocks=num_blocks))
        info = engine_info(args.model, recorder)
        engines[name] = Engine(recorder, config.scheduler, MonotonicClock(), info), recorder
    runs: dict[str, list[Run]] = {name: [] for name in layouts}
    answers = []
    for repeat in range(args.repeat):
        for name, (engine, recorder) in engines.items():
            work = requests(args, engine.info.vocab_size, f"{name}{repeat}")
            run, tokens = run_layout(engine, recorder, work, kv_token_bytes)
            runs[name].append(run)
            answers.append(tokens)
    report = {
        name: {"block_size": layouts[name]}
        | {
            key: {
                "median": round(statistics.median(getattr(run, key) for run in many), 3),
                "runs": [round(getattr(run, key), 3) for run in many],
            }
            for key in Run.__slots__
        }
        for name, many in runs.items()
    }
    return {
        "settings": vars(args),
        "kv_token_bytes": kv_token_bytes,
        "same_tokens": all(tokens == answers[0] for tokens in answers),
        "layouts": report,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare paged, chunked and contiguous KV memory.")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--weights", choices=("bf16", "int8"), default="int8")
    parser.add_argument("--kv", choices=("bf16", "int8"), default="bf16")
    parser.add_argument("--threads", type=positive)
    parser.add_argument("--max-context", type=positive, default=1024)
    parser.add_argument("--kv-tokens", type=positive, default=4096)
    parser.add_argument("--sequences", type=positive, default=24)
    parser.add_argument("--max-prompt", type=positive, default=512)
    parser.add_argument("--output-tokens", type=positive, default=48)
    parser.add_argument("--seed", type=not_negative, default=0)
    parser.add_argument("--repeat", type=positive, default=3)
    args = parser.parse_args()
    layouts = layouts_of(args.max_context)
    if reason := misfit(args, layouts):
        parser.error(reason)
    try:
        report = measure(args, layouts)
    except HeadwayError as error:
        sys.exit(str(error))
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
