import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import HeadwayError, UpstreamFailed
from headway.core.messages import ChoiceFinished, TokenDelta, TokenLogprobs
from headway.core.request import Request
from headway.core.sampling import SamplingParams
from headway.engine.remote_answer import RemoteAnswer
from headway.wire.sse_reader import SseEvent, SseReader
from support.scripted_upstream import chunk


def answer(num_logprobs: int | None = None, **fields: object) -> RemoteAnswer:
    sampling = SamplingParams(num_logprobs=num_logprobs)
    asked = {"request_id": "a", "token_ids": (1, 2), "sampling": sampling, "max_tokens": 4, **fields}
    return RemoteAnswer(Request(**asked), 50)  # type: ignore[arg-type]


def take(reader: RemoteAnswer, data: bytes) -> list[object]:
    found: list[object] = []
    for event in SseReader().feed(data):
        deltas, ends = reader.take(event)
        found += [*deltas, *ends]
    return found


def test_the_token_that_ends_an_answer_is_not_told() -> None:
    reader = answer(stop_token_ids=(9,))
    assert take(reader, chunk(7, 9, reason="stop")) == [
        TokenDelta("a", 0, (7,)),
        ChoiceFinished("a", 0, "stop"),
    ]
    assert reader.usage.completion_tokens == 1


def test_it_is_told_where_it_did_not_end_it() -> None:
    assert take(answer(stop_token_ids=(9,)), chunk(9, reason="length"))[0] == TokenDelta("a", 0, (9,))


def test_logprobs_name_tokens_best_first_and_no_more_than_asked_for() -> None:
    logprobs = {
        "tokens": ["token_id:7"],
        "token_logprobs": [-2.0],
        "top_logprobs": [{"token_id:7": -2.0, "token_id:8": -0.5, "token_id:9": -1.0}],
    }
    found = take(answer(num_logprobs=2), chunk(7, logprobs=logprobs))
    assert found == [TokenDelta("a", 0, (7,), (TokenLogprobs(7, -2.0, ((8, -0.5), (9, -1.0))),))]


@pytest.mark.parametrize(
    "logprobs",
    [
        None,
        {"tokens": ["x"], "token_logprobs": [-1.0]},
        {"tokens": ["token_id:7"], "token_logprobs": []},
        {"tokens": ["token_id:7"], "token_logprobs": [-1.0], "top_logprobs": [{"x": -1.0}]},
    ],
)
def test_logprobs_that_name_no_tokens_are_an_error(logprobs: object) -> None:
    with pytest.raises(UpstreamFailed):
        take(answer(num_logprobs=1), chunk(7, logprobs=logprobs))


def test_cached_tokens_are_those_of_the_usage_and_no_more_than_the_prompt() -> None:
    for told, believed in ((1, 1), (99, 2), (-1, 0), (None, 0)):
        reader = answer()
        usage = {"usage": {"prompt_tokens": 2, "prompt_tokens_details": {"cached_tokens": told}}}
        take(reader, b"data: %b\n\n" % json.dumps(usage).encode())
        assert reader.usage.cached_tokens == believed


def test_a_choice_that_was_ended_here_says_no_more() -> None:
    reader = answer(n=2)
    assert reader.cancel(0, "stop") == (ChoiceFinished("a", 0, "stop"),)
    assert reader.cancel(0, "stop") == ()
    assert take(reader, chunk(7)) == []
    assert not reader.ended
    assert reader.cancel(None, "cancelled") == (ChoiceFinished("a", 1, "cancelled"),)
    assert reader.ended


def test_choices_have_the_numbers_of_the_request() -> None:
    reader = answer(n=2, first_choice=3)
    assert take(reader, chunk(7, index=1)) == [TokenDelta("a", 4, (7,))]
    assert reader.cancel(4, "stop") == (ChoiceFinished("a", 4, "stop"),)
    assert reader.fail() == (ChoiceFinished("a", 3, "error"),)


@given(st.lists(st.one_of(st.binary(max_size=60), st.just(b"[DONE]"), st.builds(
    lambda ids, index, reason: chunk(*ids, index=index, reason=reason)[6:-2],
    st.lists(st.integers(-1, 60), max_size=4), st.integers(-1, 3), st.sampled_from([None, "stop", "length", "x"]),
))))  # fmt: skip
def test_whatever_comes_is_an_answer_or_a_typed_error(events: list[bytes]) -> None:
    reader = answer(n=2)
    told: dict[int, int] = {0: 0, 1: 0}
    ended: set[int] = set()
    for data in events:
        try:
            deltas, ends = reader.take(SseEvent(data))
        except HeadwayError:
            break
        for delta in deltas:
            assert delta.choice not in ended
            assert all(0 <= token < 50 for token in delta.token_ids)
            told[delta.choice] += len(delta.token_ids)
        for end in ends:
            assert end.choice not in ended
            ended.add(end.choice)
        if reader.done:
            assert ended == {0, 1}
            break
    assert max(told.values()) <= 4
    assert {*ended, *(end.choice for end in reader.fail())} == {0, 1}
