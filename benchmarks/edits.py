"""How much faster code edits decode with speculation than without: `python benchmarks/edits.py [--model smollm2]`.

`--model shape:llama-1.4b` has random weights, which change no time, and SmolLM2's tokenizer; three edits of it, one of each
kind, take some minutes.

Thirty edits (`edit_scripts`): the prompt asks for a change of a function that it quotes, the answer is the changed function.
The answer is played from a script: a runner computes every step in full, in its real time, and then answers with the
script's token for each position. So what is accepted is what real edits allow, not what a small model happens to say. Each
edit is decoded with and without speculation, and which of the two comes first changes with every comparison (A B B A), the
first of which follows a round that does not count. Only decode steps count, from the first token to the last.

Prints one JSON object: the summary, with the range of the speedups beside their median, then each edit with the duration of
every step, in milliseconds, and its rows.
`--nothing-right` plays tokens instead that no draft guesses although the prompt keeps suggesting them: the price of
speculation where it is of no use.
"""

import argparse
import json
import statistics
import sys
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from edit_scripts import Edit, edits
from headway.cli.model_source import find_model, is_random
from headway.cli.options import not_negative, positive
from headway.core.clock import MonotonicClock
from headway.core.config import EngineConfig, SchedulerConfig
from headway.core.errors import HeadwayError
from headway.core.messages import EngineStats, Submit
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.engine.engine import Engine, engine_info
from headway.models.fetch import resolve_model
from headway.models.text_side import open_text
from headway.models.tokenizer import Tokenizer
from headway.runner.step import Runner, RunnerInfo, Step, StepResult
from step_only import StepOnlyRunner

WITHOUT, WITH = "without", "with"
MIXING = 7
"""Step through the edits, without a common divisor with thirty: a few then are of different functions and kinds."""


@dataclass(frozen=True, slots=True)
class Script:
    """One edit as tokens."""

    name: str
    prompt: tuple[int, ...]
    answer: tuple[int, ...]


class PlayedRunner(StepOnlyRunner):
    """Computes every step on `runner`, then draws the tokens of a script: by seed, at each absolute position."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.scripts: dict[int, Script] = {}
        self.num_rows = 0

    @property
    def info(self) -> RunnerInfo:
        """What the runner is."""
        return self._runner.info

    def execute(self, step: Step) -> StepResult:
        """Compute, then play."""
        self.num_rows = len(step.tokens)
        result = self._runner.execute(step)
        if step.sampling is None:
            return result
        played = [
            self._played(seed, position)
            for seed, position in zip(step.sampling.seeds, step.sampling.positions, strict=True)
        ]
        return replace(result, tokens=played)

    def _played(self, seed: int, position: int) -> int:
        script = self.scripts[seed]
        index = position - len(script.prompt)
        return script.answer[min(index, len(script.answer) - 1)]


@dataclass(slots=True)
class Run:
    """The decode steps of one batch of scripts."""

    step_ms: list[float] = field(default_factory=list)
    step_rows: list[int] = field(default_factory=list)
    num_tokens: int = 0
    num_drafted: int = 0
    num_accepted: int = 0

    @property
    def tok_s(self) -> float:
        """Tokens per second, of all sequences."""
        return 1_000 * self.num_tokens / sum(self.step_ms)


def to_script(edit: Edit, tokenizer: Tokenizer) -> Script:
    """Return `edit` as a chat model would be asked, and its answer to the end of the code."""
    prompt = f"<|im_start|>user\n{edit.instruction}\n\n```python\n{edit.before}```<|im_end|>\n<|im_start|>assistant\n"
    answer = f"```python\n{edit.after}```"
    return Script(edit.name, tuple(tokenizer.encode(prompt)), tuple(tokenizer.encode(answer, add_bos=False)))


def never_right(script: Script) -> Script:
    """Return a script that copies three tokens of its prompt, then leaves it, again and again."""
    answer = array("i")
    for start in range(0, len(script.answer) - 4, 4):
        answer.extend(script.prompt[-start - 8 : -start - 5])
        answer.append(1_000 + start)
    return Script(script.name, script.prompt, tuple(answer))


def play(runner: PlayedRunner, scripts: Sequence[Script], max_draft_tokens: int) -> Run:
    """Decode `scripts` together, on an engine that has not seen them."""
    limits = SchedulerConfig(max_draft_tokens=max_draft_tokens, max_prefill_tokens=4096, itl_target_s=None)
    engine = Engine(runner, limits, MonotonicClock(), engine_info("played", runner))
    runner.scripts = dict(enumerate(scripts))
    for seed, script in enumerate(scripts):
        sampling = SamplingParams(temperature=0.0, seed=seed)
        engine.handle(
            Submit(
                Request(
                    request_id=str(seed),
                    token_ids=script.prompt,
                    sampling=sampling,
                    max_tokens=len(script.answer),
                )
            )
        )
    run, stats, num_started = Run(), EngineStats(), 0
    while engine.has_work:
        before_ns = time.perf_counter_ns()
        outputs = engine.step()
        elapsed_ms = (time.perf_counter_ns() - before_ns) / 1e6
        assert outputs is not None
        stats = outputs.stats
        if num_started < len(
            scripts
        ):  # prompts, and the first tokens of those that were sooner done with theirs
            num_started += len(outputs.deltas)
            continue
        run.step_ms.append(elapsed_ms)
        run.step_rows.append(runner.num_rows)
        run.num_tokens += sum(len(delta.token_ids) for delta in outputs.deltas)
    run.num_drafted, run.num_accepted = stats.drafted_tokens_total, stats.accepted_tokens_total
    return run


def take_turns(
    decode: Callable[[int], Run], max_draft_tokens: int, repeat: int, first: int
) -> dict[str, list[Run]]:
    """Decode without and with speculation in each of `repeat` turns; those with an odd number begin with it."""
    runs: dict[str, list[Run]] = {WITHOUT: [], WITH: []}
    for turn in range(first, first + repeat):
        for side in (WITH, WITHOUT) if turn % 2 else (WITHOUT, WITH):
            runs[side].append(decode(max_draft_tokens if side == WITH else 0))
    return runs


def describe(scripts: Sequence[Script], runs: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    """Return what is told of `scripts` that were decoded together."""
    last = runs[WITH][-1]
    speedups = [b.tok_s / a.tok_s for a, b in zip(runs[WITHOUT], runs[WITH], strict=True)]
    return {
        "edits": [script.name for script in scripts],
        "tokens": last.num_tokens,
        "speedup": round(statistics.median(speedups), 3),
        "speedup_range": [round(min(speedups), 3), round(max(speedups), 3)],
        "tok_s": {
            side: round(statistics.median(run.tok_s for run in many), 2) for side, many in runs.items()
        },
        "tokens_per_step": round(last.num_tokens / len(last.step_ms) / len(scripts), 3),
        "acceptance": round(last.num_accepted / max(1, last.num_drafted), 3),
        "rows_per_step": round(statistics.mean(last.step_rows), 2),
        "steps": {
            side: {"ms": [round(ms, 3) for ms in many[-1].step_ms], "rows": many[-1].step_rows}
            for side, many in runs.items()
        },
    }


def quartiles(values: Sequence[float]) -> dict[str, float]:
    """Return what lies around the median: a few values may be all there is, one even."""
    lower, _, upper = (
        statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else 3 * [values[0]]
    )
    found = {"smallest": min(values), "lower": lower, "upper": upper, "largest": max(values)}
    return {name: round(value, 3) for name, value in found.items()}


def open_model(args: argparse.Namespace) -> tuple[Runner, Tokenizer]:
    """Load the model; return its runner and a tokenizer: SmolLM2's for a shape, which has none."""
    config = EngineConfig(
        model=args.model,
        weights=args.weights,
        kv=args.kv,
        threads=args.threads,
        max_context=2048,
        scheduler=SchedulerConfig(max_num_seqs=args.batch, itl_target_s=None),
    )
    runner = find_model(args.model, args.weights).load(config)
    tokenizer = open_text(resolve_model("smollm2" if is_random(args.model) else args.model)).tokenizer
    if tokenizer.vocab_size > runner.info.vocab_size:
        raise SystemExit(f"{args.model} has fewer tokens than the tokenizer")
    return runner, tokenizer


def measure(runner: Runner, tokenizer: Tokenizer, args: argparse.Namespace) -> dict[str, object]:
    """Play the edits on `runner`; return all that is printed."""
    scripts = [to_script(edit, tokenizer) for edit in edits()]
    if args.nothing_right:
        scripts = [never_right(script) for script in scripts]
    mixed = [scripts[MIXING * index % len(scripts)] for index in range(len(scripts))]
    scripts = mixed[args.skip : args.skip + args.edits]
    played = PlayedRunner(runner)
    batches = [scripts[first : first + args.batch] for first in range(0, len(scripts), args.batch)]
    for max_draft_tokens in (0, args.max_draft_tokens):  # the first turns are slower, whatever they are
        play(played, batches[0], max_draft_tokens)
    found = []
    for index, batch in enumerate(batches):
        runs = take_turns(partial(play, played, batch), args.max_draft_tokens, args.repeat, first=index)
        found.append(describe(batch, runs))
    names = ("speedup", "tokens_per_step", "acceptance", "rows_per_step")
    summary = {name: statistics.median(one[name] for one in found) for name in names}
    return {
        "fingerprint": runner.info.system_fingerprint,
        "settings": vars(args),
        "medians": summary,
        "speedup_quartiles": quartiles([one["speedup"] for one in found]),
        "found": found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Measure decoding of code edits with and without speculation."
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--weights", choices=("bf16", "int8"), default="int8")
    parser.add_argument("--kv", choices=("bf16", "int8"), default="bf16")
    parser.add_argument("--threads", type=positive)
    parser.add_argument(
        "--edits",
        type=positive,
        help="how many of the thirty, functions and kinds mixed (default: all; of a shape 3)",
    )
    parser.add_argument(
        "--skip", type=not_negative, default=0, help="how many to leave out before, to measure in parts"
    )
    parser.add_argument("--batch", type=positive, default=1, help="edits that decode together")
    parser.add_argument("--max-draft-tokens", type=not_negative, default=8)
    parser.add_argument("--repeat", type=positive, default=1)
    parser.add_argument("--nothing-right", action="store_true")
    args = parser.parse_args()
    if args.edits is None:
        args.edits = 3 if is_random(args.model) else 30
    if args.skip >= (num_edits := sum(1 for _ in edits())):
        parser.error(f"--skip {args.skip} leaves none of the {num_edits} edits")
    try:
        runner, tokenizer = open_model(args)
    except HeadwayError as error:
        sys.exit(str(error))
    print(json.dumps(measure(runner, tokenizer, args)))


if __name__ == "__main__":
    main()
