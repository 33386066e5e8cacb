import pytest

from headway.core.clock import NS_PER_MS, NS_PER_S
from headway.engine.accounts import WINDOW_NS, Accounts


def test_the_window_forgets_what_is_older_than_five_seconds() -> None:
    accounts = Accounts((50, 30, 20))
    accounts.charge(0, "a", 100, 10, 0)
    accounts.charge(2, "a", 30, 0, 2 * NS_PER_S)
    tokens, shares = accounts.window(4 * NS_PER_S)
    assert tokens == [110, 0, 30]
    assert shares == pytest.approx((0.5, 0.3, 0.2))
    assert accounts.window(6 * NS_PER_S)[0] == [0, 0, 30]
    assert accounts.window(8 * NS_PER_S)[0] == [0, 0, 0]


def test_what_an_idle_engine_could_have_done_is_spare() -> None:
    accounts = Accounts((50, 30, 20))
    assert accounts.spare_tokens(0) == 0
    accounts.charge(1, "a", 1000, 0, NS_PER_S)
    accounts.note_busy(WINDOW_NS // 5, NS_PER_S)
    assert accounts.spare_tokens(NS_PER_S) == pytest.approx(4000)
    accounts.note_busy(WINDOW_NS, NS_PER_S)
    assert accounts.spare_tokens(NS_PER_S) == 0


def computed(accounts: Accounts, rank: int, begin_ms: int, end_ms: int) -> None:
    """The engine computed a token a millisecond, for this class alone."""
    for end in range(begin_ms + 100, end_ms + 1, 100):
        accounts.charge(rank, "", 100, 0, end * NS_PER_MS)
        accounts.note_busy(100 * NS_PER_MS, end * NS_PER_MS)


def has_its_share(accounts: Accounts, at_ms: int) -> bool:
    return accounts.use(at_ms * NS_PER_MS)[0] >= 1


def test_a_class_has_used_up_its_share_when_the_window_says_so() -> None:
    accounts = Accounts((50, 30, 20))
    computed(accounts, 1, 0, 5_000)
    assert accounts.use(5_000 * NS_PER_MS) == pytest.approx([0, 1 / 0.3, 0], abs=1e-6)
    assert accounts.use(5_000 * NS_PER_MS, (0, 0, 5_000))[1:] == pytest.approx([0.5 / 0.3, 0.5 / 0.2])


def test_high_may_be_ahead_by_what_it_left_and_after_that_has_its_share_not_nothing() -> None:
    accounts = Accounts((50, 30, 20))
    computed(accounts, 1, 0, 10_000)
    computed(accounts, 0, 10_000, 12_400)  # twice its share, for as long as savings last
    assert not has_its_share(accounts, 12_400)
    computed(accounts, 0, 12_400, 12_700)
    assert has_its_share(accounts, 12_700)
    computed(accounts, 1, 12_700, 13_100)  # others have their turn: what it was ahead is made up
    tokens, _ = accounts.window(13_100 * NS_PER_MS)
    assert tokens[0] > 0.5 * sum(tokens)
    assert not has_its_share(accounts, 13_100)
    assert accounts.use(13_100 * NS_PER_MS, (1_000, 0, 0))[0] >= 1  # what a step has planned counts


def test_savings_do_not_grow_for_ever_nor_does_what_is_owed() -> None:
    accounts = Accounts((50, 30, 20))
    computed(accounts, 1, 0, 60_000)
    computed(accounts, 0, 60_000, 63_000)
    assert has_its_share(accounts, 63_000)
    computed(accounts, 0, 63_000, 120_000)
    computed(accounts, 2, 120_000, 122_600)
    assert not has_its_share(accounts, 122_600)


def test_an_idle_engine_saves_for_high_too() -> None:
    accounts = Accounts((50, 30, 20))
    computed(accounts, 0, 0, 20_000)
    assert has_its_share(accounts, 20_000)
    computed(accounts, 0, 25_000, 27_000)
    computed(accounts, 2, 27_000, 28_000)
    computed(accounts, 0, 28_000, 29_200)
    assert not has_its_share(accounts, 29_200)
    computed(accounts, 0, 29_200, 29_700)
    assert has_its_share(accounts, 29_700)


def test_a_tenant_is_charged_one_for_input_and_two_for_output() -> None:
    accounts = Accounts((50, 30, 20))
    accounts.enter("a")
    accounts.charge(1, "a", 100, 10, 0)
    assert accounts.served == {"a": 120}


def test_who_comes_back_is_lifted_to_the_least_of_those_that_are_active() -> None:
    accounts = Accounts((50, 30, 20))
    for tenant in ("a", "b"):
        accounts.enter(tenant)
    accounts.charge(1, "a", 500, 0, 0)
    accounts.charge(1, "b", 300, 0, 0)
    accounts.enter("new")
    assert accounts.served["new"] == 300
    accounts.leave("b")
    accounts.charge(1, "new", 600, 0, 0)
    accounts.enter("b")
    assert accounts.served["b"] == 500


def test_who_is_ahead_and_leaves_does_not_lose_the_debt() -> None:
    accounts = Accounts((50, 30, 20))
    accounts.enter("a")
    accounts.enter("b")
    accounts.charge(1, "a", 1000, 0, 0)
    accounts.leave("a")
    accounts.enter("a")
    assert accounts.served["a"] == 1000


def test_tenants_that_have_gone_are_forgotten() -> None:
    accounts = Accounts((50, 30, 20))
    accounts.enter("stays")
    for number in range(1000):
        accounts.enter(f"t{number}")
        accounts.charge(1, f"t{number}", 10, 0, 0)
        accounts.charge(1, "stays", 20, 0, 0)
        accounts.leave(f"t{number}")
    assert len(accounts.served) <= 2


def test_who_was_served_less_may_overtake() -> None:
    accounts = Accounts((50, 30, 20))
    for tenant in ("me", "few", "equal", "more"):
        accounts.enter(tenant)
    for tenant, num_tokens in (("me", 4000), ("few", 100), ("equal", 3900), ("more", 9000)):
        accounts.charge(1, tenant, num_tokens, 0, NS_PER_S)
    accounts.enter("low")
    accounts.charge(2, "low", 10, 0, NS_PER_S)
    accounts.note_busy(10 * NS_PER_S, NS_PER_S)
    lead = 17_010 / 10
    assert accounts.lead(NS_PER_S) == pytest.approx(lead)
    assert accounts.overtaking(1, "few", NS_PER_S) == (0, 0)
    count, tokens = accounts.overtaking(1, "me", NS_PER_S)
    assert count == 2
    assert tokens == pytest.approx(100 + 3900 * (4000 - 3900) / lead)
    assert accounts.overtaking(1, "more", NS_PER_S) == (3, 8000)
