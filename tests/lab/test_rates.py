from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.clock import NS_PER_S
from headway.lab.exchange import Answer, Exchange, Stamps, StreamEvent
from headway.lab.rates import peak_rate
from support.scripted_stream import DONE, chat, play, tokens, usage


def stream(*at_ns: int) -> Exchange:
    events = tuple(StreamEvent(at_ns=at, kind="content", num_chars=1) for at in at_ns)
    stamps = Stamps(intended_ns=0, dispatched_ns=0, written_ns=0, first_byte_ns=0, ended_ns=max(at_ns))
    return Exchange(stamps=stamps, answer=Answer(events=events))


def test_nothing_came() -> None:
    assert peak_rate([]) is None
    assert peak_rate([play(status=503)]) is None


def test_a_steady_stream_peaks_at_its_rate_whatever_its_chunks() -> None:
    single = play(*tokens(100, 20, 200), (4100, chat("length") + usage(200) + DONE))
    fours = play(*tokens(160, 80, 50), (4100, chat("length") + usage(200) + DONE))
    assert peak_rate([single]) == pytest.approx(50, abs=1.01)
    assert peak_rate([fours]) == pytest.approx(50, abs=4.01)


def test_a_long_wait_and_its_burst_is_no_peak() -> None:
    stalled = play(
        *tokens(0, 20, 50), (4980, chat(content="word " * 200)), (5000, chat("length") + usage(250) + DONE)
    )
    assert peak_rate([stalled]) == pytest.approx(51, abs=1.01)


def test_streams_add_up() -> None:
    one = play(*tokens(0, 20, 100), (2000, DONE))
    assert peak_rate([one] * 8) == pytest.approx(8 * 51, abs=8.01)


def test_a_run_shorter_than_the_window_kept_no_rate_for_so_long() -> None:
    assert peak_rate([play(*tokens(0, 1, 10), (10, DONE))]) == pytest.approx(10)


@given(st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=5).map(sorted), min_size=1, max_size=4))
def test_the_busiest_window_is_found_wherever_it_begins(streams: list[list[int]]) -> None:
    """By brute force: whole tokens within every window that begins at a quarter of a time unit."""
    step, window = 4, 40
    exchanges = [stream(*(at * step for at in at_ns)) for at_ns in streams]

    def came(start: float, end: float) -> float:
        total = 0.0
        for at_ns in streams:
            at = sorted({value * step for value in at_ns})
            num = {value: sum(other * step == value for other in at_ns) for value in at}
            total += num[at[0]] if start <= at[0] <= end else 0
            for before, after in pairwise(at):
                overlap = max(0.0, min(end, after) - max(start, before))
                total += num[after] * overlap / (after - before)
        return total

    most = max(came(start, start + window) for start in range(-window, 40 * step + 1))
    assert peak_rate(exchanges, window_ns=window) == pytest.approx(most * NS_PER_S / window)
