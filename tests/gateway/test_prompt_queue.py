"""Whose prompt is next, and whose is one too many."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from headway.gateway.prompt_queue import AHEAD_BYTES, PromptQueue, Ticket, User

ANN, BOB, EVE = ("", "ann"), ("", "bob"), ("", "eve")
BIG = AHEAD_BYTES + 1


def queue(max_prompts: int = 100, max_bytes: int = 100 * BIG) -> PromptQueue:
    return PromptQueue(max_prompts=max_prompts, max_bytes=max_bytes)


def drained(of: PromptQueue) -> list[Ticket]:
    """Return who is served, one after the other."""
    served = []
    while (ticket := of.take()) is not None:
        served.append(ticket)
        of.leave(ticket)
    return served


def test_users_take_turns_and_each_is_served_in_order() -> None:
    q = queue()
    ann = [q.enter(ANN, BIG) for _ in range(3)]
    bob = [q.enter(BOB, BIG) for _ in range(2)]
    assert drained(q) == [ann[0], bob[0], ann[1], bob[1], ann[2]]


def test_the_thread_is_given_several_small_prompts_and_one_large_one_at_a_time() -> None:
    q = queue()
    small = [q.enter(ANN, 100) for _ in range(3)]
    large = q.enter(BOB, BIG)
    first = q.take()
    assert first is small[0]
    assert q.take() is None  # it is the turn of the large one, which nobody passes
    q.leave(first)
    assert q.take() is large
    assert q.take() is None
    q.leave(large)
    assert [q.take(), q.take(), q.take()] == [*small[1:], None]


def test_who_comes_goes_before_those_who_had_a_turn_since_his_last() -> None:
    q = queue()
    ann = [q.enter(ANN, BIG) for _ in range(3)]
    assert q.take() is ann[0]
    bob = q.enter(BOB, BIG)
    q.leave(ann[0])
    assert q.take() is bob
    q.leave(bob)
    again = q.enter(BOB, BIG)
    assert drained(q) == [ann[1], again, ann[2]]


def test_where_too_many_wait_the_latest_of_the_user_with_most_has_to_go() -> None:
    q = queue(max_prompts=5)
    q.enter(BOB, 9_000)
    ann = [q.enter(ANN, 10) for _ in range(4)]
    assert q.crowded_out() is None
    eve = q.enter(EVE, 10)
    assert q.crowded_out() is ann[-1]
    q.leave(ann[-1])
    assert q.crowded_out() is None
    assert eve in drained(q)


def test_where_too_much_waits_it_is_the_one_with_most_of_it() -> None:
    q = queue(max_bytes=100)
    bob = q.enter(BOB, 90)
    for _ in range(5):
        q.enter(ANN, 2)
    assert q.crowded_out() is None
    q.enter(ANN, 2)
    assert q.crowded_out() is bob


def test_one_alone_may_have_any_size() -> None:
    q = queue(max_bytes=1)
    q.enter(ANN, 10)
    assert q.crowded_out() is None


users = st.sampled_from([ANN, BOB, EVE])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), users, st.sampled_from([1, 500, BIG])),
        st.tuples(st.just("take")),
        st.tuples(st.just("leave"), st.integers(0, 30)),
    ),
    max_size=80,
)


@given(steps)
def test_whatever_happens_nobody_is_lost_and_the_bounds_hold(script: list[tuple[object, ...]]) -> None:
    q = queue(max_prompts=4, max_bytes=3 * BIG)
    known: list[Ticket] = []
    gone: set[int] = set()
    for step in script:
        match step:
            case ("enter", (str(), str()) as user, int(num_bytes)):
                known.append(q.enter(as_user(user), num_bytes))
                while (crowded_out := q.crowded_out()) is not None:
                    assert crowded_out.order not in gone
                    gone.add(crowded_out.order)
                    q.leave(crowded_out)
            case ("take",):
                taken = q.take()
                assert taken is None or taken.order not in gone
            case ("leave", int(which)) if which < len(known):
                gone.add(known[which].order)
                q.leave(known[which])
        here = [ticket for ticket in known if ticket.order not in gone]
        assert len(q) == len(here) <= 4
        assert len(here) <= 1 or sum(ticket.num_bytes for ticket in here) <= 3 * BIG
    for ticket in known:
        q.leave(ticket)
    assert len(q) == 0
    assert q.take() is None


def as_user(pair: Sequence[str]) -> User:
    tenant, name = pair
    return tenant, name
