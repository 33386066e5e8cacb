"""A fake model that mostly copies, as edits do, and engines on it with and without speculation."""

from collections.abc import Sequence
from hashlib import blake2b

from headway.core.config import SchedulerConfig
from headway.core.request import Request
from headway.engine.engine import Engine
from headway.runner.fake import DrawnRow, FakeRunner
from support.engine_on_fake import Received, make_engine, run_until_idle, submit_all

WITHOUT, WITH = SchedulerConfig(max_draft_tokens=0), SchedulerConfig(max_draft_tokens=8)


def copying(row: DrawnRow) -> int | None:
    """Say what followed the last token when it occurred before, nineteen times out of twenty; else what the hash says.

    Behind a token that never occurred before it goes on as if that one replaced another. It depends on what a real model's
    draw depends on: the context, the seed, the choice and the position.
    """
    key = repr((row.tokens, row.seed, row.choice, row.position)).encode()
    if blake2b(key, digest_size=1).digest()[0] % 20 == 0:
        return None
    tokens = row.tokens
    for back in range(1, min(5, len(tokens))):
        places = [index for index in range(len(tokens) - back) if tokens[index] == tokens[-back]]
        if places:
            return tokens[places[-1] + back]
    return None


def copying_engine(
    limits: SchedulerConfig = WITH, *, num_blocks: int = 512, block_size: int = 4, vocab_size: int = 512
) -> tuple[Engine, FakeRunner]:
    """Return an engine on a fake model that mostly copies, and the model."""
    runner = FakeRunner(
        num_blocks=num_blocks,
        block_size=block_size,
        vocab_size=vocab_size,
        max_context=8192,
        script=copying,
        keep_steps=True,
    )
    return make_engine(runner, limits=limits), runner


def answered(requests: Sequence[Request], limits: SchedulerConfig, *, vocab_size: int = 512) -> Received:
    """Run `requests` together to their ends."""
    engine, _ = copying_engine(limits, vocab_size=vocab_size)
    submit_all(engine, requests)
    return run_until_idle(engine)


def assert_same_answers(got: Received, expected: Received) -> None:
    """Everything a client could see is equal."""
    assert got.tokens == expected.tokens
    assert got.logprobs == expected.logprobs
    assert got.reasons == expected.reasons
    assert {name: one.usage for name, one in got.finished.items()} == {
        name: one.usage for name, one in expected.finished.items()
    }
