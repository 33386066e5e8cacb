import pytest

from headway.core.clock import NS_PER_S
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
