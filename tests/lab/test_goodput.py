import math

from headway.lab.goodput import Goodput, failures, goodput, values
from headway.lab.latency import tpot_ns, ttft_ns
from headway.lab.slo import Slo, parse_slo
from support.scripted_stream import DONE, chat, event, play, tokens

FAST = [play(*tokens(100, 10, 5), (150, DONE)) for _ in range(6)]
SLOW = [play(*tokens(900, 10, 5), (950, DONE)) for _ in range(2)]
ERRORS = [play((1, event({"error": "out of memory"}))), play(*tokens(5, 1, 2), ending="closed")]
REFUSALS = [play(status=429, retry_after="1"), play(status=503)]
OFFERED = [*FAST, *SLOW, *ERRORS, *REFUSALS]


def test_goodput_is_of_what_was_offered() -> None:
    assert goodput(parse_slo("ttft=480ms"), OFFERED) == Goodput(num_met=6, num_offered=12)
    assert goodput(parse_slo("ttft=480ms"), OFFERED).fraction == 0.5
    assert goodput(Slo(), OFFERED).num_met == 8
    assert goodput(Slo(), []).fraction is None


def test_failures_never_make_a_figure_faster() -> None:
    ttft = values(ttft_ns, OFFERED)
    assert sorted(ttft.successes) == [100e6] * 6 + [900e6] * 2
    assert sorted(ttft.all_requests) == [*sorted(ttft.successes), *[math.inf] * 4]


def test_a_success_without_the_figure_is_left_out() -> None:
    one_token = play((100, chat(content="a") + DONE))
    tpot = values(tpot_ns, [one_token, FAST[0], ERRORS[0]])
    assert tpot.successes == (10e6,)
    assert tpot.all_requests == (10e6, math.inf)


def test_failures_are_counted_by_what_they_were() -> None:
    assert failures(OFFERED) == {"closed": 1, "error_event": 1, "refused_429": 1, "refused_503": 1}
    assert failures([*REFUSALS, REFUSALS[0], *FAST]) == {"refused_429": 2, "refused_503": 1}
    assert failures(FAST) == {}
