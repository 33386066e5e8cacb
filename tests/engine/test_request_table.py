"""What the reader of a request's events gets: a step at a time, or all that waits once he fell behind."""

import pytest

from headway.core.messages import ChoiceFinished, Finished, TokenDelta, Usage
from headway.engine.request_table import EVENTS_AT_ONCE, RequestStream
from support.standin_engine import request

pytestmark = pytest.mark.anyio


def delta(number: int, choice: int = 0) -> TokenDelta:
    return TokenDelta("a", choice, (number,))


FINISHED = Finished(request_id="a", usage=Usage(prompt_tokens=2, completion_tokens=4))


async def test_a_reader_who_keeps_up_gets_a_step_at_a_time() -> None:
    stream = RequestStream(request("a"))
    for number in range(3):
        stream.push((delta(number),))
        assert await anext(stream) == (delta(number),)
    assert stream.push((ChoiceFinished("a", 0, "stop"), FINISHED))
    assert await anext(stream) == (ChoiceFinished("a", 0, "stop"), FINISHED)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_one_who_fell_behind_gets_what_waits_as_if_it_were_one_step_but_the_first_alone() -> None:
    stream = RequestStream(request("a", n=2))
    stream.push((delta(1), delta(2, choice=1)))
    stream.push((delta(3), ChoiceFinished("a", 0, "stop")))
    stream.push((delta(4, choice=1), ChoiceFinished("a", 1, "length"), FINISHED))
    assert await anext(stream) == (delta(1), delta(2, choice=1))
    assert await anext(stream) == (
        delta(3),
        delta(4, choice=1),
        ChoiceFinished("a", 0, "stop"),
        ChoiceFinished("a", 1, "length"),
        FINISHED,
    )
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_no_reader_gets_all_at_once_of_a_long_answer() -> None:
    stream = RequestStream(request("a", max_tokens=1000))
    for number in range(2 * EVENTS_AT_ONCE):
        stream.push((delta(number),))
    sizes = [len(await anext(stream)) for _ in range(3)]
    assert sizes == [1, EVENTS_AT_ONCE, EVENTS_AT_ONCE - 1]


async def test_steps_of_many_choices_are_not_joined_to_more_than_a_step_brings_at_most() -> None:
    n = 48
    stream = RequestStream(request("a", n=n, max_tokens=1000))
    for number in range(4):
        stream.push(tuple(delta(number, choice) for choice in range(n)))
    for choice in range(3):
        stream.push((delta(9, choice),))
    sizes = [len(await anext(stream)) for _ in range(4)]
    assert sizes == [n, n, n, n + 3]
