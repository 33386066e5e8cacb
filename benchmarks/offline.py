"""How fast the engine alone is: prefill and decode of the demo model, without gateway or HTTP.

    .venv/bin/python benchmarks/offline.py [--model smollm2] [--weights int8] [--kv bf16] [--threads N] [--repeat 5]

Prints one JSON object; each number is the median of `--repeat` runs, all of which are printed too. Prompts are drawn token
ids with a prefix-cache salt of their own, so that nothing is found in the cache.
"""

import argparse
import json
import random
import statistics
import time
from dataclasses import dataclass
from typing import get_args

from headway.core.clock import MonotonicClock
from headway.core.config import EngineConfig, SchedulerConfig, WeightFormat
from headway.core.messages import Submit
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.engine.build import build_engine
from headway.engine.engine import Engine
from headway.models.fetch import resolve_model

NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class Run:
    """One batch of equal requests, from submission to the last token."""

    prefill_tok_s: float
    decode_tok_s: float
    decode_step_ms: float
    """Median step while every sequence decodes."""


def submit_batch(engine: Engine, *, batch: int, prompt_tokens: int, output_tokens: int, salt: str) -> None:
    """Submit `batch` requests with different prompts of equal length."""
    rng = random.Random(salt)
    for index in range(batch):
        prompt = tuple(rng.randrange(100, engine.info.vocab_size) for _ in range(prompt_tokens))
        engine.handle(
            Submit(
                Request(
                    request_id=f"{salt}-{index}",
                    token_ids=prompt,
                    sampling=SamplingParams(temperature=0.0),
                    max_tokens=output_tokens,
                    salt=salt,
                )
            )
        )


def decode_steps_ns(engine: Engine, batch: int) -> tuple[list[int], int]:
    """Step until idle; return the durations of the steps in which `batch` sequences decoded, and the time before them."""
    steps: list[int] = []
    started_ns = last_ns = time.monotonic_ns()
    prefill_ns = 0
    while engine.has_work:
        outputs = engine.step()
        now_ns = time.monotonic_ns()
        assert outputs is not None
        if len(outputs.deltas) == batch:
            if prefill_ns == 0:
                prefill_ns = now_ns - started_ns
            else:
                steps.append(now_ns - last_ns)
        last_ns = now_ns
    return steps, prefill_ns


def measure(engine: Engine, *, batch: int, prompt_tokens: int, output_tokens: int, salt: str) -> Run:
    """Run one batch to its end."""
    submit_batch(engine, batch=batch, prompt_tokens=prompt_tokens, output_tokens=output_tokens, salt=salt)
    steps, prefill_ns = decode_steps_ns(engine, batch)
    return Run(
        prefill_tok_s=batch * prompt_tokens * NS_PER_S / prefill_ns,
        decode_tok_s=batch * len(steps) * NS_PER_S / max(1, sum(steps)),
        decode_step_ms=statistics.median(steps) / 1e6 if steps else 0.0,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure prefill and decode of the engine alone.")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--weights", choices=get_args(WeightFormat), default="int8")
    parser.add_argument("--kv", choices=("bf16", "int8"), default="bf16")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--batch", default="1,8,64")
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    batches = [int(batch) for batch in args.batch.split(",")]
    config = EngineConfig(
        model=args.model,
        model_path=str(resolve_model(args.model)),
        weights=args.weights,
        kv=args.kv,
        threads=args.threads,
        scheduler=SchedulerConfig(
            max_prefill_tokens=args.prompt_tokens, max_draft_tokens=0, itl_target_s=None
        ),
    )
    engine = build_engine(config, MonotonicClock())
    runs: dict[str, list[Run]] = {}
    for repeat in range(args.repeat):
        for batch in batches:
            prompt = args.prompt_tokens if batch == 1 else min(args.prompt_tokens, 64)
            run = measure(
                engine,
                batch=batch,
                prompt_tokens=prompt,
                output_tokens=args.output_tokens,
                salt=f"{repeat}/{batch}",
            )
            runs.setdefault(str(batch), []).append(run)
    print(
        json.dumps(
            {
                "fingerprint": engine.info.system_fingerprint,
                "settings": vars(args),
                "batches": {
                    batch: {
                        field: {
                            "median": round(statistics.median(getattr(run, field) for run in many), 2),
                            "runs": [round(getattr(run, field), 2) for run in many],
                        }
                        for field in Run.__slots__
                    }
                    for batch, many in runs.items()
                },
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
