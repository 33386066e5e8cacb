"""Times steps of a runner over a grid of what they carry, and others at random to judge a fit by.

Every round runs each step once, in an order of its own, so that a disturbance falls on all alike; medians over rounds. What
the sequences say is made up: time does not depend on it. Blocks are written before anything is timed, as memory that never
was reads faster than it will.
"""

import random
import statistics
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from headway.runner.step import OutputKind, Runner, RunnerInfo, Step, greedy
from headway.simulator.fit import Timed
from headway.simulator.step_load import load_of

DECODING = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
CHUNKS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512)
CONTEXTS = (16, 256, 1024)
PREFIXES = (0, 512, 2048, 4096)
NUM_HELD_OUT = 40
MOST_ROUNDS = 9
LEAST_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Part:
    """One sequence of a step. `draws`: a token is drawn behind its last."""

    num_tokens: int
    context: int
    draws: bool = True


Case = tuple[Part, ...]


def grid() -> list[Case]:
    """Return the steps that are fitted: decoding alone, prompts alone, and both."""
    decoding = [(Part(1, context),) * count for count in DECODING for context in CONTEXTS]
    prompts = [
        (Part(chunk, prefix, draws=(place + at) % 2 == 0),)
        for place, chunk in enumerate(CHUNKS)
        for at, prefix in enumerate(PREFIXES)
    ]
    both = [
        (Part(chunk, prefix, draws=False), *((Part(1, context),) * count))
        for count, context in ((2, 256), (8, 256), (24, 1024))
        for chunk in (16, 64, 192)
        for prefix in (0, 2048)
    ]
    return [*decoding, *prompts, *both]


def others(count: int = NUM_HELD_OUT, seed: int = 0) -> list[Case]:
    """Return steps at random, such as serving has them: some streams, often a chunk or two beside them."""
    draw = random.Random(seed)
    cases: list[Case] = []
    for _ in range(count):
        parts = [Part(1, draw.randrange(8, 1500)) for _ in range(int(2 ** draw.uniform(0, 6)) - 1)]
        num_chunks = draw.choice((0, 1, 1, 2)) if parts else 1
        chunks = [
            Part(int(2 ** draw.uniform(1, 8)), draw.randrange(0, 3000), draw.random() < 0.5)
            for _ in range(num_chunks)
        ]
        cases.append((*parts, *chunks))
    return cases


def time_cases(
    runner: Runner,
    cases: Sequence[Case],
    *,
    budget_s: float,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
) -> list[Timed | None]:
    """Return each case's time, None for one that does not fit the runner; rounds end when the budget is used up.

    The KV blocks' contents are lost.
    """
    steps = [_step(case, runner.info) if _fits(case, runner.info) else None for case in cases]
    fitting = [index for index, step in enumerate(steps) if step is not None]
    _fill(runner, max(sum(_blocks(cases[index], runner.info)) for index in fitting) if fitting else 0)
    took: dict[int, list[int]] = {index: [] for index in fitting}
    begun_ns = clock_ns()
    for number in range(MOST_ROUNDS):
        if number >= LEAST_ROUNDS and (clock_ns() - begun_ns) * (1 + 1 / number) > budget_s * 1e9:
            break
        order = random.Random(number).sample(fitting, len(fitting))
        for index in order:
            step = steps[index]
            assert step is not None
            before_ns = clock_ns()
            runner.execute(step)
            took[index].append(clock_ns() - before_ns)
    return [
        None if step is None else Timed(load_of(step), max(1.0, float(statistics.median(took[index]))))
        for index, step in enumerate(steps)
    ]


def _fits(case: Case, info: RunnerInfo) -> bool:
    longest = max(part.context + part.num_tokens for part in case)
    return longest <= info.max_context and sum(_blocks(case, info)) <= info.num_blocks


def _blocks(case: Case, info: RunnerInfo) -> Iterator[int]:
    return (-(-(part.context + part.num_tokens) // info.block_size) for part in case)


def _fill(runner: Runner, num_blocks: int) -> None:
    """Write the first block by computing it, the others by copying."""
    info = runner.info
    num_tokens = min(info.block_size, info.max_context)
    runner.execute(_step((Part(num_tokens, 0),), info))
    for block in range(1, num_blocks):
        runner.copy_block(0, block)


def _step(case: Case, info: RunnerInfo) -> Step:
    draw = random.Random(len(case))
    tokens, positions, starts = array("i"), array("i"), array("i", [0])
    table_starts, rows, drawn_at = array("i", [0]), array("i"), array("i")
    for part, num_blocks in zip(case, _blocks(case, info), strict=True):
        tokens.extend(draw.randrange(info.vocab_size) for _ in range(part.num_tokens))
        positions.extend(range(part.context, part.context + part.num_tokens))
        starts.append(len(tokens))
        table_starts.append(table_starts[-1] + num_blocks)
        if part.draws:
            rows.append(len(tokens) - 1)
            drawn_at.append(part.context + part.num_tokens)
    return Step(
        tokens=tokens,
        positions=positions,
        sequence_starts=starts,
        context_lens=array("i", [part.context for part in case]),
        block_table=array("i", range(table_starts[-1])),
        block_table_starts=table_starts,
        adapter_ids=array("i", [0] * len(case)),
        output_rows=rows,
        output_kinds=array("i", [OutputKind.LOGITS] * len(rows)),
        sampling=greedy(drawn_at) if rows else None,
    )
