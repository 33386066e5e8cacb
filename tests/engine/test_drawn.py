"""Which drawn tokens stand."""

import pytest

from headway.engine.drawn import accept, count_right, verified
from headway.engine.sequence import Sequence
from headway.kv.blocks import KvBlocks
from support.engine_on_fake import make_request


@pytest.mark.parametrize(
    ("draft", "drawn", "stands"),
    [
        ((), (7,), (7,)),
        ((1, 2, 3), (1, 2, 3, 4), (1, 2, 3, 4)),
        ((1, 2, 3), (1, 2, 9, 4), (1, 2, 9)),
        ((1, 2, 3), (9, 2, 3, 4), (9,)),
        ((1, 2, 3), (1, -1, 3, 4), (1,)),
        ((1, 2), (-1, -1, -1), (-1,)),
        ((1, 2), (1, 2, -1), (1, 2)),
    ],
)
def test_the_draft_stands_as_far_as_it_was_drawn_and_one_token_more(
    draft: tuple[int, ...], drawn: tuple[int, ...], stands: tuple[int, ...]
) -> None:
    assert verified(draft, drawn) == stands
    assert verified(draft, list(drawn)) == stands
    assert draft[: count_right(draft, drawn)] == drawn[: count_right(draft, drawn)]


def test_a_stop_token_and_the_limit_cut_a_run() -> None:
    request = make_request("r", [1, 2], max_tokens=3, stop_token_ids=(9,))
    sequence = Sequence(request, 0, 0, KvBlocks(4, 4).new_chain("", 0))
    assert accept(sequence, (5, 9, 6)) == ((5,), "stop")
    assert accept(sequence, (5, 6, 7, 8)) == ((5, 6, 7), "length")
    assert accept(sequence, (5, 6)) == ((5, 6), None)
