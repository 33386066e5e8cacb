"""Records of requests at random: such as can be, and what becomes of them when their stamps are changed to anything."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from headway.lab.deltas import TEXT_KINDS, DeltaKind, TokenUsage
from headway.lab.exchange import Answer, ContradictoryRecord, Exchange, Failure, Stamps, StreamEvent

MOST_TOKENS = 2**31
"""Which nothing may be repeated as often as."""

times = st.integers(0, 20) | st.integers(0, 10**12)
kinds: st.SearchStrategy[DeltaKind] = st.sampled_from(["content", "reasoning", "tool_call", "other", "done"])
events_of_answers = st.builds(
    StreamEvent,
    at_ns=st.just(0),
    kind=kinds,
    num_chars=st.integers(0, 50),
    num_tokens=st.none() | st.integers(0, 9),
)


@st.composite
def answers(draw: st.DrawFn, at_ns: list[int], most_tokens: int = MOST_TOKENS) -> Answer:
    """An answer of events at these times, whatever they are, of tokens that a server may have made up."""
    events = tuple(replace(draw(events_of_answers), at_ns=at) for at in at_ns)
    has_text = any(event.kind in TEXT_KINDS for event in events)
    return Answer(
        events=events,
        usage=TokenUsage(completion_tokens=draw(st.none() | st.integers(0, 40) | st.just(most_tokens))),
        finish_reason=draw(st.sampled_from([None, "stop", "length"])),
        failure=None if has_text and draw(st.booleans()) else Failure(kind="closed", message=""),
    )


@st.composite
def records(draw: st.DrawFn, most_tokens: int = MOST_TOKENS) -> Exchange:
    """A record that can be: its stamps in order, the intended start anywhere."""
    at_ns = sorted(draw(st.lists(times, min_size=4, max_size=12)))
    dispatched_ns, written_ns, first_byte_ns, *event_ns, ended_ns = at_ns
    connect_ns = draw(st.integers(0, written_ns - dispatched_ns))
    stamps = Stamps(
        intended_ns=draw(times),
        dispatched_ns=dispatched_ns,
        written_ns=written_ns,
        first_byte_ns=first_byte_ns,
        ended_ns=ended_ns,
        connect_ns=connect_ns,
        tls_ns=draw(st.integers(0, written_ns - dispatched_ns - connect_ns)),
    )
    return Exchange(stamps=stamps, answer=draw(answers(event_ns, most_tokens)))


changes: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "dispatched_ns": times,
        "written_ns": times | st.none(),
        "first_byte_ns": times | st.none(),
        "ended_ns": times,
        "connect_ns": st.integers(-5, 10**12),
        "tls_ns": st.integers(-5, 10**12),
    },
)


@st.composite
def garbled(draw: st.DrawFn, most_tokens: int = MOST_TOKENS) -> Exchange | None:
    """A record of a good one's stamps, some of them changed to anything; None where making it was refused."""
    good = draw(records(most_tokens))
    at_ns = [event.at_ns for event in good.answer.events]
    try:
        stamps = replace(good.stamps, **draw(changes))
        answer = draw(answers(draw(st.permutations(at_ns) | st.just(at_ns)), most_tokens))
        return Exchange(stamps=stamps, answer=answer)
    except ContradictoryRecord:
        return None
