"""How a server divided itself between streams, counted where the tokens show, while all had work waiting."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.lab.exchange import Exchange
from headway.lab.sharing import (
    TOKENS,
    VTC,
    computed_tokens,
    jain_index,
    service_within,
    sharing,
    sharing_json,
)
from support.lab_runs import answered
from support.scripted_stream import DONE, chat, play

MS = 1_000_000
S = 1_000 * MS


def one_after_another(
    each_ms: float, num: int, *, prompt_tokens: int, num_tokens: int = 4, cached_tokens: int | None = None
) -> list[Exchange]:
    """Requests that are all due at once and get their first tokens at equal distances: always one waits."""
    return [
        answered(
            0,
            ttft_ms=each_ms * (index + 1),
            itl_ms=1,
            num_tokens=num_tokens,
            prompt_tokens=prompt_tokens,
            cached_tokens=cached_tokens,
            conversation=index,
        )
        for index in range(num)
    ]


def test_prompts_count_at_the_first_token_without_what_was_cached_and_answers_as_they_come() -> None:
    exchange = answered(0, ttft_ms=10, itl_ms=5, num_tokens=3, prompt_tokens=100, cached_tokens=40)
    cut = [(0, 10 * MS), (10 * MS, 15 * MS), (15 * MS, 30 * MS)]
    assert service_within([exchange], cut, TOKENS) == [0, 61, 2]
    assert service_within([exchange], cut, VTC) == [0, 62, 4]
    assert computed_tokens(exchange) == 60


def test_an_answer_without_usage_counts_what_came_and_is_told() -> None:
    untold = play((5, chat(content="a")), (6, chat("stop")), (6, DONE))
    assert service_within([untold], [(0, 10 * MS)], VTC) == [2]
    assert sharing({"a": [untold], "b": []}).num_untold == 1


def test_equal_service_is_fair_and_shares_say_who_got_what() -> None:
    streams = {
        "short": one_after_another(100, 120, prompt_tokens=96),
        "long": one_after_another(400, 30, prompt_tokens=396),
    }
    found = sharing(streams)
    assert found.num_windows == 2  # of 12 s
    assert found.jain == pytest.approx(1, abs=1e-3)
    assert found.token_shares == pytest.approx({"short": 0.5, "long": 0.5}, abs=0.01)
    assert set(found.token_share_ranges) == {"short", "long"}
    assert len(found.jain_windows) == 2


def test_round_robin_by_request_is_found_out() -> None:
    found = sharing(
        {
            "short": one_after_another(200, 60, prompt_tokens=96),
            "long": one_after_another(200, 60, prompt_tokens=996),
        }
    )
    assert found.jain is not None
    assert found.jain < 0.65
    assert found.service_shares["long"] == pytest.approx(1004 / (1004 + 104), abs=0.01)


def test_who_asks_for_less_than_its_share_is_no_victim() -> None:
    streams = {
        "busy": one_after_another(100, 120, prompt_tokens=96),
        "idle": [answered(at_ms, ttft_ms=20) for at_ms in range(0, 12_000, 1_000)],
    }
    found = sharing(streams)
    assert (found.num_windows, found.jain, found.service_shares, found.token_shares) == (0, None, {}, {})
    assert sharing_json(found) == {
        "window_s": 5,
        "windows": 0,
        "jain": None,
        "jain_least": None,
        "service_shares": {},
        "token_shares": {},
        "token_share_ranges": {},
        "untold": 0,
    }


def test_windows_without_service_have_no_index_and_do_not_spoil_the_others() -> None:
    late = [answered(0, ttft_ms=7_000), answered(0, ttft_ms=11_000)]
    found = sharing({"a": late, "b": late})
    assert found.num_windows == 2
    assert found.jain_windows == (1.0,)


amounts = st.lists(st.floats(0, 1e9), min_size=1, max_size=9)


@given(amounts)
def test_jains_index_lies_between_one_for_all_and_all_for_one(found: list[float]) -> None:
    index = jain_index(found)
    if index is None:
        assert max(found) ** 2 == 0
    else:
        assert 1 / len(found) - 1e-9 <= index <= 1 + 1e-9


@given(amounts, st.floats(1e-3, 1e3))
def test_jains_index_has_no_unit(found: list[float], factor: float) -> None:
    index, scaled = jain_index(found), jain_index([amount * factor for amount in found])
    if index is not None and scaled is not None and sum(found) > 1:
        assert scaled == pytest.approx(index)


def test_json_tells_shares_of_each() -> None:
    streams = {
        name: one_after_another(100, 60, prompt_tokens=tokens) for name, tokens in (("a", 96), ("b", 296))
    }
    told = sharing_json(sharing(streams))
    assert told is not None
    assert told["windows"] == 1
    assert told["token_shares"] == {"a": 0.25, "b": 0.75}
    assert told["token_share_ranges"] == {"a": [0.25, 0.25], "b": [0.75, 0.75]}
