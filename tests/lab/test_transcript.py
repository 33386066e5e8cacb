"""How a request ended, and what came, read from scripted bytes."""

import json

import pytest

from headway.lab.deltas import TokenUsage
from headway.lab.exchange import Exchange, Failure
from headway.lab.transcript import Ending, Transcript
from support.scripted_stream import DONE, chat, event, play, tokens, usage

ANSWER = b"".join([chat(role="assistant", content=""), chat(content="a"), chat("stop"), usage(2), DONE])


def failure(exchange: Exchange) -> Failure:
    assert exchange.answer.failure is not None
    return exchange.answer.failure


def test_a_whole_answer_in_one_read() -> None:
    answer = play((5, ANSWER)).answer
    assert answer.failure is None
    assert answer.finish_reason == "stop"
    assert answer.usage == TokenUsage(prompt_tokens=512, completion_tokens=2)
    assert [part.kind for part in answer.events] == ["other", "content", "other", "other", "done"]
    assert {part.at_ns for part in answer.events} == {5_000_000}


def test_an_event_has_the_stamp_of_the_read_that_ended_it() -> None:
    data = chat(content="né") + chat("stop")
    middle = data.index("é".encode()) + 1
    answer = play((1, data[:middle]), (2, data[middle:-2]), (3, data[-2:])).answer
    assert [(part.at_ns, part.kind) for part in answer.events] == [
        (2_000_000, "content"),
        (3_000_000, "other"),
    ]


@pytest.mark.parametrize("ending", ["complete", "closed", "silence"])
def test_an_answer_needs_either_a_finish_reason_or_done(ending: Ending) -> None:
    assert play((1, chat(content="a") + chat("length")), ending=ending).ok
    assert play((1, chat(content="a") + DONE), ending=ending).ok
    assert play((1, ANSWER.removesuffix(b"\n")), ending=ending).ok
    assert play((1, ANSWER.removesuffix(DONE).rstrip(b"\n")), ending=ending).ok


@pytest.mark.parametrize("ending", ["complete", "closed"])
def test_a_stream_that_stops_before_its_end_was_closed(ending: Ending) -> None:
    exchange = play(*tokens(10, 5, 3), ending=ending)
    assert failure(exchange).label == "closed"
    assert len(exchange.text_events) == 3


def test_a_stream_closed_within_an_event_was_closed_and_is_no_garbage() -> None:
    exchange = play((1, chat(content="a")), (2, chat(content="b")[:-20]), ending="closed")
    assert failure(exchange).label == "closed"
    assert len(exchange.text_events) == 1


@pytest.mark.parametrize(
    "body",
    [
        chat(content="a") + b"data: {oops\n\n" + chat("stop") + DONE,
        b"data: 7\n\n" + ANSWER,
        b'{"object":"chat.completion","choices":[]}',
        b"<html>Bad gateway</html>",
    ],
)
def test_what_is_no_stream_of_chunks_is_garbage(body: bytes) -> None:
    assert failure(play((1, body))).label == "garbage"


def test_a_peer_that_speaks_no_http_sends_garbage() -> None:
    assert failure(play(status=None, ending="no_http")).label == "garbage"


def test_a_line_without_end_is_garbage_and_what_came_before_it_is_kept() -> None:
    transcript = Transcript(max_event_bytes=1000)
    transcript.responded(200)
    transcript.received(1, chat(content="a") + b"data: " + b"x" * 2000)
    transcript.received(2, ANSWER)
    answer = transcript.answer("complete")
    assert answer.failure is not None
    assert answer.failure.label == "garbage"
    assert "1000 bytes" in answer.failure.message
    assert [part.kind for part in answer.events] == ["content"]


@pytest.mark.parametrize(
    "exchange",
    [
        play(status=None, ending="silence", ended_ms=30_000),
        play(ending="silence", ended_ms=30_000),
        play(*tokens(10, 5, 3), ending="silence", ended_ms=30_020),
    ],
    ids=["before the status", "after the status", "after tokens"],
)
def test_silence_is_told_from_a_closed_stream(exchange: Exchange) -> None:
    assert failure(exchange).label == "silence"


def test_a_connection_that_breaks_before_the_status_is_its_own_kind() -> None:
    assert failure(play(status=None, ending="closed")).label == "connection"


@pytest.mark.parametrize(
    ("status", "retry_after", "label", "seconds"),
    [
        (429, "7", "refused_429", 7.0),
        (503, " 2 ", "refused_503", 2.0),
        (503, None, "refused_503", None),
        (429, "Wed, 21 Oct 2026 07:28:00 GMT", "refused_429", None),
        (429, "-1", "refused_429", None),
        (429, "9" * 400, "refused_429", None),
        (500, None, "status_500", None),
        (400, None, "status_400", None),
        (302, None, "status_302", None),
        (204, None, "status_204", None),
    ],
)
def test_refusals_are_told_from_other_statuses(
    status: int, retry_after: str | None, label: str, seconds: float | None
) -> None:
    body = json.dumps({"error": {"message": "too many requests wait", "code": "queue_full"}}).encode()
    refused = failure(play((1, body[:9]), (2, body[9:]), status=status, retry_after=retry_after))
    assert (refused.label, refused.status, refused.retry_after_s) == (label, status, seconds)
    assert refused.message == "too many requests wait"
    assert refused.code == "queue_full"


def test_a_refusal_without_a_body_still_says_something() -> None:
    assert failure(play(status=503)).message == "HTTP 503"


@pytest.mark.parametrize(
    "body",
    [
        chat(content="a") + event({"error": {"message": "out of memory"}}) + DONE,
        chat(content="a") + b'error: {"message": "out of memory"}\n\n',
        chat(content="a") + b'event: error\ndata: {"message": "out of memory"}\n\n',
        ANSWER.removesuffix(DONE) + event({"error": {"message": "out of memory"}}) + DONE,
        event({"error": {"message": "out of memory"}}).rstrip(b"\n"),
    ],
)
def test_an_error_event_inside_http_200_is_a_failure(body: bytes) -> None:
    assert failure(play((1, body))) == Failure(kind="error_event", message="out of memory")


def test_nothing_counts_after_done() -> None:
    exchange = play((1, ANSWER), (2, chat(content="late") + event({"error": "late"})))
    assert exchange.ok
    assert exchange.text_events[-1].at_ns == 1_000_000


@pytest.mark.parametrize(
    "body", [chat("stop") + usage(1) + DONE, DONE, chat(role="assistant", content="") + DONE]
)
def test_an_answer_without_text_is_not_a_success(body: bytes) -> None:
    assert failure(play((1, body))).label == "empty"


def test_a_tool_call_alone_is_an_answer() -> None:
    call = {"index": 0, "function": {"arguments": "{}"}}
    named = {"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}
    exchange = play((1, chat(tool_calls=[named])), (2, chat(tool_calls=[call]) + chat("tool_calls") + DONE))
    assert exchange.ok
    assert [part.at_ns for part in exchange.text_events] == [2_000_000]


def test_usage_with_every_chunk_says_what_each_brought() -> None:
    body = [
        event({"choices": [{"delta": {"content": "abcd"}}], "usage": {"completion_tokens": total}})
        for total in (1, 4, 4)
    ]
    exchange = play(*((1.0 + i, data) for i, data in enumerate(body)), (9, chat("stop") + DONE))
    assert [part.num_tokens for part in exchange.text_events] == [1, 3, 0]


def test_usage_with_the_last_chunk_alone_says_nothing_of_that_chunk() -> None:
    last = event({"choices": [{"text": "b", "finish_reason": "stop"}], "usage": {"completion_tokens": 9}})
    exchange = play((1, event({"choices": [{"text": "a"}]})), (2, last))
    assert [part.num_tokens for part in exchange.text_events] == [None, None]
    assert exchange.answer.usage == TokenUsage(completion_tokens=9)


def test_a_tokenizer_counts_text_alone() -> None:
    exchange = play((1, chat(role="assistant") + chat(content="abc") + DONE), count_tokens=len)
    assert [part.num_tokens for part in exchange.answer.events] == [None, 3, None]


def test_cached_tokens_come_from_usage() -> None:
    body = chat(content="a") + chat("stop")
    assert play((1, body + usage(1, cached_tokens=496) + DONE)).cached_tokens == 496
    assert play((1, body + usage(1) + DONE)).cached_tokens is None
    assert play((1, body + DONE)).cached_tokens is None
