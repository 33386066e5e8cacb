from hypothesis import given
from hypothesis import strategies as st

from headway.core.messages import Finished, Usage
from headway.core.stages import STAGES, Marks, in_ms

USAGE = Usage(prompt_tokens=1, completion_tokens=1, cached_tokens=0)
TIMES = st.integers(0, 10**12)
MARKS = st.none() | TIMES


def finished(scheduled: int | None, first_token: int | None, end: int | None) -> Finished:
    return Finished(
        request_id="r",
        usage=USAGE,
        first_scheduled_ns=scheduled,
        first_token_ns=first_token,
        finished_ns=end,
    )


@given(MARKS, MARKS, MARKS, MARKS, MARKS, MARKS, TIMES, TIMES)
def test_stages_add_up_to_the_whole_whatever_is_known(
    parsed: int | None,
    submitted: int | None,
    scheduled: int | None,
    first_token: int | None,
    end: int | None,
    seen: int | None,
    arrival_ns: int,
    duration_ns: int,
) -> None:
    marks = Marks(arrival_ns, parsed, submitted)
    marks.note_finished(finished(scheduled, first_token, end))
    stages = marks.split(arrival_ns + duration_ns, seen)
    assert sum(took_ns for _, took_ns in stages) == duration_ns
    assert all(took_ns >= 0 for _, took_ns in stages)
    names = [name for name, _ in stages]
    assert names == [name for name in STAGES if name in names]
    assert abs(round(sum(in_ms(stages).values()) * 1000) - duration_ns / 1000) < 1


def test_each_stage_lasts_from_mark_to_mark() -> None:
    marks = Marks(100, 110, 130)
    marks.note_finished(finished(160, 200, 250))
    assert marks.split(310) == (
        ("parse", 10),
        ("admit", 20),
        ("queue", 30),
        ("prefill", 40),
        ("decode", 50),
        ("send", 60),
    )


def test_a_request_refused_before_the_engine_was_admitting_to_its_end() -> None:
    assert Marks(100, 110).split(150) == (("parse", 10), ("admit", 40))


def test_a_request_cancelled_in_the_queue_waited_until_then() -> None:
    marks = Marks(0, 10, 20)
    marks.note_finished(finished(None, None, 50))
    assert marks.split(60) == (("parse", 10), ("admit", 10), ("queue", 30), ("send", 10))


def test_a_text_that_is_embedded_has_no_first_token() -> None:
    marks = Marks(0, 10, 20)
    marks.note_finished(finished(30, None, 50))
    assert marks.split(60) == (("parse", 10), ("admit", 10), ("queue", 10), ("prefill", 20), ("send", 10))


def test_without_the_engines_times_all_of_the_wait_is_prefill() -> None:
    assert Marks(0, 10, 20).split(100, seen_first_token_ns=70) == (
        ("parse", 10),
        ("admit", 10),
        ("queue", 0),
        ("prefill", 50),
        ("decode", 30),
    )


def test_several_parts_count_from_the_first_to_the_last() -> None:
    marks = Marks(0, 10, 20)
    marks.note_finished(finished(35, 50, 60))
    marks.note_finished(finished(30, 55, 90))
    assert marks.split(100) == (
        ("parse", 10),
        ("admit", 10),
        ("queue", 10),
        ("prefill", 20),
        ("decode", 40),
        ("send", 10),
    )
