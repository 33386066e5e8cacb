"""Blocks are given memory before they are used for the first time, as far ahead as a long prompt goes."""

from headway.core.messages import Submit
from headway.engine.engine import Engine
from headway.engine.kv_memory import BOUND_TOKENS
from headway.runner.fake import FakeRunner
from support.engine_on_fake import make_engine, make_request, prompt, run_until_idle

BLOCK = 16
AHEAD = BOUND_TOKENS // BLOCK
USED = 6
"""Blocks of a prompt that fills five and its answer."""


def prepare_all(engine: Engine) -> None:
    while engine.prepare():
        pass


def answer_one(engine: Engine) -> None:
    engine.handle(Submit(make_request("a", prompt(5 * BLOCK), max_tokens=4)))
    run_until_idle(engine)


def test_unused_blocks_are_given_memory_in_the_order_in_which_they_will_be_used() -> None:
    runner = FakeRunner(num_blocks=3 * AHEAD, block_size=BLOCK)
    engine = make_engine(runner)
    prepare_all(engine)
    assert runner.bound == list(range(AHEAD))
    answer_one(engine)
    prepare_all(engine)
    assert runner.bound == list(range(AHEAD + USED))


def test_blocks_that_were_used_before_there_was_time_need_nothing() -> None:
    runner = FakeRunner(num_blocks=64, block_size=BLOCK)
    engine = make_engine(runner)
    answer_one(engine)
    prepare_all(engine)
    assert runner.bound == list(range(USED, 64))
