"""How long a stream waits that was gone on with in vain."""

from headway.core.clock import NS_PER_S
from headway.gateway.adoptions import MAX_WAIT_NS, Adoptions


def test_the_first_time_again_is_at_once_and_each_later_one_after_twice_the_wait() -> None:
    adoptions = Adoptions()
    now_ns, waits = 0, []
    for _ in range(9):
        assert adoptions.may("a", now_ns)
        adoptions.note("a", now_ns)
        waited = 0
        while not adoptions.may("a", now_ns + waited * NS_PER_S):
            waited += 1
        waits.append(waited)
        now_ns += waited * NS_PER_S
    assert waits == [0, 30, 60, 120, 240, 480, 600, 600, 600]
    assert adoptions.may("b", 0)


def test_what_does_not_come_back_is_forgotten() -> None:
    adoptions = Adoptions()
    for number in range(100):
        adoptions.note(str(number), number * NS_PER_S)
        adoptions.note(str(number), number * NS_PER_S)
    adoptions.forget(40 * NS_PER_S + MAX_WAIT_NS)
    assert len(adoptions) == 89
    adoptions.forget(10**6 * NS_PER_S)
    assert len(adoptions) == 0
