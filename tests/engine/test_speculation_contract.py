"""Speculation by hand on the fake runner: several rows of one sequence, advance by a list, truncate."""

import pytest

from headway.engine.sequence import Sequence
from headway.engine.step_builder import build_step
from headway.engine.view import Chunk
from headway.kv.blocks import KvBlocks
from headway.runner.fake import FakeRunner
from support.engine_on_fake import make_request, prompt, run_alone

BLOCK_SIZE = 4
REQUEST = make_request("r", prompt(6), 12)


@pytest.mark.parametrize("num_right", range(6))
def test_a_draft_that_is_partly_right_leaves_no_trace(num_right: int) -> None:
    right = run_alone(REQUEST, block_size=BLOCK_SIZE).of("r")
    runner, kv = FakeRunner(num_blocks=16, block_size=BLOCK_SIZE), KvBlocks(16, BLOCK_SIZE)
    sequence = Sequence(REQUEST, 0, 0, kv.new_chain("", 0))
    sequence.admit(0)
    kv.grow(sequence.table, 6)
    sequence.advance(6, runner.execute(build_step([Chunk(sequence, 6, True)])).tokens)

    draft = (*right[1 : 1 + num_right], *((token + 1) % 512 for token in right[1 + num_right : 6]))
    kv.grow(sequence.table, sequence.num_tokens + len(draft))
    drawn = list(runner.execute(build_step([Chunk(sequence, 1, True, draft)])).tokens)
    accepted = drawn[: num_right + 1]  # a draft's token stands while it is what was drawn before it
    assert accepted == right[1 : num_right + 2]
    sequence.advance(1 + num_right, accepted)
    kv.pool.truncate(sequence.table, sequence.num_computed)
    kv.check([sequence.table])

    while sequence.num_output < 12:
        kv.grow(sequence.table, sequence.num_tokens)
        sequence.advance(1, runner.execute(build_step([Chunk(sequence, 1, True)])).tokens)
    assert list(sequence.tokens[6:]) == right
