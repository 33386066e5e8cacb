"""Runtime formats of weights and KV cache on the same work: memory, latency, likelihood (register row E7).

    .venv/bin/python benchmarks/formats.py [--models smollm2,shape:llama-1.4b] [--formats bf16,int8-32] [--repeat 5]
    .venv/bin/python benchmarks/formats.py --read benchmarks/results/formats.json --render docs/performance.md

For every model, format of the weights and format of the KV cache: the bytes of the weights, tokens a second of a prompt and
milliseconds of a decode step of one sequence (medians of `--repeat` rounds, in each of which every format has its turn),
for SmolLM2 the deviation from float32 (`format_accuracy`), and the KV cache's share of memory and of the bytes read as the
batch grows (`format_report`: computed from sizes). Prints one JSON object with every run, or with `--table` Markdown.

SmolLM2's file is quantised already, Q4_1 with an embedding in Q8_0, and its float32 reference computes with these values:
what a format adds is measured, not what the file lost before. int4 keeps the Q4_1 blocks and takes the embedding from 8 bits
to 4; nf4 quantises all quantised values once more. Random weights have no likelihood and no file whose format `auto` could
keep; their int4 and nf4 are made of Q4_0, which has no minimum, so that int4 takes less than it may.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import format_accuracy
from format_report import CONTEXTS, NOTE, kv_shares, medians, render, render_into
from headway.cli.model_source import find_model, is_random
from headway.cli.options import positive
from headway.core.config import ActivationFormat, EngineConfig, KvFormat, WeightFormat
from headway.core.errors import ConfigError, HeadwayError, ModelFileError
from headway.core.version import __version__
from headway.runner.estimate import memory_needs
from headway.runner.machine import available_memory_bytes
from headway.runner.measure import Workload, measure
from headway.runner.native_runner import NativeRunner
from headway.runner.roofline import kv_tokens, read_once
from kv_caches import with_cache
from peers.machine import BusyMeter, describe_machine, load_average

BLOCK_TOKENS = 16
KEPT_SHARE = 0.6
"""Of the memory available: models that take more together are loaded anew for every turn."""


class Format(NamedTuple):
    """A runtime format of weights."""

    weights: WeightFormat
    group_size: Literal[32, 64, 128] | None = None
    activations: ActivationFormat = "f32"


FORMATS: Mapping[str, Format] = {
    "bf16": Format("bf16"),
    "bf16-bf16": Format("bf16", activations="bf16"),
    "int8-32": Format("int8", 32),
    "int8-64": Format("int8", 64),
    "int8-128": Format("int8", 128),
    "int4": Format("int4"),
    "nf4": Format("nf4"),
    "auto": Format("auto"),
}
KV_FORMATS: Sequence[KvFormat] = ("bf16", "int8")
NO_AUTO = "random weights have no file whose format it could keep"


@dataclass(frozen=True, slots=True)
class Bench:
    """One model and the work that is measured on it, whatever the format."""

    model: str
    workload: Workload
    threads: int | None
    kv_formats: Sequence[KvFormat]

    @property
    def max_context(self) -> int:
        """Tokens of the KV cache."""
        longest = self.workload.longest if is_random(self.model) else format_accuracy.CONTEXT_TOKENS
        return -(-max(longest, self.workload.longest) // BLOCK_TOKENS) * BLOCK_TOKENS

    def load(self, chosen: Format) -> dict[KvFormat, NativeRunner]:
        """Return a runner for each format of the KV cache, on the same weights."""
        source = find_model(self.model, chosen.weights)
        needs = memory_needs(source.plan.shape, group_size=None)
        config = EngineConfig(
            model=self.model,
            weights=chosen.weights,
            group_size=chosen.group_size,
            activations=chosen.activations,
            kv="bf16",
            threads=self.threads,
            block_size=BLOCK_TOKENS,
            max_context=self.max_context,
            kv_bytes=self.max_context * needs.kv_token_bytes["bf16"],
        )
        first = source.load(config)
        num_blocks = self.max_context // BLOCK_TOKENS
        return {
            kind: with_cache(first, kv=kind, block_size=BLOCK_TOKENS, num_blocks=num_blocks)
            for kind in self.kv_formats
        }


class Runners:
    """The runners of a model by format of the weights: all stay loaded if there is room, else one at a time."""

    def __init__(self, load: Callable[[Format], dict[KvFormat, NativeRunner]], *, keep: bool) -> None:
        self._load = load
        self._keep = keep
        self._loaded: dict[Format, dict[KvFormat, NativeRunner]] = {}

    def __getitem__(self, chosen: Format) -> dict[KvFormat, NativeRunner]:
        if chosen not in self._loaded:
            if not self._keep:
                self._loaded.clear()
            self._loaded[chosen] = self._load(chosen)
        return self._loaded[chosen]


def measure_model(bench: Bench, formats: Sequence[str], repeat: int) -> dict[str, Any]:
    """Measure every format of one model; return its sides, each with the runs it had."""
    sides = list(sizes(bench, formats))
    usable = dict.fromkeys(side["format"] for side in sides if "error" not in side)
    total = sum({side["format"]: side["weight_bytes"] for side in sides if "error" not in side}.values())
    keep = total < KEPT_SHARE * available_memory_bytes()
    runners = Runners(bench.load, keep=keep)
    busy = BusyMeter()
    for turn in range(repeat):
        for name in usable:
            loaded = runners[FORMATS[name]]
            for side in sides:
                if side["format"] != name:
                    continue
                runner = loaded[side["kv"]]
                print(f"{bench.model} {turn + 1}/{repeat} {name} kv {side['kv']}", file=sys.stderr)
                if turn == 0:
                    side |= {"isa": runner.model.isa, "threads": runner.model.threads}
                    if not is_random(bench.model):
                        side["accuracy"] = format_accuracy.deviations(runner)
                busy.stolen()
                side["runs"].append(
                    _run(runner, bench.workload) | {"stolen": busy.stolen(), "load": load_average()}
                )
    for side in sides:
        if side.get("runs"):
            side["medians"] = medians(side["runs"])
    left_out = {name: NO_AUTO for name in formats if not applies(bench.model, name)}
    return {"kept_loaded": keep, "left_out": left_out, "sides": sides}


def applies(model: str, name: str) -> bool:
    """Tell whether a model can have the format called `name`: `auto` keeps that of the model's file."""
    return FORMATS[name].weights != "auto" or not is_random(model)


def _run(runner: NativeRunner, workload: Workload) -> dict[str, float]:
    found = measure(runner, workload)
    (prefill_s,), (decode_s,) = found.prefill_s, found.decode_s[1]
    return {
        "prefill_tok_s": round(workload.prompt_tokens / prefill_s, 2),
        "decode_ms": round(decode_s * 1e3 / workload.output_tokens, 4),
    }


def sizes(bench: Bench, formats: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield for each pair of formats its sizes and shares, or why there is none."""
    for name in formats:
        if not applies(bench.model, name):
            continue
        chosen = FORMATS[name]
        plan = find_model(bench.model, chosen.weights).plan
        try:
            needs = memory_needs(plan.shape, group_size=chosen.group_size, tensors=plan.tensors)
        except (ConfigError, ModelFileError) as error:
            yield from ({"format": name, "kv": kind, "error": str(error)} for kind in bench.kv_formats)
            continue
        weight_bytes = needs.weight_bytes[chosen.weights]
        whole, read = (
            memory_needs(shape, group_size=None).weight_bytes["int8"]
            for shape in (plan.shape, read_once(plan.shape))
        )
        for kind in bench.kv_formats:
            yield {
                "format": name,
                "kv": kind,
                "weight_bytes": weight_bytes,
                "kv_token_bytes": needs.kv_token_bytes[kind],
                "shares": kv_shares(
                    weight_bytes=weight_bytes,
                    step_weight_bytes=weight_bytes * read // whole,
                    kv_token_bytes=needs.kv_token_bytes[kind],
                    seen_tokens={each: kv_tokens(plan.shape, context=each) for each in CONTEXTS},
                ),
                "runs": [],
            }


def check_models(models: Sequence[str], formats: Sequence[str]) -> None:
    """Find every model, before hours go into the first; tell what is left out of each.

    Raises what finding a model raises, and ConfigError if no format is left of one.
    """
    for model in models:
        left_out = [name for name in formats if not applies(model, name)]
        if len(left_out) == len(formats):
            raise ConfigError(f"{model}: nothing is left to measure but {', '.join(left_out)}: {NO_AUTO}.")
        for name in left_out:
            print(f"{model}: {name} is left out: {NO_AUTO}", file=sys.stderr)
        find_model(model, "bf16")


def measure_all(args: argparse.Namespace) -> dict[str, Any]:
    """Measure every model; return all that is kept."""
    workload = Workload(
        prompt_tokens=args.prompt_tokens,
        output_tokens=args.steps,
        context=args.context,
        batches=(1,),
        chunk_tokens=args.prompt_tokens,
        repeat=1,
    )
    models = {
        name: measure_model(Bench(name, workload, args.threads, args.kv), args.formats, args.repeat)
        for name in args.models
    }
    threads = {side["threads"] for model in models.values() for side in model["sides"] if "threads" in side}
    names = ("models", "formats", "kv", "repeat", "prompt_tokens", "context", "steps")
    return {
        "date": time.strftime("%Y-%m-%d"),
        "headway": __version__,
        "machine": describe_machine(),
        "threads": max(threads, default=None),
        "settings": {name: getattr(args, name) for name in names},
        "note": NOTE,
        "models": models,
    }


def listed(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Return what parses names of `known` that are separated by commas."""

    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"no such format: {', '.join(unknown)}; of {', '.join(known)}")
        return names

    return parse


def read_kept(path: Path) -> dict[str, Any]:
    """Return what `--out` kept; raises OSError, and ValueError for another file."""
    try:
        data: Any = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not a results file: {error}") from error
    if not isinstance(data, dict) or not data.keys() >= {"date", "machine", "threads", "settings", "models"}:
        raise ValueError(f"{path} is not a results file of this command")
    return data


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare runtime formats of weights and KV cache.")
    parser.add_argument(
        "--models", type=lambda text: text.split(","), default=["smollm2", "shape:llama-1.4b"]
    )
    parser.add_argument("--formats", type=listed(list(FORMATS)), default=list(FORMATS))
    parser.add_argument("--kv", type=listed(KV_FORMATS), default=list(KV_FORMATS))
    parser.add_argument("--threads", type=positive)
    parser.add_argument("--repeat", type=positive, default=5)
    parser.add_argument("--prompt-tokens", type=positive, default=512)
    parser.add_argument(
        "--context", type=positive, default=1_024, help="tokens in the KV cache before decoding"
    )
    parser.add_argument("--steps", type=positive, default=16, help="decode steps of a run")
    parser.add_argument("--out", type=Path, help="keep the JSON object in this file, too")
    parser.add_argument("--read", type=Path, help="measure nothing: take what --out kept")
    parser.add_argument("--table", action="store_true", help="print Markdown instead of JSON")
    parser.add_argument(
        "--render", type=Path, help="put the Markdown into this document, between its markers"
    )
    args = parser.parse_args()
    try:
        if not args.read:
            check_models(args.models, args.formats)
        data = read_kept(args.read) if args.read else measure_all(args)
    except (HeadwayError, OSError, ValueError) as error:
        sys.exit(str(error))
    kept = args.read or args.out
    if args.out:
        args.out.write_text(json.dumps(data, indent=1) + "\n")
    if args.render:
        render_into(args.render, data, str(kept) if kept else None)
    print(render(data, str(kept) if kept else None) if args.table else json.dumps(data))


if __name__ == "__main__":
    main()
