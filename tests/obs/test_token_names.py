import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.obs import token_names
from headway.obs.token_names import ANONYMOUS, INVALID, OTHER, TokenNames


class Page:
    """Names, and what is on the page because of them."""

    def __init__(self, watched: frozenset[str] = frozenset(), num_top: int = 3) -> None:
        self.shown: set[str] = set()
        self.left: list[str] = []
        self.names = TokenNames(watched, num_top, self._leave)

    def call(self, token_id: str | None, times: int = 1) -> str:
        for _ in range(times):
            name = self.names.name(token_id)
            self.shown.add(name)
        return name

    def _leave(self, name: str) -> None:
        self.shown.remove(name)
        self.left.append(name)


def test_few_tokens_all_have_names() -> None:
    page = Page()
    assert [page.call(token) for token in "abc"] == [*"abc"]
    assert page.call("d") == OTHER
    assert page.call("a") == "a"


def test_watched_tokens_have_names_beside_the_busiest() -> None:
    page = Page(frozenset({"vip"}), num_top=1)
    page.call("a", 1000)
    assert page.call("vip") == "vip"
    assert page.call("a") == "a"


def test_who_shows_no_token_or_a_wrong_one_is_not_named() -> None:
    page = Page()
    assert page.call("") == ANONYMOUS
    assert page.call(None) == INVALID


@pytest.mark.parametrize("token_id", ["_invalid", "_x", "a b", "a\n", "ä", "x" * 129, "\x7f"])
def test_an_id_that_could_forge_a_name_or_a_line_is_one_of_the_others(token_id: str) -> None:
    assert Page().call(token_id) == OTHER


def test_a_busier_token_takes_the_name_of_the_least_busy_one() -> None:
    page = Page(num_top=2)
    page.call("a", 50)
    page.call("b", 10)
    assert page.call("c", 27) == OTHER  # less than twice as busy as b, and 8
    assert page.call("c") == "c"
    assert page.left == ["b"]
    assert page.shown == {"a", "c", OTHER}


def test_tokens_that_are_equally_busy_do_not_take_turns() -> None:
    page = Page(num_top=2)
    for _ in range(500):
        for token in "abcd":
            page.call(token)
    assert page.left == []
    assert page.shown == {"a", "b", OTHER}


def test_a_hundred_thousand_tokens_have_no_more_names_than_few() -> None:
    page = Page(num_top=32)
    most = 0
    for number in range(100_000):
        page.call(f"t{number}")
        most = max(most, len(page.shown))
    assert most <= 33
    assert len(page.left) <= 32  # those that came first, once they had fallen silent


def test_the_busiest_are_found_among_a_hundred_thousand() -> None:
    draw = random.Random(1)
    page = Page(num_top=32)
    busy = [f"busy{number}" for number in range(16)]
    for _ in range(60_000):
        page.call(draw.choice(busy) if draw.random() < 0.2 else f"t{draw.randrange(100_000)}")
    assert set(busy) <= page.shown


def test_who_was_busy_long_ago_gives_up_its_name() -> None:
    page = Page(num_top=1)
    page.call("old", 5000)
    for _ in range(20):
        page.call("new", token_names._HALF_LIFE // 4)
        if "new" in page.shown:
            break
    assert page.left == ["old"]


def test_who_falls_silent_gives_up_its_name_though_nobody_wants_it() -> None:
    page = Page(num_top=3)
    page.call("a", 4)
    page.call("b", 3 * token_names._HALF_LIFE)
    assert page.left == ["a"]
    assert page.shown == {"b"}


def test_without_room_for_any_all_are_one() -> None:
    page = Page(num_top=0)
    assert page.call("a", 100) == OTHER


@given(st.lists(st.integers(0, 40), max_size=400), st.integers(0, 4))
def test_whoever_calls_there_are_no_more_names_than_places(calls: list[int], num_top: int) -> None:
    page = Page(frozenset({"t0"}), num_top)
    for number in calls:
        name = page.call(f"t{number}")
        assert name in (f"t{number}", OTHER)
        assert len(page.shown - {"t0", OTHER}) <= num_top
